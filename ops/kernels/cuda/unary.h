// Functions of one element, and their gradients, over tensors on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/shape/unary_function.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// y = function(x), or dx = dy * function'(...), where x is what the gradient op reads.
struct UnaryWork {
  Unary function = Unary::kNone;
  UnaryConstants constants;
  DType dtype = DType::kF32;  // real, of all operands
  const void* x = nullptr;
  const void* dy = nullptr;  // of a gradient
  void* y = nullptr;         // dx of a gradient
  int64_t count = 0;         // elements of each operand
};

void LaunchUnary(const UnaryWork& work, device::CudaStream stream);
// Precondition: the function has a gradient op.
void LaunchUnaryGrad(const UnaryWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
