#include "ops/kernels/shape/update_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/kernels/shape/optimizer_check.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels {
namespace {

const float* In(const KernelArgs& args, size_t i) {
  return i < args.inputs.size() ? static_cast<const float*>(args.inputs[i]) : nullptr;
}
float* Out(const KernelArgs& args, size_t i) { return static_cast<float*>(args.outputs[i]); }

float F(double number) { return static_cast<float>(number); }

absl::Status CheckAlike(const KernelSpec& spec, int inputs, int outputs) {
  SpecCheck check(spec);
  CheckUpdate(&check, inputs, outputs, outputs);
  for (int i = 0; i < inputs; ++i) check.Expect(check.HasIn(i), "all its operands");
  return check.status();
}

void CheckScalar(SpecCheck* check, int i, const char* name) {
  check->Is(check->in(i), DType::kF32, name);
  check->Expect(check->HasIn(i) && check->in(i).num_elements() == 1, "scalars beside tensors");
}

}  // namespace

absl::Status LionUpdate::Check(const KernelSpec& spec) { return CheckAlike(spec, 2, 2); }

LionUpdate::LionUpdate(const KernelSpec& spec)
    : schedule_(LearningRateSchedule::FromAttributes(spec.attrs)),
      updates_(UpdateRate::FromAttributes(spec.attrs)),
      beta1_(spec.attrs.Real("beta1", 0.9)),
      beta2_(spec.attrs.Real("beta2", 0.99)),
      weight_decay_(spec.attrs.Real("weight_decay")) {}

std::optional<LionMap> LionUpdate::At(const KernelArgs& args) const {
  const int64_t number = updates_.OptimizerStep(args.step);
  if (number < 0) return std::nullopt;
  const double rate = schedule_.At(number);
  LionMap map;
  map.grad = In(args, 0);
  map.scale = In(args, 1);
  map.weight = Out(args, 0);
  map.momentum = Out(args, 1);
  map.beta1 = F(beta1_);
  map.beta1_rest = F(1 - beta1_);
  map.beta2 = F(beta2_);
  map.beta2_rest = F(1 - beta2_);
  map.decay = F(1 - rate * weight_decay_);
  map.rate = F(rate);
  return map;
}

absl::Status AdamDirectionUpdate::Check(const KernelSpec& spec) { return CheckAlike(spec, 3, 3); }

AdamDirectionUpdate::AdamDirectionUpdate(const KernelSpec& spec)
    : updates_(UpdateRate::FromAttributes(spec.attrs)),
      beta1_(spec.attrs.Real("beta1", 0.9)),
      beta2_(spec.attrs.Real("beta2", 0.999)),
      epsilon_(spec.attrs.Real("epsilon", 1e-6)),
      weight_decay_(spec.attrs.Real("weight_decay")) {}

std::optional<AdamDirectionMap> AdamDirectionUpdate::At(const KernelArgs& args) const {
  const int64_t number = updates_.OptimizerStep(args.step);
  if (number < 0) return std::nullopt;
  const double t = static_cast<double>(number) + 1;
  AdamDirectionMap map;
  map.grad = In(args, 0);
  map.scale = In(args, 1);
  map.weight = In(args, 2);
  map.direction = Out(args, 0);
  map.first = Out(args, 1);
  map.second = Out(args, 2);
  map.beta1_rest = F(1 - beta1_);
  map.beta2 = F(beta2_);
  map.beta2_rest = F(1 - beta2_);
  map.correction1 = F(1 - std::pow(beta1_, t));
  map.correction2_root = F(std::sqrt(1 - std::pow(beta2_, t)));
  map.epsilon = F(epsilon_);
  map.weight_decay = F(weight_decay_);
  return map;
}

absl::Status MomentumDirectionUpdate::Check(const KernelSpec& spec) {
  return CheckAlike(spec, 2, 2);
}

