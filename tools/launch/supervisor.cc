#include "tools/launch/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/owned_descriptor.h"
#include "tools/launch/wake_event.h"
#include "tools/launch/worker_output.h"
#include "tools/launch/worker_process.h"

namespace weir::launch {
namespace {

constexpr int64_t kNsPerMs = 1000 * 1000;
constexpr size_t kReadBytes = 64 * 1024;
// The bytes that are still read after a worker's end. This is more than a pipe holds by default,
// but bounded, because a process that the worker started may hold the other end and keep writing.
constexpr size_t kDrainBytesMax = 1024 * 1024;

struct Worker {
  Worker(WorkerProcess started, WorkerOutput read)
      : process(std::move(started)), output(std::move(read)) {}

  // The descriptor `output` belongs to the serving thread, which alone changes `pid`. The
  // supervisor's mutex guards `pid`, `input` and `process`. The serving thread alone closes the
  // descriptors, except for `input`.
  WorkerProcess process;
  WorkerOutput output;  // the serving thread's
};

// A WorkerState is what several threads know of a worker.
struct WorkerState {
  bool running = true;
  bool told = false;
  WorkerExit::Sent sent = WorkerExit::Sent::kNothing;
  std::string to_tell;  // bytes that the pipe has not taken yet, from `told_bytes` on
  size_t told_bytes = 0;
};

bool IsShown(const std::vector<RankId>& ranks, const std::vector<RankId>& shown) {
  return shown.empty() || std::any_of(ranks.begin(), ranks.end(), [&shown](RankId rank) {
           return std::find(shown.begin(), shown.end(), rank) != shown.end();
         });
}

enum class Listen { kToCaller, kToWorkersOnly };
enum class Served { kSomething, kWoken };

class LocalSupervisor final : public Supervisor {
 public:
  LocalSupervisor(SupervisorOptions options, OwnedDescriptor wake)
      : options_(std::move(options)), wake_(std::move(wake)) {}
  ~LocalSupervisor() override {
    for (const WorkerId w : workers_.ids()) {
      if (states_[w].running) KillGroup(workers_[w].process);
    }
    const int64_t end_ns = clock_.NowNs() + options_.reap_ms * kNsPerMs;
    for (const WorkerId w : workers_.ids()) {
      if (!states_[w].running) continue;
      pollfd ended = {workers_[w].process.process.get(), POLLIN, 0};
      if (::poll(&ended, 1, PollMs(std::max<int64_t>(end_ns - clock_.NowNs(), 0))) > 0)
        Collect(workers_[w].process);
    }
  }

  absl::Status StartWorkers(const IdVector<WorkerId, WorkerLaunch>& commands);

  absl::Status Tell(WorkerId worker, const std::string& bytes) override;
  absl::Status StartAgain(WorkerId worker) override;
  absl::StatusOr<WorkerId> StartMore(const WorkerLaunch& command) override;
  absl::StatusOr<std::optional<WorkerExit>> Wait(int64_t limit_ms) override;
  void Wake() override { wake_.Wake(); }
  int num_running() const override;
  int64_t pid(WorkerId worker) const override {
    MutexLock lock(&mutex_);
    return workers_[worker].process.pid;
  }
  void Signal(int signal) override;
  void Kill(WorkerId worker) override;
  std::vector<WorkerExit> Stop() override;
  std::vector<WorkerExit> Reap(int64_t limit_ms) override;
  std::vector<WorkerId> running() const override;
  std::string log_path(WorkerId worker) const override {
    MutexLock lock(&mutex_);
    return log_paths_[worker];
  }
  void HideOutput() override {
    for (Worker& worker : workers_) worker.output.Hide();
  }
  std::vector<WorkerLook> Look(const std::vector<WorkerId>& workers) override {
    std::vector<WorkerLook> looks;
    for (const WorkerId worker : workers) {
      const pid_t process = static_cast<pid_t>(pid(worker));
      looks.push_back({true, SettledKind(process), FindStalledConnections({process})});
    }
    return looks;
  }
  std::vector<WorkerLook> Glance(const std::vector<WorkerId>& workers) override {
    std::vector<WorkerLook> looks;
    for (const WorkerId worker : workers)
      looks.push_back({true, ReadProcessState(static_cast<pid_t>(pid(worker))).kind, {}});
    return looks;
  }
  absl::StatusOr<std::string> ReadMemory(WorkerId worker, int64_t bytes_max) override;
  std::optional<ProcessorUse> Use(WorkerId worker) override {
    return ReadProcessorUse(static_cast<pid_t>(pid(worker)));
  }

