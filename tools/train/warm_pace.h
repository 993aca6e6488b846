// WarmPace is the mean time of the steps since the ranks started, without the first burst of steps:
// its first step warms up caches and threads, and may take many times as long as another.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>

namespace weir::train {

class WarmPace {
 public:
  // A burst of `steps` steps has taken `seconds`.
  void Note(int64_t steps, double seconds);
  // Returns the time that so many steps take at this pace; nullopt: the pace is not known yet.
  std::optional<double> SecondsFor(int64_t steps) const;

 private:
  bool is_warm_ = false;
  int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace weir::train
