// Checks the use that a job makes of its mesh axes. If an axis splits nothing, all devices of the
// axis do the same work. If a dimension has fewer units than an axis has devices, some of the
// devices have no part of the dimension. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

// kInvalidArgument (W0920) names an axis of two or more devices that splits no tensor of the plan:
// no activation, no weight and no state of the optimiser.
absl::Status CheckMeshUse(const LogicalPlan& plan);

// Returns a sentence for each dimension that some ranks hold no part of, though the axis of those
// ranks splits the dimension. Each sentence names the ranks.
std::vector<std::string> DevicesWithoutWork(const LogicalPlan& plan);

}  // namespace weir::compiler
