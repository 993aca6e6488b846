// A TensorSlice is a dense row-major local shard with its position in its tensor. The compiler
// (shapes) and the kernels (offsets for randomness, causality, vocabulary shards) both use slices.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace weir {

using Shape = std::vector<int64_t>;

// Returns the product of the sizes; -1 if it overflows or a size is negative. A scalar has 1.
int64_t NumElements(const Shape& shape);

// "[2, 3]"
std::string ToText(const Shape& shape);

struct TensorSlice {
  DType dtype = DType::kF32;
  Shape shape;         // of the local shard
  Shape offset;        // of its first element in the tensor; same rank as shape
  Shape global_shape;  // of the whole tensor; same rank as shape

  static TensorSlice Whole(DType dtype, Shape shape);
  int64_t num_elements() const { return NumElements(shape); }
  int64_t bytes() const { return num_elements() * SizeOf(dtype); }
  bool is_whole() const { return shape == global_shape; }
  friend bool operator==(const TensorSlice&, const TensorSlice&) = default;
};

// Returns "f32[2, 3]" or "f32[2, 3] at [0, 3] of [2, 6]".
std::string ToText(const TensorSlice& slice);

}  // namespace weir
