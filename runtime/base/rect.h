// A Rect is a rectangle of a tensor. Layouts cut tensors into rectangles, and transfers move
// rectangles.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/tensor_slice.h"

namespace weir {

// A Rect is [begin, end) per tensor axis.
struct Rect {
  Shape begin, end;
  int64_t volume() const;  // 0 if empty in any axis; 1 for rank 0
  Shape shape() const;
  friend bool operator==(const Rect&, const Rect&) = default;
};
Rect Intersect(const Rect& a, const Rect& b);
// Returns the rectangle of its tensor that a shard covers.
Rect RectOf(const TensorSlice& slice);
// Returns the part of `slice` that `rect`, a rectangle of the same tensor inside it, covers.
TensorSlice SliceOf(const TensorSlice& slice, const Rect& rect);
// Returns rectangles that do not overlap, are not empty, and together have what is in `a` and not
// in `b`.
std::vector<Rect> Subtract(const Rect& a, const Rect& b);
// Returns whether `part` is a part of `shard`: of the same tensor, and nowhere outside.
bool Covers(const TensorSlice& shard, const TensorSlice& part);
// Copies the elements of `part` from one shard to another. Both shards are row-major, and of the
// same tensor. Precondition: both cover `part`.
void CopyPart(const TensorSlice& part, const TensorSlice& from_shard, const char* from,
              const TensorSlice& to_shard, char* to);

}  // namespace weir
