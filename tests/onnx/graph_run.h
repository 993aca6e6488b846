// Runs an imported graph with the kernels of the CPU, node by node, and holds each node to the law
// of layouts. Thread rule: one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/testing/host_tensor.h"
#include "tools/onnx/import_model.h"

namespace weir::onnx {

// How many devices each node of a run is split over.
enum class Devices : uint8_t {
  kOne,
  kAlsoTwoAndFour,  // one, and every legal layout on 2, 4 and 2x2 devices
};

// Returns all values of the graph. `inputs` are by name. The result is an error if a kernel refuses
// its operands, or if a split node gives another result than the whole one.
absl::StatusOr<std::vector<ops::HostTensor>> RunGraph(const WeirGraph& graph,
                                                      const std::map<std::string, Tensor>& inputs,
                                                      Devices devices);

// Returns "" if the elements of `found` are those of `expected` within 1e-7 + 1e-3 |expected|, the
// tolerance of ONNX's own tests; otherwise the first difference.
std::string DifferenceFrom(const Tensor& expected, const ops::HostTensor& found);

}  // namespace weir::onnx
