// A ProductFinish adds the bias to a matrix product on a GPU and applies the activation, where
// cuBLASLt's epilogues do not fit.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// The activations of a matmul. kGelu is the tanh form.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kGeluExact, kSilu };

struct ProductFinish {
  const void* product = nullptr;  // [rows, columns]; null: zeros
  const void* bias = nullptr;     // [columns]; null: none
  void* pre = nullptr;            // gets product + bias; may be `product`; null: not wanted
  void* y = nullptr;              // gets the activation of product + bias; may be `product`
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kF32;  // of product, pre and y
  DType bias_dtype = DType::kF32;
  Activation activation = Activation::kNone;
};

// The activation reads product + bias as stored, so that y has the same bits with and without pre.
void LaunchProductFinish(const ProductFinish& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
