// While it lives, the first SIGINT or SIGTERM sets a flag instead of ending the process;
// the second ends it as usual. Not nestable.
// Thread rule: one at a time, made and destroyed by the main thread.
#pragma once

#include <signal.h>

#include <atomic>

namespace weir {

class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  const std::atomic<bool>& interrupted() const;

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {};
};

}  // namespace weir
