// When weights are updated: in which steps, and how old the gradients are that an update uses.
// Steps, updates and the steps of the optimiser count from 0. Pure.
#pragma once

#include <cstdint>

#include "runtime/base/attributes.h"

namespace weir {

struct UpdateRate {
  int64_t every = 1;  // steps from one update to the next
  int64_t phase = 0;  // steps n with n % every == phase update; from 0 to every - 1
  int64_t delay = 0;  // updates by which gradients lag

  static UpdateRate FromAttributes(const Attributes& attributes);
  void ToAttributes(Attributes* attributes) const;  // only what differs from the defaults

  // Updates in the steps before `step`; in a step that updates, the number of that update.
  int64_t UpdatesBefore(int64_t step) const { return (step + every - 1 - phase) / every; }
  // The step of the optimiser that `step` makes, or gathers gradients for. Negative: the gradients
  // of that update are not there yet, so that it does nothing.
  int64_t OptimizerStep(int64_t step) const { return UpdatesBefore(step) - delay; }
  // Whether nothing is being gathered when `steps` steps are done: none are, or the last of them
  // has updated.
  bool IsBetweenUpdates(int64_t steps) const { return steps == 0 || (steps - 1) % every == phase; }
  // The least number of steps, `steps` or more, with IsBetweenUpdates; the most, `steps` or less.
  int64_t RoundUp(int64_t steps) const {
    return steps == 0 ? 0 : StepsOf(UpdatesBefore(steps - 1) + 1);
  }
  int64_t RoundDown(int64_t steps) const { return StepsOf(UpdatesBefore(steps)); }

 private:
  // Steps up to the end of the first `updates` updates.
  int64_t StepsOf(int64_t updates) const {
    return updates == 0 ? 0 : (updates - 1) * every + phase + 1;
  }
};

}  // namespace weir
