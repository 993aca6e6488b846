// Ranks the layouts that a search finds by the step that `weir sim` predicts for each, beside the
// rules of the job and the best of the known rules. Memory is that of the plans of whole ranks.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/search/search_layouts.h"
#include "proto/job.pb.h"
#include "tools/sim/job_costs.h"

namespace weir::search {

struct RankOptions {
  double memory_bytes = 0;  // of a device; 0: no bound
  int top = 5;
  compiler::FreeSettings free;
};

struct RankedLayouts {
  enum class Row : uint8_t { kPresent, kKnown, kFound };
  // The source of step_ns: a virtual run, the times of the plan, or the estimate of the search.
  enum class Source : uint8_t { kSimulated, kPlanned, kEstimated };
  compiler::FoundLayouts found;
  Row row = Row::kFound;
  Source source = Source::kEstimated;
  double step_ns = 0;
  double device_bytes = 0;
  bool fits = true;
};

struct RankedSearch {
  // In the order in which a user would want them: those that fit first, then by step_ns. There is
  // always a row of the present rules, even if nothing fits.
  std::vector<RankedLayouts> rows;
  std::vector<compiler::ChoiceSaving> savings;  // of rows[0]; empty if these are the present rules
  int64_t compiled = 0, solved = 0;
  bool exact = true;
  std::string batch_statistics;  // as SearchReport has it
  int64_t devices = 1;
  double memory_bytes = 0;

  const RankedLayouts& present() const;
};

// Errors: those of SearchLayouts and of the job. W0991: nothing fits into the memory.
absl::StatusOr<RankedSearch> RankLayouts(const proto::Job& job, const sim::JobCosts& costs,
                                         const RankOptions& options);

}  // namespace weir::search
