#include "tools/launch/cpu_starvation.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tools/launch/process_threads.h"

namespace weir::launch {
namespace {

constexpr int64_t kStarvedShare = 4;  // of a core: 1/4
constexpr int64_t kWaitingShare = 2;  // of the time: 1/2

}  // namespace

bool AddThread(const std::string& stat, ProcessorUse* use) {
  // "1234 (any name) R 1 ...": the state follows the name, and utime and stime are the 12th and
  // 13th fields after the state.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return false;
  const std::vector<std::string> fields =
      absl::StrSplit(stat.substr(name_end + 1), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t user = 0, system = 0;
  if (fields.size() < 13 || !absl::SimpleAtoi(fields[11], &user) ||
      !absl::SimpleAtoi(fields[12], &system))
    return false;
  use->is_ready |= fields[0] == "R";
  use->ticks += user + system;
  return true;
}

bool AddWaits(const std::string& schedstat, ProcessorUse* use) {
  // "ran waited turns"; the first two are in nanoseconds.
  const std::vector<std::string> fields =
      absl::StrSplit(schedstat, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t waited_ns = 0, turns = 0;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[1], &waited_ns) ||
      !absl::SimpleAtoi(fields[2], &turns))
    return false;
  use->waited_ns = std::max<int64_t>(use->waited_ns, 0) + waited_ns;
  use->num_turns = std::max<int64_t>(use->num_turns, 0) + turns;
  return true;
}

std::optional<ProcessorUse> ReadProcessorUse(pid_t pid) {
  ProcessorUse use;
  const bool is_there = ForEachThread(pid, [&use](const std::string& folder) {
    // A thread that has just ended counts for nothing.
    AddThread(ReadProcFile(folder + "/stat"), &use);
    AddWaits(ReadProcFile(folder + "/schedstat"), &use);
  });
  if (!is_there) return std::nullopt;
  return use;
}

bool CpuStarvation::IsStarved(int64_t process, const std::optional<ProcessorUse>& use,
                              int64_t now_ns) {
  auto last = looks_.find(process);
  if (last != looks_.end() && now_ns - last->second.time_ns > memory_ns_) {
    looks_.erase(last);
    last = looks_.end();
  }
  bool starved = use.has_value() && use->is_ready;
  if (starved && last != looks_.end()) {
    const double seconds = 1e-9 * static_cast<double>(now_ns - last->second.time_ns);
    const double used_seconds = static_cast<double>(use->ticks - last->second.ticks) /
                                static_cast<double>(ticks_per_second_);
    starved = used_seconds * kStarvedShare < seconds;
    // The system counts a wait when it ends. A wait that still lasts shows because no thread got a
    // turn.
    if (starved && use->waited_ns >= 0 && use->num_turns != last->second.num_turns) {
      const int64_t waited_ns = use->waited_ns - last->second.waited_ns;
      starved = waited_ns * kWaitingShare >= now_ns - last->second.time_ns;
    }
  }
  if (!starved) {
    looks_.erase(process);
    return false;
  }
  looks_[process] = {now_ns, use->ticks, use->waited_ns, use->num_turns, NumLooks(process) + 1};
  return true;
}

int CpuStarvation::NumLooks(int64_t process) const {
  const auto last = looks_.find(process);
  return last == looks_.end() ? 0 : last->second.number;
}

}  // namespace weir::launch
