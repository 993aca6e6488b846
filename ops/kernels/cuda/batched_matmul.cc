// batched_matmul on a GPU.
#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/product.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class BatchedMatmulKernel final : public CudaKernel {
 public:
  explicit BatchedMatmulKernel(const ProductSpec& spec) : product_(spec) {}
  int64_t workspace_bytes() const override { return product_.workspace_bytes(); }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ProductOperands operands;
    operands.a = args.inputs[0];
    operands.b = args.inputs[1];
    operands.c = args.outputs[0];
    return product_.Enqueue(operands, workspace, stream);
  }

 private:
  Product product_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeBatchedMatmul(const KernelSpec& spec) {
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
  const bool ta = spec.attrs.Bool("transpose_a"), tb = spec.attrs.Bool("transpose_b");
  ProductSpec product;
  product.m = SizeFromEnd(check.out(0), 2);
  product.n = SizeFromEnd(check.out(0), 1);
  product.k = SizeFromEnd(check.in(0), ta ? 2 : 1);
  product.batch = LeadingElements(check.out(0), 2);
  product.operands = product.result = check.in(0).dtype;
  product.a = ta ? Layout::kTransposed : Layout::kPlain;
  product.b = tb ? Layout::kTransposed : Layout::kPlain;
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
  if (!check.ok()) return check.status();
  return std::make_unique<BatchedMatmulKernel>(product);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "batched_matmul", MakeBatchedMatmul);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
