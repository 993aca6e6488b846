// The sum of e^(x - max) over a row in one pass: what the threads have seen is scaled anew when a
// larger x comes (Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax").
// Included by .cu files only.
#pragma once

#include "ops/kernels/cuda/block_reduce.cuh"

namespace weir::kernels::WEIR_CUDA_SPACE {

// An ExpSum holds the maximum of the numbers so far, and the sum of e^(x - max). If all are -inf,
// the sum is 0; if one is NaN, both are NaN.
struct ExpSum {
  float max = -Infinity();
  float sum = 0;

  __device__ ExpSum() {}

  __device__ void Raise(float to) {
    const float larger = MaxOrNaN(max, to);
    if (larger != max) {
      sum *= expf(max - larger);
      max = larger;
    }
  }
  __device__ float Term(float x) const { return max == -Infinity() ? 0.0f : expf(x - max); }
  __device__ void Add(float x) {
    Raise(x);
    sum += Term(x);
  }
  template <typename T, int N>
  __device__ void Add(const Pack<T, N>& pack) {
    float largest = ToFloat(pack.at[0]);
    WEIR_UNROLL
    for (int i = 1; i < N; ++i) largest = MaxOrNaN(largest, ToFloat(pack.at[i]));
    Raise(largest);
    if (max == -Infinity()) return;
    WEIR_UNROLL
    for (int i = 0; i < N; ++i) sum += expf(ToFloat(pack.at[i]) - max);
  }
};

// Returns the ExpSum of all threads of a block. All of them must call; `scratch` is as that of
// BlockReduce.
__device__ inline ExpSum BlockExpSum(const ExpSum& of_thread, float* scratch) {
  ExpSum all;
  all.max = BlockMax(of_thread.max, scratch);
  const bool none = of_thread.max == -Infinity();
  all.sum = BlockSum(none ? 0.0f : of_thread.sum * expf(of_thread.max - all.max), scratch);
  return all;
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
