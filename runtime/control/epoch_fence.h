// An EpochFence decides what belongs to the present epoch of a job. A message carries the epoch in
// which its work began, so what a process of an earlier epoch still says is refused without knowing
// who said it. The fence does no input or output and keeps no message.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>

namespace weir::control {

class EpochFence {
 public:
  explicit EpochFence(uint32_t epoch) : epoch_(epoch) {}

  uint32_t epoch() const { return epoch_; }
  // Begins an epoch, whose number is above the last.
  void Begin(uint32_t epoch) { epoch_ = epoch; }
  // Returns whether what was said in `epoch` counts. Otherwise the refusal is counted.
  bool Admits(uint32_t epoch) {
    if (epoch == epoch_) return true;
    ++num_refused_;
    return false;
  }
  int64_t num_refused() const { return num_refused_; }

 private:
  uint32_t epoch_;
  int64_t num_refused_ = 0;
};

}  // namespace weir::control
