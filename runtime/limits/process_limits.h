// Describes the limits that the system sets this process (`ulimit`): the limit behind a failure,
// its value, and the limit to raise. A failure for want of descriptors, threads, memory, processor
// time or file size is not a fault of any program. Thread rule: any thread.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace weir::limits {

// Returns "ulimit -v: 1048576 KiB" if the resource (RLIMIT_AS) is limited, else empty.
std::string LimitText(int resource);
// Returns "1048576 KiB" or "unlimited".
std::string LimitValue(int resource, rlim_t value);

// Returns advice after a call that failed with this errno, with the limits that lead to the errno
// and their values. Empty for errors that no limit causes.
std::string ShortageAdvice(int error);
// Returns the error W0981, kUnavailable: the system refused this process something. `what` names
// the refused thing, such as "a thread".
absl::Status Refused(const std::string& where, const std::string& what, int error);

// Raises the limits that this process may raise by itself: descriptors, and the stack of new
// threads. main calls this function once.
void RaiseOwnLimits();
// W0982, kUnavailable: a limit is lower than any run needs (open files, stack). main calls this
// function before anything else.
absl::Status CheckLimits();

// Checks that `count` more threads can run now beside the present threads, by starting and ending
// them. Otherwise W0981, with the number that can run.
absl::Status CheckRoomForThreads(const std::string& where, int count);
// Checks that this process can open `count` more files now. Otherwise W0981.
absl::Status CheckRoomForFiles(const std::string& where, int count);
// Checks that `bytes` more of address space can be reserved now. Otherwise W0981.
absl::Status CheckRoomForAddresses(const std::string& where, int64_t bytes);

// Installs handlers for uncaught failures that a limit explains: an exception for want of memory or
// threads on any thread; a bad memory access or an abort while the address space or the stack is
// limited; the limit of processor time. Such a failure is reported on standard error with the
// limit, and ends the process with kExitRefused. Writing beyond the limit of file size is an error
// of the write, as a full disk is. main calls this function once, on the main thread, whose signal
// handlers get a stack of their own.
enum class OnTimeUp {
  kEndInOrder,  // as SIGTERM asks for; the remaining time decides how far the end comes
  kEndAtOnce,   // for a worker: its starter reports the rest
};
void ReportLimitsAtTheEnd(OnTimeUp on_time_up);
inline constexpr int kExitRefused = 69;

}  // namespace weir::limits
