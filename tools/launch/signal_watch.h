// SIGINT and SIGTERM as events: while it lives they do not end the process at once. Serves both a
// process that works (it looks at a flag between two steps) and a starter of workers (it polls a
// descriptor and takes the signals one by one: the first asks the job to end, the second kills it).
// It passes nothing on to workers: that is the starter's, by Supervisor::Stop.
//
// A SIGINT that was ignored before (nohup, a script's background job) stays ignored.
// Thread rule: one at a time, made and destroyed by the main thread; the rest from any thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <optional>

namespace weir {

enum class SecondSignal {
  kEndsTheProcess,  // as if nobody watched
  kIsAnEvent,       // like the first
};

class SignalWatch {
 public:
  // If the system has no descriptor left, nothing is watched and signals act as usual.
  explicit SignalWatch(SecondSignal second);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // Whether any has come.
  const std::atomic<bool>& interrupted() const;

  // Readable while there is one to take; for poll alone. -1 if nothing is watched.
  int descriptor() const;
  // The oldest signal not yet taken; does not block.
  std::optional<int> Take();

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {};
};

}  // namespace weir
