// The class of the product that a kernel call computes, from its operands on one device. Calls of
// other ops, and calls whose operands do not fit, have none. Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "runtime/base/attributes.h"
#include "runtime/base/product.h"
#include "runtime/base/tensor_slice.h"

namespace weir::ops {

// Absent operands are null. The ops are matmul, matmul_grad_w and batched_matmul; the class of a
// batched product is that of one product of the batch.
std::optional<ProductClass> ProductClassOf(const std::string& op, const Attributes& attrs,
                                           absl::Span<const TensorSlice* const> inputs,
                                           absl::Span<const TensorSlice* const> outputs);

}  // namespace weir::ops
