#include "tools/sandbox/process_limits.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace weir::sandbox {
namespace {

// Runs in a signal handler: writes a text that was made before, and ends the process.
[[noreturn]] void EndForTime(int) {
  static constexpr char kText[] =
      "weir: W0816: expected at most 3600 s of CPU time; found more. Try: a smaller job, or "
      "WEIR_SANDBOX=off if it may take that long.\n";
  static_assert(kCpuSecondsMax == 3600);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof(kText) - 1);
  ::_exit(65);
}

void LimitTo(__rlimit_resource_t resource, rlim_t most) {
  rlimit limit;
  if (::getrlimit(resource, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_cur, most);
  ::setrlimit(resource, &limit);
}

}  // namespace

void LimitProcess(CpuTime time) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0)
    LimitTo(RLIMIT_AS, static_cast<rlim_t>(pages) * static_cast<rlim_t>(page_bytes));
#endif
  LimitTo(RLIMIT_CORE, 0);
  if (time == CpuTime::kUnlimited) return;
  struct sigaction action = {};
  action.sa_handler = EndForTime;
  ::sigaction(SIGXCPU, &action, nullptr);
  LimitTo(RLIMIT_CPU, kCpuSecondsMax);
}

}  // namespace weir::sandbox
