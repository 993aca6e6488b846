#include "runtime/base/rect.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

Rect RectOf(const TensorSlice& slice) {
  Rect rect{slice.offset, slice.offset};
  for (size_t d = 0; d < slice.shape.size(); ++d) rect.end[d] += slice.shape[d];
  return rect;
}

TensorSlice SliceOf(const TensorSlice& slice, const Rect& rect) {
  return {slice.dtype, rect.shape(), rect.begin, slice.global_shape};
}

std::vector<Rect> Subtract(const Rect& a, const Rect& b) {
  const Rect common = Intersect(a, b);
  if (common.volume() == 0) return a.volume() == 0 ? std::vector<Rect>() : std::vector<Rect>{a};
  std::vector<Rect> rest;
  Rect left = a;  // what is not cut yet: as `common` on the axes before
  for (size_t d = 0; d < a.begin.size(); ++d) {
    if (left.begin[d] < common.begin[d]) {
      rest.push_back(left);
      rest.back().end[d] = common.begin[d];
    }
    if (common.end[d] < left.end[d]) {
      rest.push_back(left);
      rest.back().begin[d] = common.end[d];
    }
    left.begin[d] = common.begin[d];
    left.end[d] = common.end[d];
  }
  return rest;
}

bool Covers(const TensorSlice& shard, const TensorSlice& part) {
  return part.dtype == shard.dtype && part.global_shape == shard.global_shape &&
         part.shape.size() == part.global_shape.size() &&
         part.offset.size() == part.global_shape.size() &&
         Intersect(RectOf(shard), RectOf(part)) == RectOf(part);
}

void CopyPart(const TensorSlice& part, const TensorSlice& from_shard, const char* from,
              const TensorSlice& to_shard, char* to) {
  if (part.num_elements() == 0) return;
  // The axes from `inner` on are whole in both shards, so each of their rows is one run of bytes.
  const size_t rank = part.shape.size();
  size_t inner = rank;
  while (inner > 0 && part.shape[inner - 1] == from_shard.shape[inner - 1] &&
         part.shape[inner - 1] == to_shard.shape[inner - 1])
    --inner;
  if (inner > 0) --inner;  // a range of this axis is one run, too
  int64_t run = SizeOf(part.dtype);
  for (size_t d = inner; d < rank; ++d) run *= part.shape[d];
  Shape at(inner, 0);  // in the part, of the axes before
  while (true) {
    int64_t from_at = 0, to_at = 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t place = part.offset[d] + (d < inner ? at[d] : 0);
      from_at = from_at * from_shard.shape[d] + place - from_shard.offset[d];
      to_at = to_at * to_shard.shape[d] + place - to_shard.offset[d];
    }
    std::memcpy(to + to_at * SizeOf(part.dtype), from + from_at * SizeOf(part.dtype),
                static_cast<size_t>(run));
    size_t d = inner;
    while (d > 0 && ++at[d - 1] == part.shape[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

}  // namespace weir
