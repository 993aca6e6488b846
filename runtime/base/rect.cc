#include "runtime/base/rect.h"

#include <algorithm>

namespace weir {

int64_t Rect::volume() const {
  int64_t volume = 1;
  for (size_t i = 0; i < begin.size(); ++i) volume *= std::max<int64_t>(0, end[i] - begin[i]);
  return volume;
}

Shape Rect::shape() const {
  Shape shape(begin.size());
  for (size_t i = 0; i < begin.size(); ++i) shape[i] = std::max<int64_t>(0, end[i] - begin[i]);
  return shape;
}

Rect Intersect(const Rect& a, const Rect& b) {
  Rect rect = a;
  for (size_t i = 0; i < a.begin.size(); ++i) {
    rect.begin[i] = std::max(a.begin[i], b.begin[i]);
    rect.end[i] = std::max(rect.begin[i], std::min(a.end[i], b.end[i]));
  }
  return rect;
}

}  // namespace weir
