// The kernels of masks on a GPU: comparisons, logical_and, logical_or, logical_xor, logical_not and
// where. An element of a mask is a byte, 0 or 1; every byte but 0 is read as true.
#pragma once

#include <cstdint>

#include "ops/kernels/cuda/broadcast.h"
#include "ops/kernels/cuda/cuda_mode.h"
#include "runtime/base/dtype.h"
#include "runtime/device/cuda/cuda_stream.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

enum class Relation : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

// y = a related to b, or to the number `value`.
struct CompareWork {
  Relation relation = Relation::kEqual;
  DType dtype = DType::kF32;  // of a and b
  double value = 0;           // if there is no b; rounded to f32 for real operands
  BroadcastLayout layout;     // of y, with the operands a and b
  const void* a = nullptr;
  const void* b = nullptr;  // null: there is none
  void* y = nullptr;
};

enum class Connective : uint8_t { kAnd, kOr, kXor, kNot };

// y = a joined with b.
struct LogicalWork {
  Connective connective = Connective::kAnd;
  BroadcastLayout layout;  // of y, with the operands a and b
  const void* a = nullptr;
  const void* b = nullptr;  // null for kNot
  void* y = nullptr;
};

// y = a where the condition is true, and b, or the number `value`, elsewhere.
struct WhereWork {
  DType dtype = DType::kF32;  // real, of a, b and y
  float value = 0;            // if there is no b
  BroadcastLayout layout;     // of y, with the operands condition, a and b
  const void* condition = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;  // null: there is none
  void* y = nullptr;
};

void LaunchCompare(const CompareWork& work, device::CudaStream stream);
void LaunchLogical(const LogicalWork& work, device::CudaStream stream);
void LaunchWhere(const WhereWork& work, device::CudaStream stream);

}  // namespace weir::kernels::WEIR_CUDA_SPACE
