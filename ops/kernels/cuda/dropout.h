// dropout on a GPU, with the bits of every other device.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "ops/kernels/shape/dropout_rule.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// y = x where the rule keeps an element, times the rule's factor, and 0 elsewhere. y may be x.
struct DropoutWork {
  static constexpr int kAxesMax = 16;  // of a tensor (runtime/base/plan_limits.h)

  DType dtype = DType::kF32;  // real
  DropoutRule rule;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t count = 0;
  // The numbers of the elements in the whole tensor: the first element's, and those of the others
  // by stretches (global_numbers.h).
  int64_t first = 0;
  int64_t stretch = 1;
  int num_outer = 0;
  int64_t outer_sizes[kAxesMax] = {};  // the fastest axis first
  int64_t outer_strides[kAxesMax] = {};
};

void LaunchDropout(const DropoutWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
