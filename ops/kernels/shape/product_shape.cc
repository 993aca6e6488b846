#include "ops/kernels/shape/product_shape.h"

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

ProductWay ReadWay(const KernelSpec& spec, SpecCheck* check) {
  const std::optional<ProductWay> way =
      ProductWayFromName(spec.attrs.Str(kProductWayAttr, Name(ProductWay::kAutomatic)));
  check->Expect(way.has_value(), "attribute way to be " + ProductWayNames());
  return way.value_or(ProductWay::kAutomatic);
}

}  // namespace

absl::StatusOr<ProductShape> ReadMatmul(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 3)
      .Outputs(1, 2)
      .Real(check.in(0), "x")
      .MinRank(check.in(0), 1, "x")
      .MinRank(check.out(0), 1, "y");
  check.SameType(check.in(0), check.in(1), "x and w")
      .SameType(check.in(0), check.out(0), "x and y");
  ProductShape product;
  product.m = LeadingElements(check.in(0), 1);
  product.k = SizeFromEnd(check.in(0), 1);
  product.n = SizeFromEnd(check.out(0), 1);
  product.operands = product.result = check.in(0).dtype;
  product.b_transposed = spec.attrs.Bool("transpose_w");
  check.Expect(check.in(1).shape == (product.b_transposed ? Shape{product.n, product.k}
                                                          : Shape{product.k, product.n}),
               product.b_transposed ? "w[n, k]" : "w[k, n]");
  check.Expect(LeadingShape(check.in(0), 1) == LeadingShape(check.out(0), 1),
               "y with the leading axes of x");
  if (check.HasIn(2)) {
    check.Real(check.in(2), "bias").Expect(check.in(2).shape == Shape{product.n}, "bias[n]");
    product.bias = check.in(2).dtype;
  }
  product.keeps_pre = check.HasOut(1);
  if (product.keeps_pre)
    check.SameType(check.out(0), check.out(1), "y and pre")
        .SameShape(check.out(0), check.out(1), "y and pre");
  product.way = ReadWay(spec, &check);
  if (!check.ok()) return check.status();
  return product;
}

// dw = x^T dy, or dy^T x where the weight is stored transposed.
absl::StatusOr<ProductShape> ReadMatmulGradWeight(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.in(1), "x and dy");
  check.Real(check.out(0), "dw").MinRank(check.in(0), 1, "x").MinRank(check.in(1), 1, "dy");
  check.Expect(LeadingShape(check.in(0), 1) == LeadingShape(check.in(1), 1),
               "dy with the leading axes of x");
  ProductShape product;
  product.left = spec.attrs.Bool("transpose_w") ? 1 : 0;
  product.m = SizeFromEnd(check.in(product.left), 1);
  product.n = SizeFromEnd(check.in(1 - product.left), 1);
  product.k = LeadingElements(check.in(0), 1);
  product.operands = check.in(0).dtype;
  product.result = check.out(0).dtype;
  product.a_transposed = true;
  check.Expect(check.out(0).shape == Shape{product.m, product.n},
               product.left == 0 ? "dw[k, n]" : "dw[n, k]");
  product.way = ReadWay(spec, &check);
  if (!check.ok()) return check.status();
  return product;
}

absl::StatusOr<ProductShape> ReadBatchedMatmul(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2)
      .Outputs(1, 1)
      .Real(check.in(0), "a")
      .SameType(check.in(0), check.in(1), "a and b");
  check.SameType(check.in(0), check.out(0), "a and y")
      .MinRank(check.in(0), 2, "a")
      .MinRank(check.in(1), 2, "b")
      .MinRank(check.out(0), 2, "y");
  if (!check.ok()) return check.status();
  ProductShape product;
  const bool ta = product.a_transposed = spec.attrs.Bool("transpose_a");
  const bool tb = product.b_transposed = spec.attrs.Bool("transpose_b");
  product.m = SizeFromEnd(check.out(0), 2);
  product.n = SizeFromEnd(check.out(0), 1);
  product.k = SizeFromEnd(check.in(0), ta ? 2 : 1);
  product.batch = LeadingElements(check.out(0), 2);
  product.operands = product.result = check.in(0).dtype;
  const auto matrix = [](bool transposed, int64_t rows, int64_t columns) {
    return transposed ? Shape{columns, rows} : Shape{rows, columns};
  };
  const auto ends_in = [](const TensorSlice& operand, const Shape& last) {
    return Shape{SizeFromEnd(operand, 2), SizeFromEnd(operand, 1)} == last;
  };
  check
      .Expect(ends_in(check.in(0), matrix(ta, product.m, product.k)),
              ta ? "a[..., k, m]" : "a[..., m, k]")
      .Expect(ends_in(check.in(1), matrix(tb, product.k, product.n)),
              tb ? "b[..., n, k]" : "b[..., k, n]")
      .Expect(LeadingShape(check.in(0), 2) == LeadingShape(check.in(1), 2) &&
                  LeadingShape(check.in(0), 2) == LeadingShape(check.out(0), 2),
              "a, b and y with equal leading axes");
  product.way = ReadWay(spec, &check);
  if (!check.ok()) return check.status();
  return product;
}

}  // namespace weir::kernels
