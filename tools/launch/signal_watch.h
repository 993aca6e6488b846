// Turns SIGINT, SIGTERM and SIGHUP (a closed terminal) into events. While a SignalWatch lives,
// these signals do not end the process at once. A working process looks at a flag between two
// steps. A starter of workers polls a descriptor and takes the signals one by one: the first asks
// the job to end, and the second kills the job. A SignalWatch passes nothing on to workers; the
// starter does that with Supervisor::Stop. As long as there is nothing to lose, EndAtOnce lets the
// first signal end the process. SIGUSR1 and SIGUSR2 end nothing: a process that notes them counts
// them.
//
// The same signal within kOneRequestNs is the same request, and does nothing: `timeout` signals the
// program and then its process group, and no person is as fast. Two different signals are two
// requests.
//
// A SIGINT or SIGHUP that was ignored before (nohup, a script's background job) stays ignored. From
// the first watch on, SIGPIPE and SIGXFSZ are ignored for good: a write to a closed pipe, or beyond
// the limit of a file's size, fails and ends nothing, even if results are written after the watch.
// Thread rule: one watch at a time, made and destroyed by the main thread; the other functions from
// any thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

namespace weir::launch {

inline constexpr int kExitInterrupted = 130;  // of a process that a signal has asked to end
inline constexpr int64_t kOneRequestNs = 200'000'000;

enum class SecondSignal {
  kEndsTheProcess,  // as if there were no watch
  kIsAnEvent,       // like the first
};

// Acts as a first signal that reached another process of the job, such as an agent on another host.
// The next signal to this process counts as the same request, because a scheduler sends a signal to
// many processes. Does nothing if a signal has come before. Any thread.
void AskToEnd();

// Acts as a SIGUSR1 that reached another process of the job. Does nothing unless a watch notes
// SIGUSR1. Any thread.
void AskForCheckpoint();

class SignalWatch {
 public:
  // If the system has no descriptor left, the watch does nothing and signals act as usual.
  explicit SignalWatch(SecondSignal second);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // From now on, until KeepGoing, the first signal writes `message` to standard error and ends the
  // process with exit code `code`, whatever the process is doing. A signal that has already come
  // does so now.
  void EndAtOnce(const std::string& message, int code);
  // After EndAtOnce: that end also removes this folder if nothing is in it. A path
  // of PATH_MAX bytes or more names no folder, and does nothing.
  void RemoveAtThatEnd(const std::string& folder);
  void KeepGoing();

  // From now on, as long as the watch lives, SIGUSR1 and SIGUSR2 are events, too, which Take
  // returns. They neither interrupt nor end anything.
  void NoteUserSignals();
  // Returns how often SIGUSR1, the request for a checkpoint, has been noted and not answered.
  // Whoever answers requests takes them off the number.
  std::atomic<int>& checkpoints_asked() const;

  // Returns whether any signal has come that asks to end.
  const std::atomic<bool>& interrupted() const;

  // A descriptor that is readable while there is a signal to take; for poll alone. -1 if nothing is
  // watched.
  int descriptor() const;
  // Returns the oldest signal that was not yet taken; does not block.
  std::optional<int> Take();

 private:
  struct sigaction old_interrupt_ = {}, old_terminate_ = {}, old_hangup_ = {};
  bool notes_user_signals_ = false;
  struct sigaction old_user1_ = {}, old_user2_ = {};
};

}  // namespace weir::launch
