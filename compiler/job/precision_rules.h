// Gives the nodes of a model the precisions that training.precision_of asks for, by names and ops.
// Not here: the types and casts that follow (the pass apply-precision).
// Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/logical_plan.h"
#include "proto/job.pb.h"

namespace weir::compiler {

// kInvalidArgument: a rule that speaks of everything or has a pattern that cannot be meant (W0861),
// or a precision that no kernel has beside that of the job (W0862).
absl::Status CheckPrecisionRules(const proto::Training& training);

// Sets the precision of each node by the first rule that the node fits in all calls of its
// function. Calls whose nodes fit different rules get copies of the function. `main`: the name of
// the graph's main function, whose loose nodes have functions of their own. Adds what the rules do
// to the model. Precondition: CheckPrecisionRules.
void ApplyPrecisionRules(const TrainingSettings& training, const std::string& main, Module* module);

// Returns "bf16; f32 in 24 of 60 operations: precision_of[0] (*norm*) 12, precision_of[1] (softmax)
// 12"; "" if the job has no rules. Each call counts with all its operations.
std::string PrecisionText(const LogicalPlan& plan);

// Returns a sentence with W0860 for each rule that decides about no operation.
std::vector<std::string> PrecisionRulesWithoutUse(const LogicalPlan& plan);

}  // namespace weir::compiler
