// constant on a GPU: a tensor of one value.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// The value loses its fraction in an integer; a bool is whether the value differs from 0.
struct ConstantWork {
  DType dtype = DType::kF32;
  float value = 0;
  void* y = nullptr;
  int64_t count = 0;
};

void LaunchConstant(const ConstantWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
