// conv, conv_transpose and conv_grad_w on a GPU, as products of matrices whose elements are read
// through the windows. Sums are in f32 and in a fixed order.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// WindowAxis of ops/kernels/shape/window_shape.h.
struct ConvAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, padding = 0, dilation = 1;
};

// The sizes of ConvShape (ops/kernels/shape/conv_shape.h): windows over the wide side
// [images, groups in, ...] give the narrow side [images, groups out, ...]. The weight is
// [groups out, in, ...].
struct ConvSizes {
  int64_t images = 0, groups = 1, in = 0, out = 0;
  ConvAxis axes[3];  // dimensions that the operands lack have size 1
  DType dtype = DType::kF32;
};

struct ConvWork {
  ConvSizes sizes;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;  // a number for each channel of y; may be null
  DType bias_dtype = DType::kF32;
  void* y = nullptr;
};

// x is the wide side, and y the narrow one.
void LaunchConv(const ConvWork& work, device::CudaStream stream);
// x is the narrow side, and y the wide one.
void LaunchConvTranspose(const ConvWork& work, device::CudaStream stream);

struct ConvGradWeightWork {
  ConvSizes sizes;
  const void* x = nullptr;   // wide
  const void* dy = nullptr;  // narrow
  void* dw = nullptr;
  DType dw_dtype = DType::kF32;
  // The positions of the narrow side are cut into parts with sums of their own, which are then
  // added in order.
  int64_t parts = 1;
  float* sums = nullptr;  // workspace, [parts, elements of dw]
};

void LaunchConvGradWeight(const ConvGradWeightWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
