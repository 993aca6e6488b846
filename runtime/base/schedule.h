// Learning-rate schedules give the rate of a step, from 0. The rate warms up linearly from
// learning_rate / warmup_steps, then is constant or decays by a cosine or a line to
// min_learning_rate at decay_steps, and is constant from there on. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/attributes.h"

namespace weir {

struct LearningRateSchedule {
  double learning_rate = 1e-3;
  int64_t warmup_steps = 0;
  std::string decay = "constant";  // or "cosine", "linear"
  int64_t decay_steps = 0;
  double min_learning_rate = 0;

  static LearningRateSchedule FromAttributes(const Attributes& attributes);
  void ToAttributes(Attributes* attributes) const;
  double At(int64_t step) const;
};

}  // namespace weir
