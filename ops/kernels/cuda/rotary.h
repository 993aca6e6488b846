// rotary on a GPU: turns the pairs (i, i + d/2) of each head by position * base^(-2i/d).
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// x and y are [batch, sequence, num_heads, 2 * half]; y may be x.
struct RotaryWork {
  DType dtype = DType::kF32;  // real
  double base = 10000;
  double direction = 1;  // -1 turns back
  int64_t batch = 0, sequence = 0, num_heads = 0, half = 0;
  int64_t first_position = 0;          // of the shard, if `positions` is null
  const int32_t* positions = nullptr;  // [batch, sequence]; null: those from first_position on
  const void* x = nullptr;
  void* y = nullptr;
  // The launch's own memory: the cosines, then the sines, of [rows][half].
  float* table = nullptr;

  // `sequence`, or batch * sequence with `positions`.
  int64_t rows = 0;

  int64_t table_bytes() const { return 2 * rows * half * int64_t{sizeof(float)}; }
};

void LaunchRotary(const RotaryWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
