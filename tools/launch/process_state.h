// Finds from /proc what a silent process of this host is doing: somebody has stopped it, a device
// or a file system holds it, other processes have the cores, or it could speak and does not.
// Thread rule: values and pure functions; SilentProcess by one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tools/launch/cpu_starvation.h"

namespace weir::launch {

struct ProcessState {
  enum class Kind {
    kGone,             // no such process, or a zombie
    kStopped,          // by SIGSTOP or a terminal's Ctrl-Z
    kTraced,           // held by a debugger
    kUninterruptible,  // in the kernel, where no signal reaches it
    kReady,            // runs, or would if it got a core
    kAsleep,           // waits for something
  };
  Kind kind = Kind::kGone;
  // The number of times that a thread of the process was given a core and gave it back. While this
  // number stays the same, no thread runs.
  int64_t num_switches = 0;
};

ProcessState ReadProcessState(pid_t pid);
// Returns whether the process has ended or will end soon: it is killed, or it exits and frees what
// it holds.
bool IsEnding(pid_t pid);
// Returns the kind, but returns kUninterruptible only for a process that stays in that state,
// because every access to a disk puts a process there for a moment. The check then takes up to 150
// ms.
ProcessState::Kind SettledKind(pid_t pid);
// Returns "is stopped (state T)", or "is gone" for a process that is gone.
std::string StateText(ProcessState::Kind kind);
// Returns advice to a person who finds a silent process in this state.
std::string StateAdvice(ProcessState::Kind kind, pid_t pid);

// Watches a silent process, and finds whether it is suspended or gets no core, so that it cannot
// say anything.
class SilentProcess {
 public:
  // `ticks_per_second` is sysconf(_SC_CLK_TCK). Looks that are more than `memory_ns` apart are
  // independent.
  SilentProcess(pid_t pid, int64_t ticks_per_second, int64_t memory_ns)
      : pid_(pid), memory_ns_(memory_ns), starvation_(ticks_per_second, memory_ns) {}

  // Looks at the process; call it again while the process is silent. The first look believes a
  // process that sleeps.
  bool IsSuspended(int64_t now_ns);

 private:
  const pid_t pid_;
  const int64_t memory_ns_;
  CpuStarvation starvation_;
  std::optional<int64_t> last_switches_;
  int64_t last_ns_ = 0;
};

}  // namespace weir::launch
