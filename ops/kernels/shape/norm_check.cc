#include "ops/kernels/shape/norm_check.h"

#include <string>

#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

enum class NormKind : uint8_t { kLayer, kRms };

void CheckParameter(SpecCheck* check, const TensorSlice& parameter, const char* name) {
  check->Real(parameter, name);
  check->Expect(parameter.shape == Shape{SizeFromEnd(check->in(0), 1)},
                std::string(name) + " as long as the last axis of x");
}

void CheckStatistic(SpecCheck* check, const TensorSlice& statistic, const char* name) {
  check->Is(statistic, DType::kF32, name);
  check->Expect(statistic.shape == LeadingShape(check->in(0), 1),
                std::string(name) + " with the leading axes of x");
}

absl::Status CheckNorm(const KernelSpec& spec, NormKind kind) {
  const bool layer = kind == NormKind::kLayer;
  SpecCheck check(spec);
  check.Inputs(2, layer ? 3 : 2)
      .Outputs(1, layer ? 3 : 2)
      .Real(check.in(0), "x")
      .MinRank(check.in(0), 1, "x");
  check.SameType(check.in(0), check.out(0), "x and y")
      .SameShape(check.in(0), check.out(0), "x and y");
  CheckParameter(&check, check.in(1), "gamma");
  if (check.HasIn(2)) CheckParameter(&check, check.in(2), "beta");
  for (int i = 1; i < 3; ++i) {
    if (check.HasOut(i)) CheckStatistic(&check, check.out(i), layer && i == 1 ? "mean" : "rstd");
  }
  return check.status();
}

absl::Status CheckNormGrad(const KernelSpec& spec, NormKind kind) {
  const bool layer = kind == NormKind::kLayer;
  const int num_inputs = layer ? 5 : 4;
  SpecCheck check(spec);
  check.Inputs(num_inputs, num_inputs)
      .Outputs(2, layer ? 3 : 2)
      .Real(check.in(0), "x")
      .MinRank(check.in(0), 1, "x");
  CheckParameter(&check, check.in(1), "gamma");
  for (int i = 2; i + 1 < num_inputs; ++i) CheckStatistic(&check, check.in(i), "mean and rstd");
  const TensorSlice& dy = check.in(num_inputs - 1);
  check.SameType(check.in(0), dy, "x and dy").SameShape(check.in(0), dy, "x and dy");
  check.SameType(check.in(0), check.out(0), "x and dx")
      .SameShape(check.in(0), check.out(0), "x and dx");
  for (int i = 1; i < 3; ++i) {
    if (check.HasOut(i)) CheckParameter(&check, check.out(i), "dgamma and dbeta");
  }
  return check.status();
}

}  // namespace

absl::Status CheckLayerNorm(const KernelSpec& spec) { return CheckNorm(spec, NormKind::kLayer); }
absl::Status CheckRmsNorm(const KernelSpec& spec) { return CheckNorm(spec, NormKind::kRms); }
absl::Status CheckLayerNormGrad(const KernelSpec& spec) {
  return CheckNormGrad(spec, NormKind::kLayer);
}
absl::Status CheckRmsNormGrad(const KernelSpec& spec) {
  return CheckNormGrad(spec, NormKind::kRms);
}

}  // namespace weir::kernels
