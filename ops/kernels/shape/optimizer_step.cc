#include "ops/kernels/shape/optimizer_step.h"

#include <cmath>

namespace weir::kernels {

AdamSteps::AdamSteps(const Attributes& attrs)
    : schedule_(LearningRateSchedule::FromAttributes(attrs)),
      updates_(UpdateRate::FromAttributes(attrs)),
      beta1_(attrs.Real("beta1", 0.9)),
      beta2_(attrs.Real("beta2", 0.999)),
      epsilon_(attrs.Real("epsilon", 1e-8)),
      weight_decay_(attrs.Real("weight_decay", 0.01)) {}

std::optional<AdamNumbers> AdamSteps::At(int64_t step) const {
  const int64_t number = updates_.OptimizerStep(step);
  if (number < 0) return std::nullopt;
  const double t = static_cast<double>(number) + 1;
  const double rate = schedule_.At(number);
  AdamNumbers numbers;
  numbers.decay = static_cast<float>(1 - rate * weight_decay_);
  numbers.beta1_rest = static_cast<float>(1 - beta1_);
  numbers.beta2 = static_cast<float>(beta2_);
  numbers.beta2_rest = static_cast<float>(1 - beta2_);
  numbers.correction2_root = static_cast<float>(std::sqrt(1 - std::pow(beta2_, t)));
  numbers.epsilon = static_cast<float>(epsilon_);
  numbers.step_size = static_cast<float>(rate / (1 - std::pow(beta1_, t)));
  return numbers;
}

SgdSteps::SgdSteps(const Attributes& attrs)
    : schedule_(LearningRateSchedule::FromAttributes(attrs)),
      updates_(UpdateRate::FromAttributes(attrs)),
      momentum_(attrs.Real("momentum")),
      weight_decay_(attrs.Real("weight_decay")) {}

std::optional<SgdNumbers> SgdSteps::At(int64_t step, bool has_buffer) const {
  const int64_t number = updates_.OptimizerStep(step);
  if (number < 0) return std::nullopt;
  SgdNumbers numbers;
  numbers.weight_decay = static_cast<float>(weight_decay_);
  numbers.momentum = static_cast<float>(momentum_);
  numbers.rate = static_cast<float>(schedule_.At(number));
  numbers.kind = !has_buffer ? Momentum::kNone : number == 0 ? Momentum::kFirst : Momentum::kLater;
  return numbers;
}

LossScaleStep LossScaleStepOf(const Attributes& attrs) {
  return {static_cast<float>(attrs.Real("growth", 2)),
          static_cast<float>(attrs.Real("backoff", 0.5)),
          static_cast<float>(attrs.Int("growth_interval", 2000))};
}

}  // namespace weir::kernels
