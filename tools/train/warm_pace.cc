#include "tools/train/warm_pace.h"

#include <utility>

namespace weir::train {

void WarmPace::Note(int64_t steps, double seconds) {
  if (!std::exchange(is_warm_, true)) return;
  steps_ += steps;
  seconds_ += seconds;
}

std::optional<double> WarmPace::SecondsFor(int64_t steps) const {
  if (steps == 0) return 0;
  if (steps_ == 0) return std::nullopt;
  return seconds_ / static_cast<double>(steps_) * static_cast<double>(steps);
}

}  // namespace weir::train
