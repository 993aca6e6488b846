// Lists the positions of a shard's elements in the whole tensor, as contiguous runs. The runs serve
// to cut a shard out of a stored tensor and to put a shard into it.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "runtime/base/tensor_slice.h"

namespace weir::store {

// Calls run(local_element, global_element, count) for each longest contiguous run of `slice`, in
// local order; both positions are row-major. An empty slice has no runs.
template <typename F>
void ForEachRun(const TensorSlice& slice, F&& run) {
  int64_t total = slice.num_elements();
  if (total <= 0) return;
  // Axes from `inner` on are whole, so a run covers them and a part of axis inner - 1.
  int inner = static_cast<int>(slice.shape.size());
  int64_t count = 1, stride = 1;
  while (inner > 0 && slice.shape[inner - 1] == slice.global_shape[inner - 1]) {
    stride *= slice.global_shape[--inner];
  }
  count = stride;
  if (inner > 0) count *= slice.shape[inner - 1];
  for (int64_t local = 0; local < total; local += count) {
    // Finds the coordinates of `local`, from the last axis that a run does not cover.
    int64_t rest = local / stride;
    int64_t global = 0, step = stride;
    for (int axis = inner - 1; axis >= 0; --axis) {
      global += (slice.offset[axis] + rest % slice.shape[axis]) * step;
      rest /= slice.shape[axis];
      step *= slice.global_shape[axis];
    }
    run(local, global, count);
  }
}

}  // namespace weir::store
