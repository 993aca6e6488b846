#include "tools/launch/process_state.h"

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tools/launch/process_threads.h"

namespace weir::launch {
namespace {

using Kind = ProcessState::Kind;

constexpr int kLooksMax = 3;
// In /proc/PID/stat, behind the name: the place of the flags, and PF_EXITING of the kernel.
constexpr size_t kFlagsField = 6;
constexpr uint64_t kIsExiting = 0x4;
constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

struct Threads {
  int all = 0, stopped = 0, traced = 0, uninterruptible = 0, ready = 0;
};

// Adds a thread from the text of /proc/PID/task/TID/status.
void AddStatus(const std::string& status, Threads* threads, int64_t* num_switches) {
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    absl::string_view value = line;
    int64_t count = 0;
    if (absl::ConsumePrefix(&value, "State:")) {
      value = absl::StripLeadingAsciiWhitespace(value);
      const char state = value.empty() ? 'X' : value[0];
      if (state == 'X' || state == 'Z') continue;
      ++threads->all;
      threads->stopped += state == 'T';
      threads->traced += state == 't';
      threads->uninterruptible += state == 'D';
      threads->ready += state == 'R';
    } else if (absl::StrContains(line, "ctxt_switches:") &&
               absl::SimpleAtoi(line.substr(line.find(':') + 1), &count)) {
      *num_switches += count;
    }
  }
}

Kind KindOf(const Threads& threads) {
  if (threads.all == 0) return Kind::kGone;
  if (threads.ready > 0) return Kind::kReady;
  if (threads.stopped == threads.all) return Kind::kStopped;
  if (threads.traced > 0 && threads.stopped + threads.traced == threads.all) return Kind::kTraced;
  if (threads.uninterruptible > 0) return Kind::kUninterruptible;
  return Kind::kAsleep;
}

}  // namespace

ProcessState ReadProcessState(pid_t pid) {
  ProcessState state;
  Threads threads;
  ForEachThread(pid, [&](const std::string& folder) {
    AddStatus(ReadProcFile(folder + "/status"), &threads, &state.num_switches);
  });
  state.kind = KindOf(threads);
  return state;
}

bool IsEnding(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  // The name before the last ')' may hold any byte.
  const std::string stat = ReadProcFile(folder + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return true;
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  uint64_t flags = 0;
  if (fields.size() <= kFlagsField || !absl::SimpleAtoi(fields[kFlagsField], &flags)) return true;
  if (fields[0] == "Z" || fields[0] == "X" || (flags & kIsExiting) != 0) return true;
  for (const absl::string_view line : absl::StrSplit(ReadProcFile(folder + "/status"), '\n')) {
    absl::string_view value = line;
    uint64_t pending = 0;
    if ((absl::ConsumePrefix(&value, "SigPnd:") || absl::ConsumePrefix(&value, "ShdPnd:")) &&
        absl::SimpleHexAtoi(absl::StripAsciiWhitespace(value), &pending) &&
        (pending & (uint64_t{1} << (SIGKILL - 1))) != 0)
      return true;
  }
  return false;
}

Kind SettledKind(pid_t pid) {
  const ProcessState first = ReadProcessState(pid);
  ProcessState latest = first;
  for (int look = 0; look < kLooksMax && latest.kind == Kind::kUninterruptible; ++look) {
    if (latest.num_switches != first.num_switches) return Kind::kAsleep;
    std::this_thread::sleep_for(kBetweenLooks);
    latest = ReadProcessState(pid);
  }
  return latest.kind;
}

std::string StateText(Kind kind) {
  switch (kind) {
    case Kind::kGone: return "is gone";
    case Kind::kStopped: return "is stopped (state T)";
    case Kind::kTraced: return "is held by a debugger (state t)";
    case Kind::kUninterruptible: return "is held in the kernel (state D)";
    case Kind::kReady: return "is ready to run (state R)";
    case Kind::kAsleep: return "is asleep (state S)";
  }
  return "";
}

std::string StateAdvice(Kind kind, pid_t pid) {
  switch (kind) {
    case Kind::kStopped:
      return "somebody stopped the process by SIGSTOP or Ctrl-Z; `kill -CONT PID` within "
             "--dead-after lets such a process go on";
    case Kind::kTraced:
      return "a debugger or `strace` holds the process; a longer --dead-after leaves time to look";
    case Kind::kUninterruptible:
      return absl::StrCat(
          "a disk, a network file system, a driver or a frozen control group holds the process: "
          "`cat /proc/",
          pid, "/wchan /proc/", pid, "/cgroup` and `dmesg` tell which");
    default: return "";
  }
}

bool SilentProcess::IsSuspended(int64_t now_ns) {
  const ProcessState state = ReadProcessState(pid_);
  const bool is_fresh = !last_switches_.has_value() || now_ns - last_ns_ > memory_ns_;
  const bool has_run = !is_fresh && *last_switches_ != state.num_switches;
  last_switches_ = state.num_switches;
  last_ns_ = now_ns;
  switch (state.kind) {
    case Kind::kGone: return false;
    case Kind::kStopped:
    case Kind::kTraced: return true;
    case Kind::kReady: return starvation_.IsStarved(pid_, ReadProcessorUse(pid_), now_ns);
    case Kind::kUninterruptible:
    case Kind::kAsleep: return !has_run;
  }
  return false;
}

}  // namespace weir::launch
