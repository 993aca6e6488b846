// The demands that the inputs of a job's model make on its data: types, ranges, and whether a plan
// reads the input at all. Code that opens data uses this file. The compiler writes the same demands
// into the plan. Thread rule: pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/logical_plan.h"
#include "proto/job.pb.h"

namespace weir::compiler {

struct ModelInput {
  std::string name;
  sbp::TensorType type;  // of a whole step, all micro-batches together
  InputUse use;
};

// Returns the inputs in the order of `main`. kInvalidArgument: the graph is wrong, with the error
// of CompileJob.
absl::StatusOr<std::vector<ModelInput>> ModelInputsOf(const proto::Job& job, PlanMode mode);

}  // namespace weir::compiler
