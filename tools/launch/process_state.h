// What a process of this host is doing while it says nothing, as /proc tells: whether somebody has
// stopped it, a device or a file system holds it, others have the cores, or it could speak and does
// not. Thread rule: values and pure functions; SilentProcess by one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "tools/launch/cpu_starvation.h"

namespace weir {

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
  int64_t num_switches = 0;  // how often its threads were given a core and gave it back; as long as
                             // that stays, none runs
};

ProcessState ReadProcessState(pid_t pid);
// The kind, but kUninterruptible only of a process that stays so: every access to a disk takes a
// process there for a moment. Takes up to 150 ms then.
ProcessState::Kind SettledKind(pid_t pid);
// "is stopped (state T)"; of a process that is gone "is gone".
std::string StateText(ProcessState::Kind kind);
// What whoever finds a silent process in this state may do about it.
std::string StateAdvice(ProcessState::Kind kind, pid_t pid);

// A process that is silent: whether it is suspended, so that it cannot say anything, or gets no
// core.
class SilentProcess {
 public:
  // `ticks_per_second`: as sysconf(_SC_CLK_TCK). Looks that lie further apart than `memory_ns` have
  // nothing to do with each other.
  SilentProcess(pid_t pid, int64_t ticks_per_second, int64_t memory_ns)
      : pid_(pid), memory_ns_(memory_ns), starvation_(ticks_per_second, memory_ns) {}

  // A look; again while it is silent. The first one believes a process that sleeps.
  bool IsSuspended(int64_t now_ns);

 private:
  const pid_t pid_;
  const int64_t memory_ns_;
  CpuStarvation starvation_;
  std::optional<int64_t> last_switches_;
  int64_t last_ns_ = 0;
};

}  // namespace weir
