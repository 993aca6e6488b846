#include "runtime/limits/process_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::limits {
namespace {

constexpr rlim_t kStackOfThreads = 8 << 20;
constexpr rlim_t kStackMin = 1 << 20;
constexpr rlim_t kFilesMin = 10;  // standard streams, the job, its data, an output
constexpr size_t kProbeStackBytes = 64 << 10;
constexpr size_t kSignalStackBytes = 64 << 10;
// Seconds of processor time between the system's warning and the kill.
constexpr rlim_t kSecondsToEnd = 1;

struct KnownLimit {
  int resource;
  const char* flag;
  rlim_t unit;
  const char* unit_name;
};
constexpr KnownLimit kKnown[] = {
    {RLIMIT_AS, "-v", 1024, " KiB"},      {RLIMIT_DATA, "-d", 1024, " KiB"},
    {RLIMIT_STACK, "-s", 1024, " KiB"},   {RLIMIT_NPROC, "-u", 1, ""},
    {RLIMIT_NOFILE, "-n", 1, ""},         {RLIMIT_FSIZE, "-f", 1024, " KiB"},
    {RLIMIT_MEMLOCK, "-l", 1024, " KiB"}, {RLIMIT_CPU, "-t", 1, " s"},
};

const KnownLimit* Find(int resource) {
  for (const KnownLimit& known : kKnown) {
    if (known.resource == resource) return &known;
  }
  return nullptr;
}

rlimit Get(int resource) {
  rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit;
}

bool IsLimited(int resource) { return Get(resource).rlim_cur != RLIM_INFINITY; }

// Lists the limits that are set, among the resources that may be behind an error.
std::string Raise(const std::vector<int>& resources, const std::string& else_advice) {
  std::vector<std::string> texts;
  for (int resource : resources) {
    if (std::string text = LimitText(resource); !text.empty()) texts.push_back(std::move(text));
  }
  if (texts.empty()) return else_advice;
  return absl::StrCat("raise the limit (", absl::StrJoin(texts, ", "), ")",
                      else_advice.empty() ? "" : ", or ", else_advice);
}

// --- The end ---

// The texts that the handlers print. They are made in advance, because a handler may not allocate.
char text_of_memory[512], text_of_threads[512], text_of_time[512], text_of_crash[768];

void Keep(const std::string& text, char* place, size_t room) {
  const std::string line = text.empty() ? "" : absl::StrCat("weir: ", text, "\n");
  ::strncpy(place, line.c_str(), room - 1);
}

[[noreturn]] void EndWith(const char* text) {
  (void)!::write(STDERR_FILENO, text, ::strlen(text));
  ::_exit(kExitRefused);
}

// Returns whether the system refuses this process a thread now.
bool IsRefusedAThread() {
  pthread_t thread;
  const int error = ::pthread_create(
      &thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
  if (error == 0) ::pthread_join(thread, nullptr);
  return error == EAGAIN;
}

[[noreturn]] void OnTerminate() {
  try {
    if (std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    EndWith(text_of_memory);
  } catch (const std::system_error& error) {
    if (error.code().value() == EAGAIN) EndWith(text_of_threads);
    if (IsLimited(RLIMIT_AS) || error.code().value() == ENOMEM) EndWith(text_of_memory);
  } catch (...) {
  }
  // An object whose constructor fails for want of a thread may end the process while it is undone.
  if (IsRefusedAThread()) EndWith(text_of_threads);
  std::abort();
}

// Reports a bad access or an abort, where a limit is a likelier reason than a bug.
void OnCrash(int) { EndWith(text_of_crash); }

void OnProcessorTimeAtOnce(int) { EndWith(text_of_time); }

void OnProcessorTime(int) {
  static volatile sig_atomic_t told = 0;
  if (told != 0) return;
  told = 1;
  const int error = errno;
  (void)!::write(STDERR_FILENO, text_of_time, ::strlen(text_of_time));
  ::raise(SIGTERM);
  errno = error;
}

void Handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  ::sigaction(signal, &action, nullptr);
}

// Gives this thread, the main one, a stack for signal handlers. A handler that runs on the stack of
// a kernel may overwrite the heap (runtime/device/kernel_thread.h).
void MakeSignalStack() {
  static char stack_bytes[kSignalStackBytes];
  stack_t stack = {};
  stack.ss_sp = stack_bytes;
  stack.ss_size = sizeof(stack_bytes);
  ::sigaltstack(&stack, nullptr);
}

void HandleCrashes() {
  std::string suspects = Raise({RLIMIT_AS, RLIMIT_DATA}, "");
  if (Get(RLIMIT_STACK).rlim_cur < kStackOfThreads)
    suspects = Raise({RLIMIT_AS, RLIMIT_DATA, RLIMIT_STACK}, "");
  if (suspects.empty()) return;
  Keep(absl::StrCat("W0983 at this process: expected memory when it was asked for; found a crash "
                    "while limits are in force that let "
                    "such requests fail. Try: ",
                    suspects, "; only a crash without them is a fault of weir."),
       text_of_crash, sizeof(text_of_crash));
  for (int signal : {SIGSEGV, SIGBUS, SIGABRT}) Handle(signal, OnCrash, SA_ONSTACK | SA_RESETHAND);
}

void HandleProcessorTime(OnTimeUp on_time_up) {
  rlimit limit = Get(RLIMIT_CPU);
  if (limit.rlim_cur == RLIM_INFINITY) return;
  // At the hard limit the system kills without a message.
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_cur + kSecondsToEnd > limit.rlim_max &&
      limit.rlim_max > kSecondsToEnd) {
    limit.rlim_cur = limit.rlim_max - kSecondsToEnd;
    ::setrlimit(RLIMIT_CPU, &limit);
  }
  Handle(SIGXCPU, on_time_up == OnTimeUp::kEndInOrder ? OnProcessorTime : OnProcessorTimeAtOnce,
         SA_RESTART | SA_ONSTACK);
}

void* Nothing(void* gate) {
  ::pthread_mutex_lock(static_cast<pthread_mutex_t*>(gate));
  ::pthread_mutex_unlock(static_cast<pthread_mutex_t*>(gate));
  return nullptr;
}

}  // namespace

