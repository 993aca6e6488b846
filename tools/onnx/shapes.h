// The arithmetic of shapes that folding and translation share: broadcasting, and the axes that
// attributes or operands of a node name. Every function takes the translation whose failure it may
// set. Thread rule: pure functions, but for that failure.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/onnx/translation.h"

namespace weir::onnx {

// Returns the shape to which both shapes repeat.
std::vector<int64_t> Broadcast(Translation& t, const std::vector<int64_t>& a,
                               const std::vector<int64_t>& b);

// Returns the distance between neighbours along each dimension, in elements.
std::vector<int64_t> Strides(const std::vector<int64_t>& shape);

// A BroadcastIndex maps a place in a tensor of shape `whole` to the place in a tensor of shape
// `part` that repeats to `whole`.
class BroadcastIndex {
 public:
  BroadcastIndex(const std::vector<int64_t>& part, const std::vector<int64_t>& whole);
  int64_t operator()(int64_t place) const;

 private:
  std::vector<int64_t> whole_, whole_strides_, part_strides_;
  bool same_ = false;
};

// Returns attribute perm of Transpose.
std::vector<int64_t> PermutationOf(Translation& t, int rank);

// Returns the shape that Reshape, Flatten, Squeeze or Unsqueeze gives a tensor of `shape`.
std::vector<int64_t> ReshapedShape(Translation& t, const std::vector<int64_t>& shape);

// Returns for each axis the places that Slice takes.
std::vector<std::vector<int64_t>> SliceIndices(Translation& t, const std::vector<int64_t>& shape);

struct ReducedAxes {
  std::vector<int64_t> axes;
  bool keep = true;   // sizes of 1 stay
  bool none = false;  // nothing is reduced
};
// Returns the axes of a reduction, which are an attribute or operand 1.
ReducedAxes AxesOfReduction(Translation& t, int rank);

}  // namespace weir::onnx