MomentumDirectionUpdate::MomentumDirectionUpdate(const KernelSpec& spec)
    : updates_(UpdateRate::FromAttributes(spec.attrs)),
      momentum_(spec.attrs.Real("momentum", 0.95)),
      nesterov_(spec.attrs.Bool("nesterov", true)) {}

std::optional<MomentumDirectionMap> MomentumDirectionUpdate::At(const KernelArgs& args) const {
  if (updates_.OptimizerStep(args.step) < 0) return std::nullopt;
  MomentumDirectionMap map;
  map.grad = In(args, 0);
  map.scale = In(args, 1);
  map.direction = Out(args, 0);
  map.momentum = Out(args, 1);
  map.keep = F(momentum_);
  map.rest = F(1 - momentum_);
  map.nesterov = nesterov_;
  return map;
}

absl::Status MomentOfSquaresUpdate::Check(const KernelSpec& spec) { return CheckAlike(spec, 2, 2); }

MomentOfSquaresUpdate::MomentOfSquaresUpdate(const KernelSpec& spec)
    : updates_(UpdateRate::FromAttributes(spec.attrs)),
      beta2_decay_(spec.attrs.Real("beta2_decay", -0.8)),
      count_(spec.attrs.Real("count", 1)) {}

std::optional<MomentOfSquaresMap> MomentOfSquaresUpdate::At(const KernelArgs& args) const {
  const int64_t number = updates_.OptimizerStep(args.step);
  if (number < 0) return std::nullopt;
  MomentOfSquaresMap map;
  map.squares = In(args, 0);
  map.scale = In(args, 1);
  map.now_moment = Out(args, 0);
  map.moment = Out(args, 1);
  map.share = F(std::pow(static_cast<double>(number) + 1, beta2_decay_));
  map.count = F(count_);
  return map;
}

absl::Status WeightAverageUpdate::Check(const KernelSpec& spec) { return CheckAlike(spec, 2, 1); }

WeightAverageUpdate::WeightAverageUpdate(const KernelSpec& spec)
    : updates_(UpdateRate::FromAttributes(spec.attrs)),
      decay_(spec.attrs.Real("average_decay", 0.999)) {}

std::optional<WeightAverageMap> WeightAverageUpdate::At(const KernelArgs& args) const {
  const int64_t number = updates_.OptimizerStep(args.step);
  if (number < 0) return std::nullopt;
  WeightAverageMap map;
  map.weight = In(args, 0);
  map.scale = In(args, 1);
  map.average = Out(args, 0);
  map.rest = F(1 - decay_);
  map.is_first = number == 0;
  return map;
}

absl::Status WeightStepUpdate::Check(const KernelSpec& spec) {
  SpecCheck check(spec);
  const bool plain = spec.attrs.Str("by", "plain") == "plain";
  check.Inputs(2, 4).Outputs(1, 1).Is(check.in(0), DType::kF32, "direction");
  check.Is(check.out(0), DType::kF32, "weight");
  check.SameShape(check.in(0), check.out(0), "direction and weight");
  for (int i = 1; i < (plain ? 2 : 4); ++i) CheckScalar(&check, i, "scale or sum of squares");
  return check.status();
}

WeightStepUpdate::WeightStepUpdate(const KernelSpec& spec)
    : schedule_(LearningRateSchedule::FromAttributes(spec.attrs)),
      updates_(UpdateRate::FromAttributes(spec.attrs)),
      factor_(spec.attrs.Real("factor", 1)),
      count_(spec.attrs.Real("count", 1)),
      epsilon2_(spec.attrs.Real("epsilon2", 1e-3)),
      clip_threshold_(spec.attrs.Real("clip_threshold", 1)),
      weight_decay_(spec.attrs.Real("weight_decay")) {
  const std::string by = spec.attrs.Str("by", "plain");
  by_ = by == "lamb"        ? StepLength::kLamb
        : by == "adafactor" ? StepLength::kAdafactor
                            : StepLength::kPlain;
}

