// Whether a process says nothing because others have the cores: a thread of it is ready to run, and
// hardly any of them gets to. A process that was stopped, or that waits for a lock or a disk, is
// not starved. From /proc, so of processes of this host. Thread rule: one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace weir {

// Of all threads of a process.
struct ProcessorUse {
  bool is_ready = false;  // some thread runs or waits for a core
  int64_t ticks = 0;      // of processor time used so far
  // Time spent ready and without a core, and how often a thread got one. Negative where the system
  // does not count them.
  int64_t waited_ns = -1;
  int64_t num_turns = -1;
};

// Adds a thread, given as /proc/PID/task/TID/stat has it; false if that is not what `stat` is.
bool AddThread(const std::string& stat, ProcessorUse* use);
// Adds what /proc/PID/task/TID/schedstat says of a thread; false if that is not what `schedstat`
// is.
bool AddWaits(const std::string& schedstat, ProcessorUse* use);
// nullopt if there is no such process (any more).
std::optional<ProcessorUse> ReadProcessorUse(pid_t pid);

class CpuStarvation {
 public:
  // `ticks_per_second`: as sysconf(_SC_CLK_TCK). Looks that lie further apart have nothing to do
  // with each other.
  CpuStarvation(int64_t ticks_per_second, int64_t memory_ns)
      : ticks_per_second_(ticks_per_second), memory_ns_(memory_ns) {}

  // A look at a process from which nothing was heard; again while that lasts. The first look
  // believes a process that is ready to run. The next ones ask for more: since the last look it has
  // used less than a quarter of a core, and has waited for one at least half of the time. (A
  // process that sleeps and wakes to look around uses little, too, and may be ready at the moment
  // of a look.)
  bool IsStarved(pid_t pid, const std::optional<ProcessorUse>& use, int64_t now_ns);
  // How many looks in a row, the last among them, have found it starved.
  int NumLooks(pid_t pid) const;

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
  std::map<pid_t, Look> looks_;
};

}  // namespace weir
