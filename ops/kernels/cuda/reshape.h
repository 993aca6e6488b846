// Ops that only move elements, on a GPU: reshape, slice, pad, concat, transpose. Elements are
// opaque bytes, so every type is allowed.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// Copies `bytes` from x to y; both are aligned to 16 bytes.
struct CopyWork {
  const void* x = nullptr;
  void* y = nullptr;
  int64_t bytes = 0;
};

// Writes the columns [begin, end) of each row of y. They consist of parts, one after another, each
// from the row of its operand with the same number. Offsets count bytes.
struct RowsWork {
  static constexpr int kPartsMax = 32;

  struct Part {
    int64_t to = 0;              // in the row of y
    const void* from = nullptr;  // of row 0; null: the part is zeros
    int64_t row_bytes = 0;       // of the operand
  };

  int64_t num_rows = 0, row_bytes = 0;  // of y
  int64_t begin = 0, end = 0;
  int num_parts = 0;  // in the order of `to`; each ends where the next one begins
  Part parts[kPartsMax];
  // Divides all offsets, sizes and addresses of the work: 1, 2, 4, 8 or 16.
  int unit = 1;
  void* y = nullptr;
};

// y has the axes of x in another order. Sizes and strides count units of `unit` bytes (1, 2, 4, 8
// or 16); axes are those of y, from the outermost.
struct TransposeWork {
  static constexpr int kAxesMax = 16;  // of a tensor (runtime/base/plan_limits.h)

  int unit = 4;
  int num_axes = 1;
  int64_t sizes[kAxesMax] = {};
  int64_t strides[kAxesMax] = {};      // in x
  int64_t out_strides[kAxesMax] = {};  // in y
  int fast = 0;                        // the axis whose stride in x is 1
  const void* x = nullptr;
  void* y = nullptr;
};

void LaunchCopy(const CopyWork& work, device::CudaStream stream);
void LaunchRows(const RowsWork& work, device::CudaStream stream);
// Precondition: if the last axis is not `fast`, unit is at most 4.
void LaunchTranspose(const TransposeWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
