// What a job makes of the axes of its mesh: an axis that splits nothing has all its devices do the
// same work, and a dimension with fewer units than an axis has devices leaves some of them without
// a part. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/compile.h"

namespace weir::compiler {

// kInvalidArgument (W0920) names an axis of two or more devices that splits no tensor of the plan:
// no activation, no weight, no state of the optimiser.
absl::Status CheckMeshUse(const LogicalPlan& plan);

// A sentence for each dimension that some ranks hold no part of, though the axis that they lie on
// splits the dimension. Each names the ranks.
std::vector<std::string> DevicesWithoutWork(const LogicalPlan& plan);

}  // namespace weir::compiler
