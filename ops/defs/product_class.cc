#include "ops/defs/product_class.h"

#include <algorithm>

namespace weir::ops {
namespace {

int64_t LeadingElements(const TensorSlice& x, size_t trailing) {
  int64_t n = 1;
  for (size_t d = 0; d + trailing < x.shape.size(); ++d) n *= x.shape[d];
  return n;
}

// Returns the size of the axis that is `i`-th from the end, from 1.
int64_t SizeFromEnd(const TensorSlice& x, size_t i) { return x.shape[x.shape.size() - i]; }

}  // namespace

std::optional<ProductClass> ProductClassOf(const std::string& op, const Attributes& attrs,
                                           absl::Span<const TensorSlice* const> inputs,
                                           absl::Span<const TensorSlice* const> outputs) {
  const bool is_batched = op == "batched_matmul";
  if (!is_batched && op != "matmul" && op != "matmul_grad_w") return std::nullopt;
  const size_t rank_min = is_batched ? 2 : 1;
  if (inputs.size() < 2 || outputs.empty()) return std::nullopt;
  for (const TensorSlice* operand : {inputs[0], inputs[1], outputs[0]}) {
    if (operand == nullptr || operand->shape.size() < rank_min) return std::nullopt;
  }
  const TensorSlice &first = *inputs[0], &result = *outputs[0];
  ProductClass product;
  product.operands = first.dtype;
  product.result = result.dtype;
  product.n = SizeFromEnd(result, 1);
  if (op == "matmul") {
    product.m = LeadingElements(first, 1);
    product.k = SizeFromEnd(first, 1);
    product.b_transposed = attrs.Bool("transpose_w");
  } else if (op == "matmul_grad_w") {
    product.m = LeadingElements(result, 1);
    product.k = LeadingElements(first, 1);
    product.a_transposed = true;
  } else {
    product.a_transposed = attrs.Bool("transpose_a");
    product.b_transposed = attrs.Bool("transpose_b");
    product.m = SizeFromEnd(result, 2);
    product.k = SizeFromEnd(first, product.a_transposed ? 2 : 1);
  }
  return product;
}

}  // namespace weir::ops
