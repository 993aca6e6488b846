#include "ops/kernels/shape/normalize_check.h"

#include <vector>

#include "ops/kernels/shape/axis_groups.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

// Checks x, and that the inputs and outputs `statistics` have the shape of x without the axes.
void CheckStatistics(const KernelSpec& spec, const std::vector<int>& inputs,
                     const std::vector<int>& outputs, SpecCheck* check) {
  const std::vector<int64_t> axes = spec.attrs.Ints("axes");
  check->Real(check->in(0), "x")
      .Expect(!axes.empty() && LegalAxes(check->in(0).shape, axes), "axes of x, each once");
  if (!check->ok()) return;
  const Shape kept = KeptShape(check->in(0).shape, axes);
  for (int i : inputs) {
    if (!check->HasIn(i)) continue;
    check->Real(check->in(i), "a statistic")
        .Expect(check->in(i).shape == kept, "statistics shaped like x without the axes");
  }
  for (int o : outputs) {
    check->Is(check->out(o), DType::kF32, "a statistic")
        .Expect(check->out(o).shape == kept, "statistics shaped like x without the axes");
  }
}

void CheckLikeX(const TensorSlice& operand, SpecCheck* check) {
  check->SameType(check->in(0), operand, "x and operands like it")
      .SameShape(check->in(0), operand, "x and operands like it");
}

}  // namespace

absl::Status CheckVariance(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 2);
  CheckStatistics(spec, {1}, {0}, &check);
  if (check.HasOut(1)) CheckStatistics(spec, {}, {1}, &check);
  return check.status();
}

absl::Status CheckVarianceGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 3).Outputs(2, 2);
  CheckStatistics(spec, {1, 2}, {1}, &check);
  CheckLikeX(check.out(0), &check);
  return check.status();
}

absl::Status CheckNormalize(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 5).Outputs(1, 1);
  CheckStatistics(spec, {1, 2, 3, 4}, {}, &check);
  CheckLikeX(check.out(0), &check);
  return check.status();
}

absl::Status CheckNormalizeGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(4, 5).Outputs(5, 5);
  CheckStatistics(spec, {1, 2, 4}, {1, 2, 3, 4}, &check);
  CheckLikeX(check.in(3), &check);
  CheckLikeX(check.out(0), &check);
  return check.status();
}

float UnbiasedFactor(double count) {
  return count > 1 ? static_cast<float>(count / (count - 1)) : 1.0f;
}

}  // namespace weir::kernels
