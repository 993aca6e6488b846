// An UpdateRate says in which steps weights are updated, and how old the gradients of an update
// are. Steps, updates and the steps of the optimiser count from 0. Pure.
#pragma once

#include <cstdint>

#include "runtime/base/attributes.h"

namespace weir {

struct UpdateRate {
  int64_t every = 1;  // steps from one update to the next
  int64_t phase = 0;  // steps n with n % every == phase update; from 0 to every - 1
  int64_t delay = 0;  // updates by which gradients lag

  static UpdateRate FromAttributes(const Attributes& attributes);
  // Writes only fields that differ from the defaults.
  void ToAttributes(Attributes* attributes) const;

  // Returns the updates in the steps before `step`. In a step that updates, the result is the
  // number of that update.
  int64_t UpdatesBefore(int64_t step) const { return (step + every - 1 - phase) / every; }
  // Returns the step of the optimiser that `step` makes, or for which `step` gathers gradients.
  // Negative: the gradients of that update do not exist yet, and the update does nothing.
  int64_t OptimizerStep(int64_t step) const { return UpdatesBefore(step) - delay; }
  // Returns whether no gradients are being gathered when `steps` steps are done: no steps are done,
  // or the last of them has updated.
  bool IsBetweenUpdates(int64_t steps) const { return steps == 0 || (steps - 1) % every == phase; }
  // RoundUp returns the least number of steps, `steps` or more, with IsBetweenUpdates; RoundDown
  // returns the greatest, `steps` or less.
  int64_t RoundUp(int64_t steps) const {
    return steps == 0 ? 0 : StepsOf(UpdatesBefore(steps - 1) + 1);
  }
  int64_t RoundDown(int64_t steps) const { return StepsOf(UpdatesBefore(steps)); }

 private:
  // Returns the number of steps up to the end of the first `updates` updates.
  int64_t StepsOf(int64_t updates) const {
    return updates == 0 ? 0 : (updates - 1) * every + phase + 1;
  }
};

}  // namespace weir
