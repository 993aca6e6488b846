// Finds the ops that somebody means who writes the name of another library, such as `linear` or
// `CrossEntropyLoss`, or who misspells a name. docs/reference/ops.md has the longer table, with
// attributes. Thread rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace weir::ops {

// Returns the ops that do together what a name of another library says: "linear" -> {"matmul"}.
// Names are in lower case and without underscores. Names that differ from those of ops in nothing
// else are not in the table.
const std::map<std::string, std::vector<std::string>>& ForeignOps();

// Returns what somebody who wrote `word` probably meant among the op names `names`: "matmul", "sub,
// square and reduce_mean" or "one of layer_norm, rms_norm"; "" if there is no guess.
std::string MeantOps(const std::string& word, const std::vector<std::string>& names);

}  // namespace weir::ops