std::string LimitValue(int resource, rlim_t value) {
  const KnownLimit* known = Find(resource);
  if (value == RLIM_INFINITY || known == nullptr) return "unlimited";
  return absl::StrCat(static_cast<uint64_t>(value / known->unit), known->unit_name);
}

std::string LimitText(int resource) {
  const KnownLimit* known = Find(resource);
  const rlimit limit = Get(resource);
  if (known == nullptr || limit.rlim_cur == RLIM_INFINITY) return "";
  // This program itself sets the soft limit of processor time.
  const rlim_t value =
      resource == RLIMIT_CPU && limit.rlim_max != RLIM_INFINITY ? limit.rlim_max : limit.rlim_cur;
  return absl::StrCat("ulimit ", known->flag, ": ", LimitValue(resource, value));
}

std::string ShortageAdvice(int error) {
  switch (error) {
    case EMFILE: return Raise({RLIMIT_NOFILE}, "use fewer processes and devices");
    case ENFILE: return "the system has no more open files: /proc/sys/fs/file-max";
    case EAGAIN:
      return Raise(
          {RLIMIT_NPROC, RLIMIT_AS},
          "use fewer processes, devices and threads; a container may also limit them (pids.max)");
    case ENOMEM:
      return Raise({RLIMIT_AS, RLIMIT_DATA},
                   "use less memory: `weir plan` tells what the job needs");
    case EFBIG: return Raise({RLIMIT_FSIZE}, "use a file system that takes larger files");
    default: return "";
  }
}

absl::Status Refused(const std::string& where, const std::string& what, int error) {
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0981", where, what, ::strerror(error), ShortageAdvice(error)});
}

