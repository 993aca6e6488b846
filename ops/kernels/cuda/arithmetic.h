// scale, cast, step_mean and accumulate on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// y = x * factor. Both are f32 or both are bf16; y may be x.
struct ScaleWork {
  DType dtype = DType::kF32;
  float factor = 1;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t count = 0;
};

// y = x as another type. Real numbers lose their fraction on the way to i32; what i32 does not hold
// becomes the nearest number that i32 holds, and NaN becomes 0. A bool is whether x differs from 0.
// Equal types are a copy; then y may be x.
struct CastWork {
  DType from = DType::kF32, to = DType::kF32;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t count = 0;
};

// sum += g. The sum is f32, and g is real.
struct AccumulateWork {
  DType dtype = DType::kF32;  // of g
  const void* g = nullptr;
  float* sum = nullptr;
  int64_t count = 0;
};

// Casts, or additions to sums, of several pairs of tensors of one pair of types. The types are f32
// and bf16.
struct ManyWork {
  static constexpr int kTensorsMax = 32;
  struct Tensor {
    const void* x;
    void* y;
    int64_t count;
    int64_t first_block;  // of the launch, which sets it
  };
  DType from = DType::kF32, to = DType::kF32;
  bool adds = false;  // y += x, where y is f32; else y = x
  int num_tensors = 0;
  Tensor tensors[kTensorsMax];
};

void LaunchScale(const ScaleWork& work, device::CudaStream stream);
void LaunchCast(const CastWork& work, device::CudaStream stream);
void LaunchAccumulate(const AccumulateWork& work, device::CudaStream stream);
void LaunchMany(ManyWork work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
