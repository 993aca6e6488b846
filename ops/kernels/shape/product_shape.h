// The sizes of the products of matmul, its weight gradient and batched_matmul, read from the
// operands, which are checked. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ops/kernels/kernel.h"
#include "runtime/base/dtype.h"
#include "runtime/base/product.h"

namespace weir::kernels {

// c[batch, m, n] = a[batch, m, k] b[batch, k, n]; an operand may be stored transposed.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  DType operands = DType::kF32, result = DType::kF32;
  bool a_transposed = false, b_transposed = false;
  std::optional<DType> bias;                // of n elements
  bool keeps_pre = false;                   // output 1 gets the value before the activation
  ProductWay way = ProductWay::kAutomatic;  // on a CPU
  int left = 0;  // the input that is a: of a weight gradient, dy where w is transposed
};

// The results are the statuses of a SpecCheck where operands do not fit. The attribute `activation`
// of a matmul is the kernel's to read.
absl::StatusOr<ProductShape> ReadMatmul(const KernelSpec& spec);
absl::StatusOr<ProductShape> ReadMatmulGradWeight(const KernelSpec& spec);
absl::StatusOr<ProductShape> ReadBatchedMatmul(const KernelSpec& spec);

}  // namespace weir::kernels
