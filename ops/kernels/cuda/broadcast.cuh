// Kernels read operands that repeat along axes of the result through this header.
#pragma once

#include "ops/kernels/cuda/broadcast.h"
#include "ops/kernels/cuda/elementwise.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {

// A PackPlace says of each operand of one pack of the result which element is the first, and
// whether the element serves the whole pack.
template <int kOperands>
struct PackPlace {
  int64_t first[kOperands];
  bool repeats[kOperands];
};

template <typename Index, int kOperands>
__device__ inline void LocateIn(const BroadcastLayout& layout, int64_t at,
                                PackPlace<kOperands>* place) {
  Index rest = static_cast<Index>(at);
  for (int axis = layout.num_axes - 1; axis >= 0; --axis) {
    const Index size = static_cast<Index>(layout.sizes[axis]);
    const Index coordinate = axis > 0 ? rest % size : rest;
    rest = axis > 0 ? rest / size : 0;
    for (int i = 0; i < kOperands; ++i)
      place->first[i] += static_cast<int64_t>(coordinate) * layout.strides[i][axis];
  }
}

// Finds the operands of the pack that begins with element `at` of the result. The pack lies within
// one run along the last axis.
template <int kOperands>
__device__ inline PackPlace<kOperands> Locate(const BroadcastLayout& layout, int64_t at) {
  PackPlace<kOperands> place;
  for (int i = 0; i < kOperands; ++i) {
    place.first[i] = 0;
    place.repeats[i] = layout.strides[i][layout.num_axes - 1] == 0;
  }
  // Division of 32 bits is several times faster.
  if (layout.count <= 0xffffffffll) {
    LocateIn<uint32_t>(layout, at, &place);
  } else {
    LocateIn<uint64_t>(layout, at, &place);
  }
  return place;
}

// Loads the operand's pack. Elements for which the result has no place, `count` being those that
// the result has from the pack's first element on, are zero.
template <int N, typename T>
__device__ inline Pack<T, N> LoadOperand(const T* from, int64_t first, bool repeats,
                                         int64_t count) {
  if (!repeats) return LoadPack<N>(from + first, 0, count);
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) pack.at[i] = from[first];
  return pack;
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
