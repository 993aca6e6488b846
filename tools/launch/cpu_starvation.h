// Finds whether a process is silent because other processes have the cores: a thread of the process
// is ready to run, and its threads hardly get a core. A process that was stopped, or that waits for
// a lock or a disk, is not starved. The facts come from /proc, so the process must be on this host.
// Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace weir::launch {

// The processor use of all threads of a process together.
struct ProcessorUse {
  bool is_ready = false;  // some thread runs or waits for a core
  int64_t ticks = 0;      // of processor time used so far
  // Time spent ready and without a core, and how often a thread got a core. Negative if the system
  // does not count these.
  int64_t waited_ns = -1;
  int64_t num_turns = -1;
};

// Adds a thread from the text of /proc/PID/task/TID/stat. Returns false if `stat` is not such a
// text.
bool AddThread(const std::string& stat, ProcessorUse* use);
// Adds the waits of a thread from the text of /proc/PID/task/TID/schedstat. Returns false if
// `schedstat` is not such a text.
bool AddWaits(const std::string& schedstat, ProcessorUse* use);
// Returns nullopt if there is no such process (any more).
std::optional<ProcessorUse> ReadProcessorUse(pid_t pid);

class CpuStarvation {
 public:
  // `ticks_per_second` is sysconf(_SC_CLK_TCK). Looks that are more than `memory_ns` apart are
  // independent.
  CpuStarvation(int64_t ticks_per_second, int64_t memory_ns)
      : ticks_per_second_(ticks_per_second), memory_ns_(memory_ns) {}

  // Looks at a process that is silent; call it again while the silence lasts. `process` is any
  // number that the caller has given to the process. The first look
  // believes a process that is ready to run. Later looks ask for more: since the last look the
  // process has used less than a quarter of a core, and has waited for a core at least half of the
  // time. (A process that sleeps and wakes to look around also uses little, and may be ready at the
  // moment of a look.)
  bool IsStarved(int64_t process, const std::optional<ProcessorUse>& use, int64_t now_ns);
  // Returns how many looks in a row, up to the last look, found the process starved.
  int NumLooks(int64_t process) const;

 private:
  struct Look {
    int64_t time_ns = 0;
    int64_t ticks = 0;
    int64_t waited_ns = 0;
    int64_t num_turns = 0;
    int number = 0;
  };
  const int64_t ticks_per_second_;
  const int64_t memory_ns_;
  std::map<int64_t, Look> looks_;
};

}  // namespace weir::launch