void RaiseOwnLimits() {
  rlimit files = Get(RLIMIT_NOFILE);
  if (files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  rlimit stack = Get(RLIMIT_STACK);
  if (stack.rlim_cur < kStackOfThreads && stack.rlim_cur < stack.rlim_max) {
    stack.rlim_cur = std::min(kStackOfThreads, stack.rlim_max);
    ::setrlimit(RLIMIT_STACK, &stack);
  }
  // New threads take the size that the limit had when the program was loaded.
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  size_t bytes = 0;
  if (::pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < kStackOfThreads &&
      ::pthread_attr_setstacksize(&attributes, kStackOfThreads) == 0) {
    ::pthread_setattr_default_np(&attributes);
  }
  ::pthread_attr_destroy(&attributes);
}

absl::Status CheckLimits() {
  const rlimit files = Get(RLIMIT_NOFILE), stack = Get(RLIMIT_STACK);
  if (files.rlim_cur < kFilesMin) {
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {"W0982", "this process", absl::StrCat("at least ", kFilesMin, " open files"),
                    LimitText(RLIMIT_NOFILE), Raise({RLIMIT_NOFILE}, "")});
  }
  if (stack.rlim_cur >= kStackMin) return absl::OkStatus();
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0982", "this process",
                  absl::StrCat("a stack of at least ", LimitValue(RLIMIT_STACK, kStackMin)),
                  LimitText(RLIMIT_STACK), Raise({RLIMIT_STACK}, "")});
}

absl::Status CheckRoomForThreads(const std::string& where, int count) {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kProbeStackBytes);
  std::vector<pthread_t> threads;
  int error = 0;
  ::pthread_mutex_lock(&gate);  // so that all are there at once
  while (error == 0 && static_cast<int>(threads.size()) < count) {
    pthread_t thread;
    error = ::pthread_create(&thread, &attributes, Nothing, &gate);
    if (error == 0) threads.push_back(thread);
  }
  ::pthread_mutex_unlock(&gate);
  for (pthread_t thread : threads) ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) return absl::OkStatus();
  return Refused(
      where, absl::StrCat("room for ", count, " more threads, and there is for ", threads.size()),
      error);
}

absl::Status CheckRoomForFiles(const std::string& where, int count) {
  std::vector<int> opened;
  int error = 0;
  while (error == 0 && static_cast<int>(opened.size()) < count) {
    const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) error = errno;
    if (descriptor >= 0) opened.push_back(descriptor);
  }
  for (int descriptor : opened) ::close(descriptor);
  if (error != EMFILE && error != ENFILE) return absl::OkStatus();
  return Refused(
      where, absl::StrCat("room for ", count, " more open files, and there is for ", opened.size()),
      error);
}

absl::Status CheckRoomForAddresses(const std::string& where, int64_t bytes) {
  if (bytes <= 0 || !IsLimited(RLIMIT_AS)) return absl::OkStatus();
  void* const place = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place != MAP_FAILED) {
    ::munmap(place, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  return Refused(where, absl::StrCat("room for ", bytes >> 20, " MiB more of address space"),
                 ENOMEM);
}

void ReportLimitsAtTheEnd(OnTimeUp on_time_up) {
  const auto refused = [](const char* what, int error) {
    return std::string(Refused("this process", what, error).message());
  };
  Keep(refused("memory", ENOMEM), text_of_memory, sizeof(text_of_memory));
  Keep(refused("another thread", EAGAIN), text_of_threads, sizeof(text_of_threads));
  Keep(absl::StrCat("W0984 at this process: expected processor time for the whole job; found that "
                    "the limit is used up. Try: ",
                    Raise({RLIMIT_CPU}, "")),
       text_of_time, sizeof(text_of_time));
  std::set_terminate(OnTerminate);
  MakeSignalStack();
  Handle(SIGXFSZ, SIG_IGN, 0);
  HandleProcessorTime(on_time_up);
  HandleCrashes();
}

}  // namespace weir::limits
