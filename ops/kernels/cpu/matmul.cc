// matmul (with bias and activation) and its weight gradient.
#include <cstring>
#include <optional>

#include "ops/kernels/cpu/gemm.h"
#include "ops/kernels/cpu/unary.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/spec_check.h"
#include "runtime/base/status.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The activation reads the product as stored, so that y has the same bits with and without `pre`.
class MatmulKernel final : public Kernel {
 public:
  MatmulKernel(std::unique_ptr<Gemm> gemm, Unary activation, const TensorSlice& y)
      : gemm_(std::move(gemm)),
        activation_(activation),
        dtype_(y.dtype),
        row_elements_(SizeFromEnd(y, 1)) {}

  int64_t workspace_bytes() const override { return gemm_->workspace_bytes(); }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    char* y = static_cast<char*>(args.outputs[0]);
    char* pre = args.outputs.size() > 1 ? static_cast<char*>(args.outputs[1]) : nullptr;
    const void* bias = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    char* product = pre ? pre : y;
    Gemm::Operands operands{args.inputs[0], args.inputs[1], bias, product, launch.workspace};
    gemm_->Run(launch.team, operands, [&](const Gemm::Block& block) {
      if (activation_ == Unary::kNone && !pre) return;
      for (int64_t row = block.row; row < block.row + block.num_rows; ++row) {
        int64_t at = (row * row_elements_ + block.column) * SizeOf(dtype_);
        ApplyUnary(activation_, dtype_, product + at, y + at, block.num_columns);
      }
    });
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Gemm> gemm_;
  const Unary activation_;
  const DType dtype_;
  const int64_t row_elements_;
};

KernelOr MakeMatmul(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 3)
      .Outputs(1, 2)
      .Real(check.in(0), "x")
      .MinRank(check.in(0), 1, "x")
      .MinRank(check.out(0), 1, "y");
  check.SameType(check.in(0), check.in(1), "x and w")
      .SameType(check.in(0), check.out(0), "x and y");
  const bool transposed = spec.attrs.Bool("transpose_w");
  GemmSpec gemm;
  gemm.m = LeadingElements(check.in(0), 1);
  gemm.k = SizeFromEnd(check.in(0), 1);
  gemm.n = SizeFromEnd(check.out(0), 1);
  gemm.operands = gemm.result = check.in(0).dtype;
  gemm.b = transposed ? Storage::kTransposed : Storage::kPlain;
  gemm.num_threads = spec.num_threads;
  check.Expect(check.in(1).shape == (transposed ? Shape{gemm.n, gemm.k} : Shape{gemm.k, gemm.n}),
               transposed ? "w[n, k]" : "w[k, n]");
  check.Expect(LeadingShape(check.in(0), 1) == LeadingShape(check.out(0), 1),
               "y with the leading axes of x");
  if (check.HasIn(2)) {
    check.Real(check.in(2), "bias").Expect(check.in(2).shape == Shape{gemm.n}, "bias[n]");
    gemm.bias = check.in(2).dtype;
  }
  if (check.HasOut(1))
    check.SameType(check.out(0), check.out(1), "y and pre")
        .SameShape(check.out(0), check.out(1), "y and pre");
  std::optional<Unary> activation = UnaryFromName(spec.attrs.Str("activation", "none"));
  check.Expect(activation.has_value(), "attribute activation to name a function of one element");
  if (!check.ok()) return check.status();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> made, Gemm::Create(gemm));
  return std::make_unique<MatmulKernel>(std::move(made), *activation, check.out(0));
}

// Computes dw = x^T dy, or dy^T x where the weight is stored transposed.
class MatmulGradWeightKernel final : public Kernel {
 public:
  MatmulGradWeightKernel(std::unique_ptr<Gemm> gemm, int left)
      : gemm_(std::move(gemm)), left_(left) {}
  int64_t workspace_bytes() const override { return gemm_->workspace_bytes(); }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    Gemm::Operands operands{args.inputs[left_], args.inputs[1 - left_], nullptr, args.outputs[0],
                            launch.workspace};
    gemm_->Run(launch.team, operands, [](const Gemm::Block&) {});
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Gemm> gemm_;
  const int left_;  // which input is transposed
};

KernelOr MakeMatmulGradWeight(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .SameType(check.in(0), check.in(1), "x and dy");
  check.Real(check.out(0), "dw").MinRank(check.in(0), 1, "x").MinRank(check.in(1), 1, "dy");
  check.Expect(LeadingShape(check.in(0), 1) == LeadingShape(check.in(1), 1),
               "dy with the leading axes of x");
  const int left = spec.attrs.Bool("transpose_w") ? 1 : 0;
  GemmSpec gemm;
  gemm.m = SizeFromEnd(check.in(left), 1);
  gemm.n = SizeFromEnd(check.in(1 - left), 1);
  gemm.k = LeadingElements(check.in(0), 1);
  gemm.operands = check.in(0).dtype;
  gemm.result = check.out(0).dtype;
  gemm.a = Storage::kTransposed;
  gemm.num_threads = spec.num_threads;
  check.Expect(check.out(0).shape == Shape{gemm.m, gemm.n}, left == 0 ? "dw[k, n]" : "dw[n, k]");
  if (!check.ok()) return check.status();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> made, Gemm::Create(gemm));
  return std::make_unique<MatmulGradWeightKernel>(std::move(made), left);
}

WEIR_REGISTER_KERNEL("cpu", "matmul", MakeMatmul);
WEIR_REGISTER_KERNEL("cpu", "matmul_grad_w", MakeMatmulGradWeight);

}  // namespace
}  // namespace weir::kernels
