// The limits that the system sets this process (`ulimit`), in words: which of them is behind a
// failure, what it is and what to raise. What fails for want of descriptors, threads, memory,
// processor time or file size is a fault of nobody's program. Thread rule: any thread.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace weir {

// "ulimit -v: 1048576 KiB" if the resource (RLIMIT_AS) is limited, else empty.
std::string LimitText(int resource);
// "1048576 KiB", "unlimited".
std::string LimitValue(int resource, rlim_t value);

// What to try after a call that failed with this errno: names the limits that lead to it, with
// their values. Empty for errors that no limit causes.
std::string ShortageAdvice(int error);
// That this process was refused something, in the words of W0981: kUnavailable. `what` it asked
// for, such as "a thread".
absl::Status Refused(const std::string& where, const std::string& what, int error);

// Takes the larger limits that this process may take without asking: descriptors, and the stack of
// new threads. By main, once.
void RaiseOwnLimits();
// W0982, kUnavailable: a limit is lower than any run needs (stack). By main, before anything else.
absl::Status CheckLimits();

// Whether `count` more threads can run now, beside those that do: makes them, and ends them. W0981
// if not, with how many can.
absl::Status CheckRoomForThreads(const std::string& where, int count);
// Whether this process can open `count` more files now. W0981 if not.
absl::Status CheckRoomForFiles(const std::string& where, int count);
// Whether `bytes` more of address space can be reserved now. W0981 if not.
absl::Status CheckRoomForAddresses(const std::string& where, int64_t bytes);

// From here on a failure that nobody catches and that a limit explains (an exception for want of
// memory or threads on any thread; a bad memory access or an abort while the address space or the
// stack is limited; the limit of processor time) is told on standard error with the limit, and ends
// the process with kExitRefused. Writing beyond the limit of file size is an error of the write, as
// a full disk is. By main, once.
enum class OnTimeUp {
  kEndInOrder,  // as SIGTERM asks for; what is left of the time decides how far that comes
  kEndAtOnce,   // a worker: its starter tells the rest
};
void ReportLimitsAtTheEnd(OnTimeUp on_time_up);
inline constexpr int kExitRefused = 69;

}  // namespace weir
