// Finds the layers of a graph: stretches of nodes that follow one another, do the same, and hand
// one value on. Layers become calls of one function, and a pipeline is cut between calls.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "tools/onnx/weir_graph.h"

namespace weir::onnx {

// Round r has the nodes from `first` + r * `period` on, `period` of them.
struct Layers {
  int first = 0, period = 0, rounds = 0;
  ValueId carried = -1;          // that the first round reads
  std::vector<ValueId> results;  // that each round hands on
  std::vector<ValueId> shared;   // that every round reads: inputs, parameters, earlier results
  std::vector<std::vector<int>> parameters;  // by round: those that no other node reads
};

// Returns the layers that hold most nodes; nothing if no stretch of nodes occurs twice in a row.
// `outputs` are values that stay outputs of the graph. Graphs of more than kLayerNodesMax nodes are
// not looked at.
inline constexpr int kLayerNodesMax = 20'000;
std::optional<Layers> FindLayers(const WeirGraph& graph, const std::vector<ValueId>& outputs);

}  // namespace weir::onnx