std::optional<WeightStepMap> WeightStepUpdate::At(const KernelArgs& args) const {
  const int64_t number = updates_.OptimizerStep(args.step);
  if (number < 0) return std::nullopt;
  double rate = schedule_.At(number);
  WeightStepMap map;
  map.direction = In(args, 0);
  map.scale = In(args, 1);
  map.weight_squares = In(args, 2);
  map.direction_squares = In(args, 3);
  map.weight = Out(args, 0);
  map.by = by_;
  map.decay = F(1 - rate * weight_decay_);
  if (by_ == StepLength::kAdafactor)
    rate = std::min(rate, 1 / std::sqrt(static_cast<double>(number) + 1));
  map.rate = F(rate * factor_);
  map.count = F(count_);
  map.epsilon2 = F(epsilon2_);
  map.clip_threshold = F(clip_threshold_);
  return map;
}

absl::Status UnitNormUpdate::Check(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Is(check.in(0), DType::kF32, "x");
  check.Is(check.out(0), DType::kF32, "y").SameShape(check.in(0), check.out(0), "x and y");
  CheckScalar(&check, 1, "squares");
  return check.status();
}

UnitNormUpdate::UnitNormUpdate(const KernelSpec& spec)
    : epsilon_(spec.attrs.Real("epsilon", 1e-7)) {}

std::optional<UnitNormMap> UnitNormUpdate::At(const KernelArgs& args) const {
  UnitNormMap map;
  map.x = In(args, 0);
  map.squares = In(args, 1);
  map.y = Out(args, 0);
  map.epsilon = F(epsilon_);
  return map;
}

absl::Status AdafactorDirectionUpdate::Check(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(3, 5).Outputs(1, 1).Is(check.in(0), DType::kF32, "grad");
  CheckScalar(&check, 1, "scale");
  check.Is(check.out(0), DType::kF32, "direction");
  check.SameShape(check.in(0), check.out(0), "grad and direction");
  check.Is(check.in(2), DType::kF32, "rows");
  if (!check.HasIn(3)) {
    check.SameShape(check.in(0), check.in(2), "grad and its moments");
    return check.status();
  }
  check.Is(check.in(3), DType::kF32, "columns").Is(check.in(4), DType::kF32, "total");
  check.MinRank(check.in(0), 2, "grad");
  if (!check.ok()) return check.status();
  const int64_t matrices = LeadingElements(check.in(0), 2);
  check.Expect(check.in(2).num_elements() == matrices * SizeFromEnd(check.in(0), 2) &&
                   check.in(3).num_elements() == matrices * SizeFromEnd(check.in(0), 1) &&
                   check.HasIn(4) && check.in(4).num_elements() == matrices,
               "a row, a column and a total for each matrix");
  return check.status();
}

AdafactorDirectionUpdate::AdafactorDirectionUpdate(const KernelSpec& spec)
    : epsilon1_(spec.attrs.Real("epsilon1", 1.1920928955078125e-7)),
      count_(spec.attrs.Real("count", 1)) {
  if (spec.inputs.size() < 4 || !spec.inputs[3].has_value()) return;
  rows_ = std::max<int64_t>(1, SizeFromEnd(*spec.inputs[0], 2));
  columns_ = std::max<int64_t>(1, SizeFromEnd(*spec.inputs[0], 1));
}

std::optional<AdafactorDirectionMap> AdafactorDirectionUpdate::At(const KernelArgs& args) const {
  // With the least numbers that are not zero a gradient of zeros gives a direction of zeros.
  constexpr double kLeast = std::numeric_limits<float>::min();
  AdafactorDirectionMap map;
  map.grad = In(args, 0);
  map.scale = In(args, 1);
  map.rows = In(args, 2);
  map.columns = In(args, 3);
  map.totals = In(args, 4);
  map.direction = Out(args, 0);
  map.num_rows = rows_;
  map.num_columns = columns_;
  map.count = F(count_);
  map.least_mean = F(std::max(epsilon1_, kLeast));
  map.least_moment = F(std::max(epsilon1_ * epsilon1_, kLeast));
  return map;
}

}  // namespace weir::kernels
