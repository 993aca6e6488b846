// SIGINT, SIGTERM and SIGHUP (a terminal that is closed) as events: while it lives they do not end
// the process at once. Serves both a process that works (it looks at a flag between two steps) and
// a starter of workers (it polls a descriptor and takes the signals one by one: the first asks the
// job to end, the second kills it). It passes nothing on to workers: that is the starter's, by
// Supervisor::Stop. As long as there is nothing to lose, EndAtOnce lets the first signal end the
// process.
//
// A SIGINT or SIGHUP that was ignored before (nohup, a script's background job) stays ignored. From
// the first watch on, for good, SIGPIPE and SIGXFSZ are ignored: a write to a closed pipe, or
// beyond the limit of a file's size, fails and ends nothing, not even where results are written
// after the watch. Thread rule: one at a time, made and destroyed by the main thread; the rest from
// any thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <optional>
#include <string>

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

  // From now on the first signal writes `message` to standard error and ends the process with exit
  // code `code`, whatever it is doing; until KeepGoing. A signal that has come already does so now.
  void EndAtOnce(const std::string& message, int code);
  void KeepGoing();

  // Whether any has come.
  const std::atomic<bool>& interrupted() const;

  // Readable while there is one to take; for poll alone. -1 if nothing is watched.
  int descriptor() const;
  // The oldest signal not yet taken; does not block.
  std::optional<int> Take();

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {}, old_hangup_ = {};
};

}  // namespace weir
