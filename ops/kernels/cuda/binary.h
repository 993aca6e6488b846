// add, sub, mul, div, maximum and minimum on a GPU, with broadcasting.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/broadcast.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

enum class Binary : uint8_t { kAdd, kSub, kMul, kDiv, kMaximum, kMinimum };

struct BinaryWork {
  Binary function = Binary::kAdd;
  DType dtype = DType::kF32;  // real, of all operands
  BroadcastLayout layout;     // of y, with the operands a and b
  const void* a = nullptr;
  const void* b = nullptr;
  void* y = nullptr;
};

void LaunchBinary(const BinaryWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
