// Replaces what ONNX spells out in many operations and Weir has as one: attention, norms, GELU,
// biases; joins transposes and reshapes; removes what no output reads. The results stay the same up
// to rounding. Thread rule: pure functions.
#pragma once

#include <vector>

#include "tools/onnx/weir_graph.h"

namespace weir::onnx {

// Rewrites the graph and the values of its outputs (-1: an output that the graph does not compute).
void Simplify(WeirGraph* graph, const std::vector<ValueId*>& outputs);

}  // namespace weir::onnx
