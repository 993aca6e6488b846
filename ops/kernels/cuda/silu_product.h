// h = silu(x) b over tensors of one shape on a GPU, as SwiGLU has it.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

struct SiluProductWork {
  DType dtype = DType::kF32;  // real, of all operands
  const void* x = nullptr;
  const void* b = nullptr;
  void* y = nullptr;  // gets silu(x), and may be x; null: not wanted
  void* h = nullptr;  // may be x or b, if y is not
  int64_t count = 0;  // elements of each operand
};

// The product reads silu(x) as stored, so that h has the bits of two kernels.
void LaunchSiluProduct(const SiluProductWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
