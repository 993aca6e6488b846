// A WakeEvent ends a poll from another thread. Thread rule: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/launch/owned_descriptor.h"

namespace weir::launch {

// Converts a time to the unit of poll, rounded up, so that a wait never turns into busy looks at
// the clock. Negative: without limit.
int PollMs(int64_t ns);

class WakeEvent {
 public:
  // Returns a descriptor for WakeEvent. kUnavailable (W0093) if the system gives none.
  static absl::StatusOr<OwnedDescriptor> Open();
  explicit WakeEvent(OwnedDescriptor event) : event_(std::move(event)) {}

  int descriptor() const { return event_.get(); }  // readable once woken or poked
  // Makes the poll return, and the next TakeWake return true.
  void Wake();
  // Makes the poll return, so that its thread finds more to do.
  void Poke() const;
  // Makes the descriptor unreadable. Returns whether Wake was called since the last TakeWake.
  bool TakeWake();

 private:
  const OwnedDescriptor event_;
  std::atomic<bool> is_asked_{false};
};

}  // namespace weir::launch
