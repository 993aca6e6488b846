#include "runtime/base/schedule.h"

#include <cmath>

namespace weir {

LearningRateSchedule LearningRateSchedule::FromAttributes(const Attributes& attributes) {
  LearningRateSchedule schedule;
  schedule.learning_rate = attributes.Real("learning_rate", schedule.learning_rate);
  schedule.warmup_steps = attributes.Int("warmup_steps");
  schedule.decay = attributes.Str("decay", schedule.decay);
  schedule.decay_steps = attributes.Int("decay_steps");
  schedule.min_learning_rate = attributes.Real("min_learning_rate");
  return schedule;
}

void LearningRateSchedule::ToAttributes(Attributes* attributes) const {
  attributes->Set("learning_rate", learning_rate);
  attributes->Set("warmup_steps", warmup_steps);
  attributes->Set("decay", decay);
  attributes->Set("decay_steps", decay_steps);
  attributes->Set("min_learning_rate", min_learning_rate);
}

double LearningRateSchedule::At(int64_t step) const {
  if (step < warmup_steps) {
    return learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  if (decay == "constant" || decay_steps <= warmup_steps) return learning_rate;
  double progress =
      static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps - warmup_steps);
  if (progress > 1) progress = 1;
  double share =
      decay == "cosine" ? 0.5 * (1 + std::cos(3.141592653589793 * progress)) : 1 - progress;
  return min_learning_rate + (learning_rate - min_learning_rate) * share;
}

}  // namespace weir
