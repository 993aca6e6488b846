// Lists the elements that two boxes of one tensor share, as runs that are contiguous in both. The
// runs serve to copy between shards under different layouts.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/base/tensor_slice.h"

namespace weir::store {

// A box of elements: those from `offset` on, `shape` many along each axis. Both must outlive it.
struct BoxView {
  const Shape& offset;
  const Shape& shape;
};

// Calls run(position_in_a, position_in_b, count) for runs of the elements that both boxes have;
// positions are row-major in the box. Precondition: the boxes have the same number of axes.
template <typename F>
void ForEachSharedRun(const BoxView& a, const BoxView& b, F&& run) {
  const size_t axes = a.shape.size();
  Shape begin(axes), size(axes);
  int64_t total = 1;
  for (size_t i = 0; i < axes; ++i) {
    begin[i] = std::max(a.offset[i], b.offset[i]);
    size[i] = std::min(a.offset[i] + a.shape[i], b.offset[i] + b.shape[i]) - begin[i];
    if (size[i] <= 0) return;
    total *= size[i];
  }
  // Axes from `inner` on are whole in both boxes, so a run covers them and a part of axis inner
  // - 1.
  size_t inner = axes;
  int64_t rest = 1;
  while (inner > 0 && size[inner - 1] == a.shape[inner - 1] &&
         size[inner - 1] == b.shape[inner - 1])
    rest *= size[--inner];
  const int64_t count = rest * (inner > 0 ? size[inner - 1] : 1);
  for (int64_t done = 0; done < total; done += count) {
    int64_t index = done / rest, in_a = 0, in_b = 0, step_a = rest, step_b = rest;
    for (size_t i = inner; i-- > 0;) {
      const int64_t at = begin[i] + index % size[i];
      in_a += (at - a.offset[i]) * step_a;
      in_b += (at - b.offset[i]) * step_b;
      index /= size[i];
      step_a *= a.shape[i];
      step_b *= b.shape[i];
    }
    run(in_a, in_b, count);
  }
}

// A run of elements that lie side by side in a box and in the whole tensor.
struct ShardRun {
  int64_t first = 0;  // in the box
  int64_t count = 0;
};
// Returns the run that begins with the element at `position` of the tensor, row-major; nullopt: the
// box does not have the element.
inline std::optional<ShardRun> FindRun(const Shape& tensor, const Shape& offset, const Shape& shape,
                                       int64_t position) {
  int64_t in_box = 0, step = 1, whole = 1, count = 1;
  bool is_open = true;  // the run goes on along the next axis
  for (size_t i = tensor.size(); i-- > 0;) {
    const int64_t at = position % tensor[i] - offset[i];
    position /= tensor[i];
    if (at < 0 || at >= shape[i]) return std::nullopt;
    in_box += at * step;
    step *= shape[i];
    if (is_open) count = (shape[i] - at - 1) * whole + count;
    is_open = is_open && shape[i] == tensor[i];
    whole *= tensor[i];
  }
  return ShardRun{in_box, count};
}

}  // namespace weir::store
