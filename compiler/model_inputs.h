// What the inputs of a job's model ask of its data: types, ranges, and whether they are read at
// all. For those who open data; the compiler itself writes the same into the plan. Thread rule:
// pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/ir.h"
#include "proto/job.pb.h"

namespace weir::compiler {

struct ModelInput {
  std::string name;
  TensorType type;  // of a whole step, all micro-batches together
  InputUse use;
};

// In the order of `main`. kInvalidArgument: what is wrong with the graph, as CompileJob says it.
absl::StatusOr<std::vector<ModelInput>> ModelInputsOf(const Job& job, PlanMode mode);

}  // namespace weir::compiler
