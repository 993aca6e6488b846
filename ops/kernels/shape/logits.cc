#include "ops/kernels/shape/logits.h"

#include <string>
#include <vector>

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

void CheckLogits(SpecCheck* check) {
  check->Real(check->in(0), "logits")
      .Is(check->in(1), DType::kI32, "targets")
      .MinRank(check->in(0), 1, "logits");
  check->Expect(LeadingShape(check->in(0), 1) == check->in(1).shape,
                "targets with the leading axes of logits");
}

void CheckPerRow(SpecCheck* check, const TensorSlice& operand, const char* name) {
  check->Is(operand, DType::kF32, name);
  check->Expect(operand.shape == check->in(1).shape,
                std::string(name) + " with one element per target");
}

}  // namespace

IgnoredTarget::IgnoredTarget(const Attributes& attrs) {
  const std::vector<int64_t> values = attrs.Ints("ignore_index");
  exists = !values.empty();
  if (exists) value = static_cast<int32_t>(values[0]);
}

TargetWeights::TargetWeights(const TensorSlice& logits, const Attributes& attrs)
    : of_target(static_cast<float>(1 - attrs.Real("label_smoothing", 0))),
      of_each(static_cast<float>(attrs.Real("label_smoothing", 0) /
                                 static_cast<double>(logits.global_shape.back()))) {}

absl::Status CheckCrossEntropy(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 3);
  CheckLogits(&check);
  for (int i = 0; i < 3; ++i) {
    if (check.HasOut(i)) CheckPerRow(&check, check.out(i), "an output");
  }
  check.Expect(SizeFromEnd(check.in(0), 1) == (check.ok() ? check.in(0).global_shape.back() : 0),
               "a whole vocabulary");
  return check.status();
}

absl::Status CheckCrossEntropyGrad(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(5, 5).Outputs(1, 1);
  CheckLogits(&check);
  for (int i = 2; i < 5; ++i) CheckPerRow(&check, check.in(i), "max, sum_exp and dloss");
  check.SameShape(check.in(0), check.out(0), "logits and dlogits")
      .SameType(check.in(0), check.out(0), "logits and dlogits");
  return check.status();
}

absl::Status CheckExpSumPick(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 3).Outputs(2, 2);
  CheckLogits(&check);
  CheckPerRow(&check, check.in(2), "max");
  CheckPerRow(&check, check.out(0), "sum_exp");
  CheckPerRow(&check, check.out(1), "picked");
  return check.status();
}

absl::Status CheckCrossEntropyFinish(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 4).Outputs(1, 1).Is(check.out(0), DType::kF32, "loss");
  for (int i = 0; i < 3; ++i) {
    check.Is(check.in(i), DType::kF32, "inputs")
        .SameShape(check.in(i), check.out(0), "inputs and loss");
  }
  if (IgnoredTarget(spec.attrs).exists) {
    check.Expect(check.HasIn(3), "targets where some are ignored")
        .Is(check.in(3), DType::kI32, "targets")
        .SameShape(check.in(3), check.out(0), "targets and loss");
  }
  return check.status();
}

absl::Status CheckAccuracy(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1);
  CheckLogits(&check);
  CheckPerRow(&check, check.out(0), "hit");
  return check.status();
}

}  // namespace weir::kernels
