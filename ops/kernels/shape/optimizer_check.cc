#include "ops/kernels/shape/optimizer_check.h"

#include <algorithm>

namespace weir::kernels {

void CheckUpdate(SpecCheck* check, int inputs_max, int outputs_min, int outputs_max) {
  check->Inputs(std::min(2, inputs_max), inputs_max).Outputs(outputs_min, outputs_max);
  check->Is(check->in(0), DType::kF32, "grad").Is(check->in(1), DType::kF32, "scale");
  check->Expect(check->in(1).num_elements() == 1, "one scale");
  const auto like_first = [&](const TensorSlice& operand) {
    check->Is(operand, DType::kF32, "weight and its state");
    check->SameShape(check->in(0), operand, "grad, weight and state");
  };
  for (int i = 2; i < inputs_max; ++i) {
    if (check->HasIn(i)) like_first(check->in(i));
  }
  for (int i = 0; i < outputs_max; ++i) {
    if (check->HasOut(i)) like_first(check->out(i));
  }
}

absl::Status CheckAdamW(const KernelSpec& spec) {
  SpecCheck check(spec);
  CheckUpdate(&check, 2, 3, 3);
  return check.status();
}

absl::Status CheckSgd(const KernelSpec& spec) {
  SpecCheck check(spec);
  CheckUpdate(&check, 2, 1, 2);
  check.Expect(check.HasOut(1) || spec.attrs.Real("momentum") == 0, "a buffer for its momentum");
  return check.status();
}

absl::Status CheckSumSquares(const KernelSpec& spec) {
  SpecCheck check(spec);
  const int n = static_cast<int>(spec.inputs.size());
  check.Inputs(n, n).Outputs(1, 1).Is(check.out(0), DType::kF32, "total");
  check.Expect(check.out(0).num_elements() == 1, "one total");
  for (int i = 0; i < n; ++i) check.Real(check.in(i), "x");
  return check.status();
}

absl::Status CheckClipScale(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 3)
      .Outputs(1, 2)
      .Is(check.in(0), DType::kF32, "total")
      .Is(check.out(0), DType::kF32, "scale");
  check.Is(check.out(1), DType::kF32, "norm");
  if (check.HasIn(1)) {
    check.Is(check.in(1), DType::kF32, "loss_scale");
    check.Expect(check.in(1).num_elements() == 1, "one loss_scale");
  }
  if (check.HasIn(2)) {
    check.Is(check.in(2), DType::kF32, "loss");
    check.Expect(check.in(2).num_elements() == 1, "one loss");
  }
  check.Expect(check.in(0).num_elements() == 1 && check.out(0).num_elements() == 1, "scalars");
  return check.status();
}

absl::Status CheckAdaptLossScale(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 1).Outputs(2, 2).Is(check.in(0), DType::kF32, "scale");
  check.Is(check.out(0), DType::kF32, "factor").Is(check.out(1), DType::kF32, "finite_steps");
  check.Expect(check.in(0).num_elements() == 1 && check.out(0).num_elements() == 1 &&
                   check.out(1).num_elements() == 1,
               "scalars");
  return check.status();
}

}  // namespace weir::kernels
