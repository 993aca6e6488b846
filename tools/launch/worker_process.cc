#include "tools/launch/worker_process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/limits/process_limits.h"
#include "tools/launch/worker_environment.h"

namespace weir::launch {
namespace {

constexpr int kMemoryDescriptor = 3;
constexpr char kMemoryName[] = "weir-worker";
constexpr char kMemoryLink[] = "/memfd:weir-worker";
// The descriptors lie above those of the new process, which can then move them there in any order.
constexpr int kDescriptorMin = kMemoryDescriptor + 1;

absl::Status CannotStart(const std::string& program, const std::string& what, int error) {
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {"W0093", program, "a worker process", absl::StrCat(what, " failed: ", ::strerror(error)),
       limits::ShortageAdvice(error)});
}

struct Pipe {
  OwnedDescriptor read, write;
};

// Returns 0, or errno.
int MoveUp(OwnedDescriptor* descriptor) {
  if (descriptor->get() >= kDescriptorMin) return 0;
  const int moved = ::fcntl(descriptor->get(), F_DUPFD_CLOEXEC, kDescriptorMin);
  if (moved < 0) return errno;
  *descriptor = OwnedDescriptor(moved);
  return 0;
}

int OpenPipe(Pipe* pipe) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  pipe->read = OwnedDescriptor(ends[0]);
  pipe->write = OwnedDescriptor(ends[1]);
  if (int error = MoveUp(&pipe->read)) return error;
  return MoveUp(&pipe->write);
}

OwnedDescriptor MakeMemory() {
  OwnedDescriptor memory(::memfd_create(kMemoryName, MFD_CLOEXEC));
  return memory.open() && MoveUp(&memory) == 0 ? std::move(memory) : OwnedDescriptor();
}

// The data that the child needs between fork and exec. It is made before the fork, because the
// child may not allocate.
struct ChildSetup {
  pid_t parent = 0;
  int input = -1, output = -1, errors = -1, failure = -1;
  int memory = -1;  // -1: none
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
};

// The failure of a step before the program runs: which step failed, and why.
struct ChildFailure {
  int step = 0;
  int error = 0;
};
constexpr const char* kSteps[] = {"setpgid", "prctl", "dup2", "close_range", "exec"};

[[noreturn]] void GiveUp(const ChildSetup& setup, int step) {
  const ChildFailure failure = {step, errno};
  // The pipe is empty and the record is small, so the record is written completely, or not at all
  // if the parent is gone.
  const ssize_t written = ::write(setup.failure, &failure, sizeof(failure));
  ::_exit(written == sizeof(failure) ? 127 : 126);
}

// Runs in the child of a process that may have threads, so it makes async-signal-safe calls only.
[[noreturn]] void BecomeWorker(const ChildSetup& setup) {
  if (::setpgid(0, 0) != 0) GiveUp(setup, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) GiveUp(setup, 1);
  // The starter may have died before the request for the death signal. Then no process would send
  // that signal.
  if (::getppid() != setup.parent) ::_exit(126);
  if (::dup2(setup.input, 0) < 0 || ::dup2(setup.output, 1) < 0 || ::dup2(setup.errors, 2) < 0)
    GiveUp(setup, 2);
  if (::close_range(kMemoryDescriptor, UINT_MAX, CLOSE_RANGE_CLOEXEC) != 0) GiveUp(setup, 3);
  if (setup.memory >= 0 && ::dup2(setup.memory, kMemoryDescriptor) < 0) GiveUp(setup, 2);
  // All signals have been blocked since before the fork, so no handler of the starter has run here.
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(setup.arguments[0], setup.arguments, setup.environment);
  GiveUp(setup, 4);
}

std::vector<std::string> WholeEnvironment(const char* const* environment) {
  std::vector<std::string> entries;
  for (; *environment != nullptr; ++environment) entries.emplace_back(*environment);
  return entries;
}

std::vector<std::string> EnvironmentOf(const StartOptions& options) {
  std::vector<std::string> entries = options.environment == StartOptions::Environment::kWhole
                                         ? WholeEnvironment(::environ)
                                         : WorkerEnvironment(::environ);
  for (const std::string& variable : options.variables) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(entries, [&name](const std::string& entry) { return entry.rfind(name, 0) == 0; });
    entries.push_back(variable);
  }
  return entries;
}

// Returns pointers as execve takes them. The pointers point into `texts`.
std::vector<char*> PointersTo(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Returns the pid, or -1 with errno.
pid_t ForkWorker(const ChildSetup& setup) {
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) BecomeWorker(setup);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

// Reads until the program runs (which closes the pipe) or the child reports why it does not run.
bool ReadFailure(const OwnedDescriptor& pipe, ChildFailure* failure) {
  ssize_t count;
  do {
    count = ::read(pipe.get(), failure, sizeof(*failure));
  } while (count < 0 && errno == EINTR);
  return count == sizeof(*failure);
}

}  // namespace

