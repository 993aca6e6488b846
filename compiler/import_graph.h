// From the graph of a job to the compiler's model: types parsed and inferred, schemas
// checked, calls of calls flattened, the loose nodes of `main` gathered into functions
// between its calls ("main.0", "main.1"). Everything wrong with a graph is found
// here (W04xx, W09xx), with function, node, expectation, finding and the nearest legal choice.
// Thread rule: pure function.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/ir.h"

namespace weir::compiler {

// The dimension table of a graph, checked.
absl::StatusOr<std::map<std::string, TensorDim>> ImportDimTable(const Job& job);

// The same for one micro-batch: the dimension of the samples (batch_dim.h) divided by the
// micro-batches.
absl::StatusOr<std::map<std::string, TensorDim>> ImportDims(const Job& job);

absl::StatusOr<Module> ImportGraph(const Job& job, const std::map<std::string, TensorDim>& dims,
                                   PlanMode mode);

}  // namespace weir::compiler
