// layer_norm and rms_norm over the last axis, and their gradients, on a GPU.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

enum class Norm : uint8_t { kLayer, kRms };

// n numbers of either real type; `data` may be null.
struct NormParameter {
  DType dtype = DType::kF32;
  const void* data = nullptr;
};

// y = (x - mean) rstd gamma + beta per row. beta, mean and rstd may be null; rms_norm has a mean of
// 0. With an addend, which is like x, the norm is that of x + addend as stored in `sum`.
struct NormWork {
  Norm norm = Norm::kLayer;
  DType dtype = DType::kF32;  // of x and y
  int64_t rows = 0, n = 0;
  float epsilon = 0;
  const void* x = nullptr;
  NormParameter gamma, beta;
  void* y = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
  const void* addend = nullptr;  // null: none
  void* sum = nullptr;           // of x and the addend; may be one of them
};
void LaunchNorm(const NormWork& work, device::CudaStream stream);

// dx per row, and the sums over rows for dgamma and dbeta. mean is null for rms_norm; dbeta may be
// null.
struct NormGradWork {
  Norm norm = Norm::kLayer;
  DType dtype = DType::kF32;  // of x, dy and dx
  int64_t rows = 0, n = 0;
  const void* x = nullptr;
  NormParameter gamma;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* dy = nullptr;
  const void* addend = nullptr;  // like dx, and added to it; null: none
  void* dx = nullptr;            // may be x, dy or addend
  DType dgamma_dtype = DType::kF32, dbeta_dtype = DType::kF32;
  void* dgamma = nullptr;
  void* dbeta = nullptr;
  float* partials = nullptr;  // NormGradPartials floats
};
// Returns the floats of workspace that the sums over rows take.
int64_t NormGradPartials(DType dtype, int64_t rows, int64_t n);
void LaunchNormGrad(const NormGradWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
