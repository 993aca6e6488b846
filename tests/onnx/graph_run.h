// Runs an imported graph with the kernels of the CPU, node by node, and holds each node to the law
// of layouts. Thread rule: one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/testing/host_tensor.h"
#include "tools/onnx/import_model.h"

namespace weir::onnx {

// The operations whose legal layouts a run has tried: operation, attributes and types of operands.
using CoveredOperations = std::set<std::string>;

// Returns all values of the graph. `inputs` are by name. Each node runs whole, and in every legal
// layout on 2, 4 and 2x2 devices unless `covered` has its operation; RunGraph adds the operation
// then. Null: each node runs whole alone. The result is an error if a kernel refuses its operands,
// or if a split node gives another result than the whole one.
absl::StatusOr<std::vector<ops::HostTensor>> RunGraph(const WeirGraph& graph,
                                                      const std::map<std::string, Tensor>& inputs,
                                                      CoveredOperations* covered);

// Returns "" if the elements of `found` are those of `expected` within 1e-7 + 1e-3 |expected|, the
// tolerance of ONNX's own tests; otherwise the first difference.
std::string DifferenceFrom(const Tensor& expected, const ops::HostTensor& found);

}  // namespace weir::onnx
