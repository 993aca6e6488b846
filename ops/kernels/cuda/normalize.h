// reduce_variance, normalize and their gradients, on a GPU. The axes that mean and variance lack
// are the reduced ones.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/axis_walk.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// One number of either real type per element of the tensor without the reduced axes; `data` may be
// null where a statistic is optional.
struct Statistic {
  DType dtype = DType::kF32;
  const void* data = nullptr;
};

// The tensor x and what all four launches know of it. If x is empty, sums over it are 0.
struct NormalizeShape {
  DType dtype = DType::kF32;  // of x and of operands like it
  bool empty = false;
  AxisWalk walk;    // of x
  float count = 1;  // elements of the whole tensor per statistic
  float epsilon = 0;
  float* partials = nullptr;  // NormalizePartials floats for as many sums
};
// Returns the floats of workspace that `num_sums` sums per statistic take.
int64_t NormalizePartials(const NormalizeShape& shape, int num_sums);

// variance = mean of (x - mean)^2.
struct VarianceWork {
  NormalizeShape shape;
  const void* x = nullptr;
  Statistic mean;
  float* variance = nullptr;
};
void LaunchVariance(const VarianceWork& work, device::CudaStream stream);

// dx = 2 / count (x - mean) dvariance, and dmean = -sum of dx.
struct VarianceGradWork {
  NormalizeShape shape;
  const void* x = nullptr;
  Statistic mean, dvariance;
  void* dx = nullptr;
  float* dmean = nullptr;
};
void LaunchVarianceGrad(const VarianceGradWork& work, device::CudaStream stream);

// y = (x - mean) / sqrt(variance + epsilon) gamma + beta.
struct NormalizeWork {
  NormalizeShape shape;
  const void* x = nullptr;
  Statistic mean, variance, gamma, beta;
  void* y = nullptr;
};
void LaunchNormalize(const NormalizeWork& work, device::CudaStream stream);

struct NormalizeGradWork {
  NormalizeShape shape;
  const void* x = nullptr;
  Statistic mean, variance, gamma;
  const void* dy = nullptr;
  void* dx = nullptr;
  float* dmean = nullptr;
  float* dvariance = nullptr;
  float* dgamma = nullptr;
  float* dbeta = nullptr;
};
void LaunchNormalizeGrad(const NormalizeGradWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
