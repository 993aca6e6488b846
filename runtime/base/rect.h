// A Rect is a rectangle of a tensor. Layouts cut tensors into rectangles, and transfers move
// rectangles.
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>

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

}  // namespace weir
