#include "tools/interrupt_scope.h"

namespace weir {
namespace {

// Lock-free, so a handler may set it; no data hangs on it, so order does not matter.
std::atomic<bool> interrupt_asked{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int) { interrupt_asked.store(true, std::memory_order_relaxed); }

}  // namespace

InterruptScope::InterruptScope() {
  interrupt_asked.store(false);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

const std::atomic<bool>& InterruptScope::interrupted() const { return interrupt_asked; }

}  // namespace weir