 private:
  absl::StatusOr<WorkerId> StartNext(const WorkerLaunch& command, Logs logs);
  absl::StatusOr<Worker> StartOne(const WorkerLaunch& command, const std::string& log_path,
                                  Logs logs) const;
  absl::StatusOr<Served> Serve(int64_t limit_ns, Listen listen);
  std::vector<pollfd> DescriptorsToPoll(Listen listen) const;
  void KillOne(WorkerId index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(WorkerId index, int signal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellMore(WorkerId index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t ReadOutput(Worker* worker);
  void End(WorkerId index, int64_t time_ns);
  std::optional<WorkerExit> NextExit();
  void StopWithin(int64_t limit_ns, Listen listen);

  const SupervisorOptions options_;
  WakeEvent wake_;
  const MonotonicClock clock_;
  // The serving thread alone adds to these three, under the mutex.
  IdVector<WorkerId, WorkerLaunch> commands_;
  IdVector<WorkerId, std::string> log_paths_;
  IdVector<WorkerId, Worker> workers_;
  std::deque<WorkerExit> exits_;  // for the serving thread: seen and not yet returned

  mutable Mutex mutex_;
  IdVector<WorkerId, WorkerState> states_ ABSL_GUARDED_BY(mutex_);
};

absl::Status LocalSupervisor::StartWorkers(const IdVector<WorkerId, WorkerLaunch>& commands) {
  if (options_.logs == Logs::kNeeded) WEIR_RETURN_IF_ERROR(MakeDirectories(options_.log_directory));
  std::set<std::string> names;
  for (const WorkerLaunch& command : commands) {
    const std::string name = LogFileName(command.label);
    if (!names.insert(name).second)
      return absl::InternalError(absl::StrCat("two workers log to ", name));
    WEIR_RETURN_IF_ERROR(StartNext(command, options_.logs).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerId> LocalSupervisor::StartMore(const WorkerLaunch& command) {
  return StartNext(command, Logs::kIfPossible);
}

absl::StatusOr<WorkerId> LocalSupervisor::StartNext(const WorkerLaunch& command, Logs logs) {
  const std::string log_path =
      absl::StrCat(options_.log_directory, "/", LogFileName(command.label));
  WEIR_ASSIGN_OR_RETURN(Worker worker, StartOne(command, log_path, logs));
  MutexLock lock(&mutex_);
  const WorkerId index = workers_.next_id();
  commands_.push_back(command);
  log_paths_.push_back(log_path);
  workers_.push_back(std::move(worker));
  states_.emplace_back();
  return index;
}

absl::StatusOr<Worker> LocalSupervisor::StartOne(const WorkerLaunch& command,
                                                 const std::string& log_path, Logs logs) const {
  absl::StatusOr<OwnedDescriptor> log = OpenLog(log_path);
  if (!log.ok() && logs == Logs::kNeeded) return log.status();
  if (!log.ok() && options_.console != nullptr) {
    *options_.console << "[" << command.label
                      << "] WARNING: this process has no log: " << log.status().message()
                      << std::endl;
  }
  StartOptions start;
  if (options_.program == WorkerProgram::kOfUser)
    start.environment = StartOptions::Environment::kWhole;
  start.variables = command.variables;
  if (options_.program == WorkerProgram::kWeir) start.memory = StartOptions::Memory::kShared;
  WEIR_ASSIGN_OR_RETURN(WorkerProcess process, StartProcess(command.arguments, start));
  std::ostream* console = IsShown(command.ranks, options_.ranks_shown) ? options_.console : nullptr;
  return Worker(std::move(process), WorkerOutput(log.ok() ? *std::move(log) : OwnedDescriptor(),
                                                 command.label, console));
}

absl::Status LocalSupervisor::StartAgain(WorkerId index) {
  const auto is_running = [this, index] {
    MutexLock lock(&mutex_);
    return states_[index].running;
  };
  if (is_running()) {
    MutexLock lock(&mutex_);
    Send(index, SIGKILL);
    KillGroup(workers_[index].process);
  }
  const int64_t end_ns = clock_.NowNs() + options_.reap_ms * kNsPerMs;
  while (is_running()) {
    const int64_t left_ns = end_ns - clock_.NowNs();
    if (left_ns <= 0) {
      return absl::UnavailableError(
          absl::StrCat("the process ", pid(index), " of worker ", index, " does not end"));
    }
    WEIR_RETURN_IF_ERROR(Serve(left_ns, Listen::kToWorkersOnly).status());
  }
  exits_.erase(std::remove_if(exits_.begin(), exits_.end(),
                              [index](const WorkerExit& exit) { return exit.worker == index; }),
               exits_.end());
  WEIR_ASSIGN_OR_RETURN(Worker worker,
                        StartOne(commands_[index], log_paths_[index], Logs::kIfPossible));
  MutexLock lock(&mutex_);
  workers_[index] = std::move(worker);
  states_[index] = WorkerState();
  return absl::OkStatus();
}

absl::Status LocalSupervisor::Tell(WorkerId index, const std::string& bytes) {
  MutexLock lock(&mutex_);
  const Worker& worker = workers_[index];
  WorkerState& state = states_[index];
  if (state.told)
    return absl::FailedPreconditionError(absl::StrCat("worker ", index, " was told already"));
  if (!state.running) return absl::UnavailableError(absl::StrCat("worker ", index, " is gone"));
  state.told = true;
  state.to_tell = bytes;
  TellMore(index);
  const bool taken = state.told_bytes == bytes.size();
  if (!taken && !worker.process.input.open())
    return absl::UnavailableError(absl::StrCat("worker ", index, " is gone"));
  if (!taken) wake_.Poke();
  return absl::OkStatus();
}

// Writes as much as the pipe takes. Closes the pipe after the last byte, or when it has no reader.
void LocalSupervisor::TellMore(WorkerId index) {
  WorkerProcess& process = workers_[index].process;
  WorkerState& state = states_[index];
  if (!state.told || !process.input.open()) return;
  while (state.told_bytes < state.to_tell.size()) {
    const ssize_t written =
        WriteToPipe(process.input.get(), state.to_tell.data() + state.told_bytes,
                    state.to_tell.size() - state.told_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) break;
    state.told_bytes += static_cast<size_t>(written);
  }
  process.input.Close();
  // The text may contain a secret.
  ::explicit_bzero(state.to_tell.data(), state.to_tell.size());
  state.to_tell = std::string();
}

absl::StatusOr<std::optional<WorkerExit>> LocalSupervisor::Wait(int64_t limit_ms) {
  const int64_t end_ns = limit_ms < 0 ? -1 : clock_.NowNs() + limit_ms * kNsPerMs;
  bool woken = false;
  while (true) {
    if (std::optional<WorkerExit> exit = NextExit()) return exit;
    if (woken || num_running() == 0) return std::nullopt;
    const int64_t left_ns = end_ns < 0 ? -1 : std::max<int64_t>(end_ns - clock_.NowNs(), 0);
    WEIR_ASSIGN_OR_RETURN(Served served, Serve(left_ns, Listen::kToCaller));
    woken = served == Served::kWoken || left_ns == 0;
  }
}

std::optional<WorkerExit> LocalSupervisor::NextExit() {
  if (exits_.empty()) return std::nullopt;
  WorkerExit exit = std::move(exits_.front());
  exits_.pop_front();
  return exit;
}

int LocalSupervisor::num_running() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(std::count_if(states_.begin(), states_.end(),
                                        [](const WorkerState& state) { return state.running; }));
}

void LocalSupervisor::Signal(int signal) {
  MutexLock lock(&mutex_);
  for (const WorkerId w : workers_.ids()) {
    if (states_[w].running) Send(w, signal);
  }
}

void LocalSupervisor::Kill(WorkerId worker) {
  MutexLock lock(&mutex_);
  KillOne(worker);
}

void LocalSupervisor::KillOne(WorkerId index) {
  if (!states_[index].running) return;
  Send(index, SIGKILL);
  KillGroup(workers_[index].process);
}

void LocalSupervisor::Send(WorkerId index, int signal) {
  if (options_.program == WorkerProgram::kOfUser) {
    SendToGroup(workers_[index].process, signal);
  } else {
    SendSignal(workers_[index].process, signal);
  }
  WorkerExit::Sent& sent = states_[index].sent;
  if (signal == SIGKILL) sent = WorkerExit::Sent::kKilled;
  if (signal == SIGTERM || signal == SIGINT) sent = std::max(sent, WorkerExit::Sent::kAsked);
}

// Returns the descriptors for poll: first the two wake-ups, then three for each worker. poll skips
// -1.
std::vector<pollfd> LocalSupervisor::DescriptorsToPoll(Listen listen) const {
  std::vector<pollfd> polled;
  polled.push_back({wake_.descriptor(), POLLIN, 0});
  polled.push_back({listen == Listen::kToCaller ? options_.wake_descriptor : -1, POLLIN, 0});
  MutexLock lock(&mutex_);
  for (const WorkerId w : workers_.ids()) {
    const WorkerProcess& process = workers_[w].process;
    polled.push_back({states_[w].running ? process.process.get() : -1, POLLIN, 0});
    polled.push_back({process.output.get(), POLLIN, 0});
    polled.push_back({states_[w].told ? process.input.get() : -1, POLLOUT, 0});
  }
  return polled;
}

// Polls once and serves what the poll shows. Errors are those of poll itself.
absl::StatusOr<Served> LocalSupervisor::Serve(int64_t limit_ns, Listen listen) {
  std::vector<pollfd> polled = DescriptorsToPoll(listen);
  const int num_ready = ::poll(polled.data(), polled.size(), PollMs(limit_ns));
  if (num_ready < 0 && errno != EINTR)
    return absl::InternalError(absl::StrCat("poll failed: ", ::strerror(errno)));
  if (num_ready <= 0) return Served::kSomething;
  const int64_t now_ns = clock_.NowNs();
  bool woken = polled[0].revents != 0 && wake_.TakeWake();
  woken = woken || polled[1].revents != 0;
  const auto polled_of = [&polled](WorkerId w) {
    return &polled[2 + 3 * static_cast<size_t>(w.value())];
  };
  for (const WorkerId w : workers_.ids()) {
    const pollfd* of_worker = polled_of(w);
    if (of_worker[2].revents != 0) {
      MutexLock lock(&mutex_);
      TellMore(w);
    }
    if (of_worker[1].revents != 0) ReadOutput(&workers_[w]);
  }
  for (const WorkerId w : workers_.ids()) {
    if (polled_of(w)->revents != 0) End(w, now_ns);
  }
  return woken ? Served::kWoken : Served::kSomething;
}

// Reads at most one piece, so that a worker that prints without end blocks nothing else. Returns
// the size of the piece.
size_t LocalSupervisor::ReadOutput(Worker* worker) {
  char bytes[kReadBytes];
  ssize_t count;
  do {
    count = ::read(worker->process.output.get(), bytes, sizeof(bytes));
  } while (count < 0 && errno == EINTR);
  if (count > 0) {
    worker->output.Append(bytes, static_cast<size_t>(count));
    return static_cast<size_t>(count);
  }
  if (count == 0 || errno != EAGAIN) worker->process.output.Close();
  return 0;
}

void LocalSupervisor::End(WorkerId index, int64_t time_ns) {
  Worker& worker = workers_[index];
  EndOfProcess end;
  WorkerExit::Sent sent = WorkerExit::Sent::kNothing;
  {
    MutexLock lock(&mutex_);
    WorkerState& state = states_[index];
    end = Collect(worker.process);  // the process has ended, so this does not block
    state.running = false;
    worker.process.process.Close();
    worker.process.input.Close();
    ::explicit_bzero(state.to_tell.data(), state.to_tell.size());
    sent = state.sent;  // nothing is sent to a worker that does not run
  }
  size_t drained = 0;
  while (worker.process.output.open() && drained < kDrainBytesMax) {
    const size_t count = ReadOutput(&worker);
    if (count == 0) break;
    drained += count;
  }
  worker.process.output.Close();
  worker.output.Finish();
  exits_.push_back({index, worker.process.pid, end.code, end.signal, sent, time_ns,
                    worker.output.last_lines(), end.cpu_ms, /*lost=*/""});
}

absl::StatusOr<std::string> LocalSupervisor::ReadMemory(WorkerId index, int64_t bytes_max) {
  const OwnedDescriptor& memory = workers_[index].process.memory;
  struct stat found = {};
  if (!memory.open() || ::fstat(memory.get(), &found) != 0)
    return absl::NotFoundError(absl::StrCat("worker ", index, " has no memory that outlives it"));
  if (found.st_size > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("worker ", index, " has left ", found.st_size,
                                                     " bytes, more than the ", bytes_max,
                                                     " wanted"));
  }
  std::string bytes(static_cast<size_t>(found.st_size), '\0');
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count =
        ::pread(memory.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      return absl::NotFoundError(absl::StrCat("the memory of worker ", index, " cannot be read"));
    at += static_cast<size_t>(count);
  }
  return bytes;
}

std::vector<WorkerExit> LocalSupervisor::Stop() {
  {
    MutexLock lock(&mutex_);
    for (const WorkerId w : workers_.ids()) {
      if (!states_[w].running) continue;
      Send(w, SIGTERM);
      Send(w, SIGCONT);  // the worker finds the other signal when it wakes
    }
  }
  StopWithin(std::max<int64_t>(options_.grace_ms, 0) * kNsPerMs, Listen::kToCaller);
  for (const WorkerId w : workers_.ids()) {
    MutexLock lock(&mutex_);
    KillOne(w);
  }
  return Reap(options_.reap_ms);
}

std::vector<WorkerExit> LocalSupervisor::Reap(int64_t limit_ms) {
  StopWithin(limit_ms * kNsPerMs, Listen::kToWorkersOnly);
  std::vector<WorkerExit> exits(std::make_move_iterator(exits_.begin()),
                                std::make_move_iterator(exits_.end()));
  exits_.clear();
  return exits;
}

std::vector<WorkerId> LocalSupervisor::running() const {
  MutexLock lock(&mutex_);
  std::vector<WorkerId> ids;
  for (const WorkerId w : states_.ids()) {
    if (states_[w].running) ids.push_back(w);
  }
  return ids;
}

// Serves until no worker runs, the limit has passed, or the caller's descriptor is readable.
void LocalSupervisor::StopWithin(int64_t limit_ns, Listen listen) {
  const int64_t end_ns = clock_.NowNs() + limit_ns;
  while (num_running() > 0) {
    const int64_t left_ns = end_ns - clock_.NowNs();
    if (left_ns <= 0) return;
    absl::StatusOr<Served> served = Serve(left_ns, listen);
    if (!served.ok()) return;
    pollfd caller = {options_.wake_descriptor, POLLIN, 0};
    if (listen == Listen::kToCaller && ::poll(&caller, 1, 0) > 0) return;
  }
}

}  // namespace

absl::Status Supervisor::StartAgain(WorkerId worker) {
  return absl::UnimplementedError(
      absl::StrCat("worker ", worker, " cannot start anew beside the others"));
}

absl::StatusOr<WorkerId> Supervisor::StartMore(const WorkerLaunch& /*worker*/) {
  return absl::UnimplementedError("no worker can start beside the others");
}

absl::StatusOr<std::string> Supervisor::ReadMemory(WorkerId worker, int64_t /*bytes_max*/) {
  return absl::NotFoundError(absl::StrCat("worker ", worker, " has no memory that outlives it"));
}

void KeepExits() {
  struct sigaction action = {};
  if (::sigaction(SIGCHLD, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) return;
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &action, nullptr);
}

std::string SignalText(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal)
                         : absl::StrCat("SIG", name, " (", signal, ")");
}

std::string ExitText(const WorkerExit& exit) {
  if (!exit.lost.empty()) return exit.lost;
  return exit.signal != 0 ? absl::StrCat("killed by ", SignalText(exit.signal))
                          : absl::StrCat("exit code ", exit.code);
}

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Start(
    const IdVector<WorkerId, WorkerLaunch>& workers, SupervisorOptions options) {
  KeepExits();
  WEIR_ASSIGN_OR_RETURN(OwnedDescriptor wake, WakeEvent::Open());
  auto supervisor = std::make_unique<LocalSupervisor>(std::move(options), std::move(wake));
  WEIR_RETURN_IF_ERROR(supervisor->StartWorkers(workers));
  return supervisor;
}

}  // namespace weir::launch