absl::StatusOr<WorkerProcess> StartProcess(const std::vector<std::string>& arguments,
                                           const StartOptions& options) {
  if (arguments.empty()) return absl::InternalError("a worker without a program");
  const bool apart = options.streams == StartOptions::Streams::kApart;
  Pipe input, output, errors, failure;
  for (Pipe* pipe : {&input, &output, &errors, &failure}) {
    if (pipe == &errors && !apart) continue;
    if (int error = OpenPipe(pipe)) return CannotStart(arguments[0], "pipe", error);
  }
  WorkerProcess process;
  if (options.memory == StartOptions::Memory::kShared) process.memory = MakeMemory();
  const std::vector<std::string> environment = EnvironmentOf(options);
  const std::vector<char*> argument_pointers = PointersTo(arguments),
                           environment_pointers = PointersTo(environment);
  const ChildSetup setup = {::getpid(),
                            input.read.get(),
                            output.write.get(),
                            apart ? errors.write.get() : output.write.get(),
                            failure.write.get(),
                            process.memory.get(),
                            argument_pointers.data(),
                            environment_pointers.data()};
  process.pid = ForkWorker(setup);
  if (process.pid < 0) return CannotStart(arguments[0], "fork", errno);
  const pid_t pid = static_cast<pid_t>(process.pid);
  // The calls go by number, because the C library's header does not declare them for C++.
  process.process = OwnedDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  const int pidfd_error = errno;
  failure.write.Close();
  ChildFailure reason;
  const bool failed = ReadFailure(failure.read, &reason);
  if (failed || !process.process.open()) {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return failed ? CannotStart(arguments[0], kSteps[reason.step], reason.error)
                  : CannotStart(arguments[0], "pidfd_open", pidfd_error);
  }
  process.input = std::move(input.write);
  process.output = std::move(output.read);
  SetNonBlocking(process.input);
  SetNonBlocking(process.output);
  if (apart) {
    process.errors = std::move(errors.read);
    SetNonBlocking(process.errors);
  }
  return process;
}

int OwnMemory() {
  char link[64] = {};
  const std::string path = absl::StrCat("/proc/self/fd/", kMemoryDescriptor);
  const ssize_t length = ::readlink(path.c_str(), link, sizeof(link) - 1);
  const bool is_memory = length > 0 && std::string(link).starts_with(kMemoryLink);
  return is_memory ? kMemoryDescriptor : -1;
}

SigpipeHeld::SigpipeHeld() {
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::sigpending(&pending_);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before_);
}

SigpipeHeld::~SigpipeHeld() {
  const int error = errno;
  sigset_t pipe_signal, now;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::sigpending(&now);
  if (sigismember(&now, SIGPIPE) && !sigismember(&pending_, SIGPIPE)) {
    const timespec at_once = {};
    ::sigtimedwait(&pipe_signal, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

void SetNonBlocking(const OwnedDescriptor& descriptor) {
  ::fcntl(descriptor.get(), F_SETFL, ::fcntl(descriptor.get(), F_GETFL) | O_NONBLOCK);
}

ssize_t WriteToPipe(int descriptor, const char* bytes, size_t count) {
  const SigpipeHeld held;
  return ::write(descriptor, bytes, count);
}

void SendSignal(const WorkerProcess& process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process.process.get(), signal, nullptr, 0);
}

void SendToGroup(const WorkerProcess& process, int signal) {
  // Until it is collected, the leader keeps its pid, dead or not, and with the pid its group's id.
  if (::kill(-static_cast<pid_t>(process.pid), signal) != 0) SendSignal(process, signal);
}

void KillGroup(const WorkerProcess& process) {
  SendSignal(process, SIGKILL);  // in case the process has left its group
  SendToGroup(process, SIGKILL);
}

EndOfProcess Collect(const WorkerProcess& process) {
  const id_t id = static_cast<id_t>(process.process.get());
  siginfo_t info = {};
  while (::waitid(P_PIDFD, id, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  KillGroup(process);
  info = {};
  rusage used = {};
  long result;
  do {
    result = ::syscall(SYS_waitid, P_PIDFD, id, &info, WEXITED,
                       &used);  // the C library's wrapper has no fifth argument
  } while (result < 0 && errno == EINTR);
  // Only another wait for any child can have collected the process. Its exit is then unknown.
  if (result < 0) return {255, 0, 0};
  const int64_t cpu_ms = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                         (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000;
  if (info.si_code == CLD_EXITED) return {info.si_status, 0, cpu_ms};
  return {0, info.si_status, cpu_ms};
}

}  // namespace weir::launch
