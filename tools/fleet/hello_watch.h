// Decides which processes of a job have failed because they do not say hello. A process that loads
// is silent, too, so silence alone counts only after a long limit. A process that somebody holds
// (SIGSTOP, a debugger) says nothing until that ends, and counts as failed after the time after
// which a process that no longer beats counts as dead. A HelloWatch looks at no process itself: the
// caller looks when a look is due. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/base/ids.h"
#include "tools/launch/process_state.h"

namespace weir::fleet {

struct HelloLimits {
  int64_t hello_ms = 0;  // from the start of the process to its hello
  int64_t held_ms = 0;   // for which a process is held at every look that its host answers
};
// Returns the limits of a job of so many workers. A user who gives silent processes more time than
// a start may take gives it to starts, too.
HelloLimits ChooseHelloLimits(int64_t dead_after_ms, int num_workers);

// A worker whose process runs and has not said hello, as a look at the process shows it.
struct SilentWorker {
  WorkerId worker;
  launch::ProcessState::Kind kind = launch::ProcessState::Kind::kGone;
  bool is_seen = true;  // false: its host did not answer, and `kind` is not known
};

class HelloWatch {
 public:
  explicit HelloWatch(const HelloLimits& limits);

  // Adds time that the caller has waited. A part of more than a second counts as a second, because
  // the caller itself was stopped then.
  void AddWait(int64_t wait_ms);
  // Adds the time that a look has taken. Many processes, or a host that does not answer, make looks
  // long, and the limits hold then, too. More than five seconds count as five, because the caller
  // itself was stopped then.
  void AddLook(int64_t look_ms);
  // Returns the time that was added so far.
  int64_t waited_ms() const { return waited_ms_; }

  bool LookIsDue() const { return waited_ms_ >= next_look_ms_; }
  // Takes a look at all workers that have not said hello. Returns those that have failed, in the
  // order of the look. The caller leaves them out of further looks.
  std::vector<WorkerId> Judge(const std::vector<SilentWorker>& silent);

 private:
  const HelloLimits limits_;
  int64_t waited_ms_ = 0;
  int64_t next_look_ms_;
  std::map<WorkerId, int64_t> held_since_ms_;  // by the look at which each was first held
};

}  // namespace weir::fleet
