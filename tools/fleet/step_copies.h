// StepCopies has the copies of the states of the last steps: one, or two where copies also travel
// to a buddy (buddy_choice.h), because the copy before is needed until the buddy has the new one.
//
// A Copy has step(), the number of steps done, -1 if there is none, and Forget(), after which there
// is none.
// Thread rule: that of the copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weir::fleet {

template <typename Copy>
class StepCopies {
 public:
  // Returns the copy in whose place the next one is to be made. It is the older one of
  // `copies_max`, which is 1 or 2. From now on it is the last.
  Copy* Next(int copies_max) {
    if (copies_max > 1 && copies_[last_].step() >= 0) last_ = 1 - last_;
    return &copies_[last_];
  }
  // Returns the copy of a step; null if there is none.
  const Copy* Of(int64_t step) const {
    for (const Copy& copy : copies_) {
      if (copy.step() == step && step >= 0) return &copy;
    }
    return nullptr;
  }
  // Returns the step of the last copy, and of the copy before; -1: there is none.
  int64_t last_step() const { return copies_[last_].step(); }
  int64_t older_step() const { return copies_[1 - last_].step(); }
  // Returns the last copy. Precondition: last_step() >= 0.
  const Copy& last() const { return copies_[last_]; }
  // Forgets the copies of all other steps.
  void ForgetAllBut(int64_t step) {
    for (Copy& copy : copies_) {
      if (copy.step() != step) copy.Forget();
    }
    if (copies_[last_].step() < 0) last_ = 1 - last_;
  }

 protected:
  std::array<Copy, 2> copies_;

 private:
  size_t last_ = 0;  // the copy that was made last
};

}  // namespace weir::fleet
