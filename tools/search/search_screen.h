// The output of `weir search`: a table of the best layouts, the rules of the first, and what each
// of its choices saves. Thread rule: pure functions.
#pragma once

#include <string>

#include "proto/job.pb.h"
#include "tools/search/rank_layouts.h"

namespace weir::search {

inline constexpr int kSearchColumns = 100;

// Returns lines of at most kSearchColumns characters. `job` is the job as it was before the search.
// Precondition: `search` has a row of the present rules.
std::string SearchScreen(const RankedSearch& search, const proto::Job& job);
std::string SearchJson(const RankedSearch& search);

}  // namespace weir::search
