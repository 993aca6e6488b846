// matmul (with bias and activation) and its weight gradient.
#include <cstring>
#include <optional>

#include "ops/kernels/cpu/gemm.h"
#include "ops/kernels/cpu/unary.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/product_shape.h"
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
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadMatmul(spec));
  const std::optional<Unary> activation = UnaryFromName(spec.attrs.Str("activation", "none"));
  SpecCheck check(spec);
  check.Expect(activation.has_value(), "attribute activation to name a function of one element");
  if (!check.ok()) return check.status();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> made, Gemm::Create(GemmOf(shape, spec.num_threads)));
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
  WEIR_ASSIGN_OR_RETURN(const ProductShape shape, ReadMatmulGradWeight(spec));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Gemm> made, Gemm::Create(GemmOf(shape, spec.num_threads)));
  return std::make_unique<MatmulGradWeightKernel>(std::move(made), shape.left);
}

WEIR_REGISTER_KERNEL("cpu", "matmul", MakeMatmul);
WEIR_REGISTER_KERNEL("cpu", "matmul_grad_w", MakeMatmulGradWeight);

}  // namespace
}  // namespace weir::kernels
