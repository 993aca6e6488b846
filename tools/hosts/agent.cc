#include "tools/hosts/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/agent.pb.h"
#include "runtime/base/build_id.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/outcome.h"
#include "runtime/control/socket_address.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "runtime/limits/machine_memory.h"
#include "tools/hosts/address_probe.h"
#include "tools/hosts/frame_channel.h"
#include "tools/hosts/host_files.h"
#include "tools/hosts/host_name.h"
#include "tools/hosts/link_probe.h"
#include "tools/hosts/relay.h"
#include "tools/hosts/ssh_command.h"
#include "tools/launch/core_dumps.h"
#include "tools/launch/program_path.h"
#include "tools/launch/signal_watch.h"
#include "tools/launch/supervisor.h"
#include "tools/launch/worker_environment.h"

namespace weir::hosts {
namespace {

constexpr int kExitBadOrders = 70;
constexpr int kExitLost = 69;        // the starter is not reached, or is gone without a word
constexpr int64_t kJoinMs = 60'000;  // for an agent that the starter itself has started
// Looking at a process takes time, so many processes are looked at less often.
constexpr int64_t kUseEveryMsMin = 250;
constexpr int64_t kUseMsPerProcess = 10;
constexpr int kLookEveryMs = 1000;  // whether the starter's machine is still there
constexpr int kFlushEveryMs = 10;   // while the channel does not take what the agent says
// Lines beyond this are not sent while the channel is slow, so that no process waits for it. Pieces
// of a file beyond this wait.
constexpr size_t kWaitingBytesMax = 4 << 20;
constexpr size_t kOutputBytesMax = 1 << 20;  // of one report

// Returns the numbers of the cores that this process may use.
std::vector<int> OwnCores() {
  std::vector<int> numbers;
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) return numbers;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &cores)) numbers.push_back(core);
  }
  return numbers;
}

// Returns a TCP port that no process of this host has at this moment, or 0.
int FreePort() {
  const absl::StatusOr<launch::OwnedDescriptor> listener = ListenAt("0.0.0.0", 0);
  return listener.ok() ? control::SocketAddress::LocalOf(listener->get())->port() : 0;
}

// Returns the path of the program that processes run. kUnavailable with the name that no folder of
// PATH has, or with the file that may not be executed.
absl::StatusOr<std::string> ProgramOf(const proto::StartOrder& order) {
  if (order.program().empty()) return launch::ResolvedProgram(launch::kOwnProgramLink);
  const std::string program = launch::FindInOwnPath(order.program());
  if (!program.empty()) return program;
  if (const std::string file = launch::FindNotExecutable(order.program()); !file.empty()) {
    return ErrorOf(
        absl::StatusCode::kUnavailable,
        {"W0874", "", "a program that may be executed",
         absl::StrCat("'", file, "', which is not executable"),
         absl::StrCat("chmod +x ", Quoted(file), ", or the interpreter in front (python3, sh)")});
  }
  return absl::UnavailableError(absl::StrCat(
      "no program '", order.program(), "'",
      order.program().find('/') == std::string::npos ? " in the folders of PATH" : ""));
}

// sshd tells the ends of its connection: "<client> <port> <server> <port>".
std::string AddressFromSsh() {
  const char* const connection = ::getenv("SSH_CONNECTION");
  if (connection == nullptr) return "";
  const std::vector<std::string> words = absl::StrSplit(connection, ' ');
  return words.front();
}

proto::AgentHello Hello(const std::string& starter_address) {
  proto::AgentHello hello;
  hello.set_build_id(BuildId());
  hello.set_host_name(HostName());
  hello.set_machine(MachineId());
  hello.set_pid(::getpid());
  const std::vector<int> cores = OwnCores();
  hello.mutable_core()->Assign(cores.begin(), cores.end());
  hello.set_memory_bytes(limits::OwnMachineMemory().bytes);
  hello.set_starter_address(starter_address);
  struct statvfs shared = {};
  hello.set_shared_memory_bytes(::statvfs("/dev/shm", &shared) == 0
                                    ? static_cast<int64_t>(shared.f_bavail * shared.f_frsize)
                                    : -1);
  hello.set_gpus(device::CudaText(device::FindGpus()));
  hello.set_free_port(FreePort());
  for (const NetworkInterface& interface : OwnInterfaces()) {
    proto::AgentHello::Interface* const told = hello.add_interface();
    told->set_name(interface.name);
    for (const std::string& address : interface.addresses) told->add_address(address);
  }
  return hello;
}

// Collects what processes print, and wakes the thread that waits for them to print.
class OutputLines final : public std::stringbuf {
 public:
  int sync() override {
    if (supervisor != nullptr && !view().empty()) supervisor->Wake();
    return 0;
  }
  launch::Supervisor* supervisor = nullptr;
};

// The signal that the scheduler has sent, or 0.
volatile sig_atomic_t signal_received = 0;
void NoteSignal(int signal) { signal_received = signal; }

class Agent {
 public:
  Agent(FrameChannel channel, const AgentOptions& options)
      : channel_(std::move(channel)), options_(options) {}

  int Run(const std::string& starter_address) {
    proto::AgentReport report;
    *report.mutable_hello() = Hello(starter_address);
    Send(report);
    while (true) {
      std::vector<std::string> frames;
      const absl::Status status = channel_.Receive(&frames);
      for (const std::string& frame : frames) {
        proto::AgentOrder order;
        if (!order.ParseFromString(frame) || !Obey(order)) {
          std::cerr << "weir agent: an order of another version" << std::endl;
          return kExitBadOrders;
        }
      }
      if (absl::IsUnavailable(status)) return EndCode();
      if (!status.ok()) {
        std::cerr << "weir agent: " << status.message() << std::endl;
        return kExitBadOrders;
      }
      if (signal_received != 0) TellSignal();
      SendFetched();
      if (channel_.is_silent()) {
        std::cerr << "weir agent on " << HostName()
                  << ": the starter's machine is silent, so the job ends here" << std::endl;
        return kExitLost;
      }
      Serve();
    }
  }

 private:
  void Send(const proto::AgentReport& report) { channel_.Send(report.SerializeAsString()); }

  // Returns whether the order is known.
  bool Obey(const proto::AgentOrder& order) {
    switch (order.kind_case()) {
      case proto::AgentOrder::kStart: return Start(order.start());
      case proto::AgentOrder::kStartOne: return StartOne(order.start_one());
      case proto::AgentOrder::kTell: return Tell(order.tell());
      case proto::AgentOrder::kSignal:
        if (supervisor_ != nullptr) supervisor_->Signal(order.signal().signal());
        return true;
      case proto::AgentOrder::kKill: return Kill(order.kill());
      case proto::AgentOrder::kLook: return Look(order.look());
      case proto::AgentOrder::kHide:
        if (supervisor_ != nullptr) supervisor_->HideOutput();
        return true;
      case proto::AgentOrder::kProbe: return Probe(order.probe());
      case proto::AgentOrder::kListen: return ListenForProbes();
      case proto::AgentOrder::kClock: return TellTime(order.clock());
      case proto::AgentOrder::kMeasure: return Measure(order.measure());
      case proto::AgentOrder::kEnd: job_code_ = order.end().exit_code(); return true;
      case proto::AgentOrder::kFetch: return Fetch(order.fetch());
      case proto::AgentOrder::kShip: return Ship(order.ship());
      case proto::AgentOrder::kRemove: return Remove(order.remove());
      case proto::AgentOrder::kRelay: return ObeyAsRelay(order.relay());
      case proto::AgentOrder::KIND_NOT_SET: return false;
    }
    return false;
  }

  // After the end of the channel.
  int EndCode() const {
    if (job_code_.has_value()) return options_.code == AgentCode::kOfJob ? *job_code_ : 0;
    // A starter that is asked to end before the first step ends at once, without a word.
    const bool is_of_job = options_.code == AgentCode::kOfJob;
    if (was_asked_ || (signal_received != 0 && signal_received != SIGUSR1))
      return is_of_job ? launch::kExitInterrupted : 0;
    if (is_of_job)
      std::cerr << "weir agent on " << HostName()
                << ": the starter is gone without a word, so the job ends here" << std::endl;
    return kExitLost;
  }

  bool Start(const proto::StartOrder& order) {
    if (supervisor_ != nullptr) return false;
    targets_ = ProbeTargets();
    if (!order.folder().empty() && ::chdir(order.folder().c_str()) != 0) {
      std::error_code error;
      std::cerr << "this host has no folder " << order.folder()
                << ", so relative paths of the job count from "
                << std::filesystem::current_path(error).string() << std::endl;
    }
    for (const std::string& entry : order.environment()) {
      const size_t equals = entry.find('=');
      if (equals == std::string::npos || !launch::IsInherited(entry.substr(0, equals))) continue;
      ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, /*replace=*/0);
    }
    const absl::StatusOr<std::string> program = ProgramOf(order);
    if (!program.ok()) {
      proto::AgentReport report;
      *report.mutable_start()->mutable_outcome() = control::ToOutcome(program.status());
      Send(report);
      return true;
    }
    program_ = *program;
    IdVector<WorkerId, launch::WorkerLaunch> launches;
    for (const proto::StartOrder::Process& process : order.process())
      launches.push_back(LaunchOf(process));
    launch::SupervisorOptions options;
    options.log_directory = order.log_directory();
    if (order.logs_if_possible()) options.logs = launch::Logs::kIfPossible;
    for (const int32_t rank : order.rank_shown()) options.ranks_shown.emplace_back(rank);
    options.reap_ms = order.reap_ms();
    options.console = &console_;
    if (order.is_program_of_user()) {
      options.program = launch::WorkerProgram::kOfUser;
    } else {
      launch::KeepMemoryOutOfCoreDumps();  // the keys of workers pass through the agent
    }
    options.wake_descriptor = news();
    absl::StatusOr<std::unique_ptr<launch::Supervisor>> started =
        launch::Supervisor::Start(launches, options);
    proto::AgentReport report;
    *report.mutable_start()->mutable_outcome() = control::ToOutcome(started.status());
    if (started.ok()) {
      supervisor_ = *std::move(started);
      lines_.supervisor = supervisor_.get();
      num_processes_ = order.process_size();
      for (const WorkerId w : launches.ids()) {
        report.mutable_start()->add_pid(supervisor_->pid(w));
        report.mutable_start()->add_log_path(supervisor_->log_path(w));
      }
    }
    Send(report);
    return true;
  }

  launch::WorkerLaunch LaunchOf(const proto::StartOrder::Process& process) const {
    launch::WorkerLaunch launch;
    launch.arguments = {program_};
    launch.arguments.insert(launch.arguments.end(), process.argument().begin(),
                            process.argument().end());
    launch.label = process.label();
    for (const int32_t rank : process.rank()) launch.ranks.emplace_back(rank);
    launch.variables.assign(process.variable().begin(), process.variable().end());
    return launch;
  }

  bool StartOne(const proto::StartOneOrder& order) {
    const bool is_added = order.has_added() && order.process() == num_processes_;
    if (supervisor_ == nullptr || (!is_added && !IsProcess(order.process()))) return false;
    const WorkerId process(order.process());
    const absl::Status started = is_added ? supervisor_->StartMore(LaunchOf(order.added())).status()
                                          : supervisor_->StartAgain(process);
    if (is_added && started.ok()) ++num_processes_;
    if (IsProcess(order.process())) {
      const std::vector<WorkerId> running = supervisor_->running();
      if (std::count(running.begin(), running.end(), process) > 0) {
        ended_.erase(process);
      } else {
        ended_.insert(process);  // the report of this order tells it
      }
    }
    proto::AgentReport report;
    proto::StartOneReport* const one = report.mutable_start_one();
    one->set_request(order.request());
    *one->mutable_outcome() = control::ToOutcome(started);
    if (started.ok()) {
      one->set_pid(supervisor_->pid(process));
      one->set_log_path(supervisor_->log_path(process));
    }
    Send(report);
    return true;
  }

  bool Kill(const proto::KillOrder& order) {
    if (supervisor_ == nullptr || !IsProcess(order.process())) return false;
    supervisor_->Kill(WorkerId(order.process()));
    return true;
  }

  void TellSignal() {
    proto::AgentReport report;
    report.mutable_signal()->set_signal(signal_received);
    was_asked_ = was_asked_ || signal_received != SIGUSR1;
    signal_received = 0;
    if (options_.signals == AgentSignals::kTold) Send(report);
  }

  bool IsProcess(int process) const { return process >= 0 && process < num_processes_; }

  bool Tell(const proto::TellOrder& order) {
    if (!IsProcess(order.process())) return false;
    // The end of a process that is gone is reported.
    supervisor_->Tell(WorkerId(order.process()), order.bytes()).IgnoreError();
    return true;
  }

  bool Look(const proto::LookOrder& order) {
    std::vector<WorkerId> processes;
    for (const int32_t process : order.process()) {
      if (!IsProcess(process)) return false;
      processes.emplace_back(process);
    }
    proto::AgentReport report;
    report.mutable_look()->set_request(order.request());
    const std::vector<launch::WorkerLook> looks =
        order.is_glance() ? supervisor_->Glance(processes) : supervisor_->Look(processes);
    for (const launch::WorkerLook& look : looks) {
      proto::LookReport::Look* const answer = report.mutable_look()->add_look();
      answer->set_kind(static_cast<int32_t>(look.kind));
      for (const launch::StalledConnection& connection : look.stalled) {
        proto::LookReport::Stalled* const stalled = answer->add_stalled();
        stalled->set_local(connection.local);
        stalled->set_remote(connection.remote);
        stalled->set_bytes_waiting(connection.bytes_waiting);
        stalled->set_times_repeated(connection.times_repeated);
      }
    }
    Send(report);
    return true;
  }

  bool Probe(const proto::ProbeOrder& order) {
    proto::AgentReport report;
    report.mutable_probe();
    for (const std::string& address : order.address()) {
      const AddressProbe probe = ProbeAddress(address, order.limit_ms());
      proto::ProbeReport::Probe* const answer = report.mutable_probe()->add_probe();
      answer->set_address(address);
      answer->set_error(probe.error);
      answer->set_local_address(probe.local_address);
      answer->set_interface(probe.interface);
      answer->set_round_trip_us(probe.round_trip_us);
    }
    Send(report);
    return true;
  }

  bool ListenForProbes() {
    targets_ = OpenProbeTargets(OwnAddresses());
    proto::AgentReport report;
    report.mutable_listen();
    for (const std::string& address : targets_.addresses())
      report.mutable_listen()->add_address(address);
    Send(report);
    return true;
  }

  bool Measure(const proto::MeasureOrder& order) {
    const LinkSpeed speed = MeasureLink(order.address(), order.limit_ms());
    proto::AgentReport report;
    report.mutable_measure()->set_request(order.request());
    report.mutable_measure()->set_error(speed.error);
    report.mutable_measure()->set_round_trip_ns(speed.round_trip_ns);
    report.mutable_measure()->set_bytes_per_second(speed.bytes_per_second);
    Send(report);
    return true;
  }

  bool TellTime(const proto::ClockOrder& order) {
    proto::AgentReport report;
    report.mutable_clock()->set_request(order.request());
    report.mutable_clock()->set_real_ns(RealTimeNs());
    Send(report);
    return true;
  }

  bool Ship(const proto::ShipOrder& piece) {
    proto::AgentReport report;
    if (std::optional<proto::ShipReport> ended = shipped_.Take(piece)) {
      *report.mutable_ship() = *std::move(ended);
      Send(report);
    }
    return true;
  }

  bool Remove(const proto::RemoveOrder& order) {
    for (const std::string& path : order.path()) ::unlink(path.c_str());
    proto::AgentReport report;
    report.mutable_remove()->set_request(order.request());
    Send(report);
    return true;
  }

  bool ObeyAsRelay(const proto::RelayOrder& order) {
    const auto send = [this](const proto::RelayReport& of_command) {
      proto::AgentReport report;
      *report.mutable_relay() = of_command;
      Send(report);
    };
    if (relay_ == nullptr) {
      launch::KeepMemoryOutOfCoreDumps();  // the keys of workers on other hosts pass through
      absl::StatusOr<std::unique_ptr<Relay>> relay = Relay::Open(channel_.input(), send);
      if (!relay.ok()) {
        proto::RelayReport refused;
        refused.set_command(order.command());
        refused.mutable_end()->set_error(std::string(relay.status().message()));
        send(refused);
        return true;
      }
      relay_ = *std::move(relay);
    }
    return relay_->Obey(order);
  }

  // Returns the descriptor that shows orders, and what the commands of the relay have to say.
  int news() const { return relay_ == nullptr ? channel_.input() : relay_->descriptor(); }

  bool Fetch(const proto::FetchOrder& order) {
    if (!order.is_memory()) {
      fetched_.emplace(order);
      return true;
    }
    if (!IsProcess(order.process())) return false;
    fetched_.emplace(order.request(),
                     supervisor_->ReadMemory(WorkerId(order.process()), order.bytes_max()));
    return true;
  }

  // Sends pieces of the file that the starter fetches, as the channel takes them.
  void SendFetched() {
    while (fetched_.has_value() && channel_.num_waiting() < kWaitingBytesMax) {
      std::optional<proto::FetchReport> piece = fetched_->Next();
      if (!piece.has_value()) {
        fetched_.reset();
        return;
      }
      proto::AgentReport report;
      *report.mutable_fetch() = *std::move(piece);
      Send(report);
    }
  }

  // Waits for news of the processes or the channel, and reports them.
  void Serve() {
    const int64_t now_ms = clock_.NowNs() / 1'000'000;
    if (static_cast<int>(ended_.size()) == num_processes_) {
      pollfd polled = {news(), POLLIN, 0};
      ::poll(&polled, 1, channel_.num_waiting() > 0 ? kFlushEveryMs : kLookEveryMs);
    } else {
      const int64_t left_ms = std::max<int64_t>(0, next_use_ms_ - now_ms);
      absl::StatusOr<std::optional<launch::WorkerExit>> exit =
          supervisor_->Wait(channel_.num_waiting() > 0 ? kFlushEveryMs : left_ms);
      SendOutput();
      // Processes that have ended at the same moment come one by one.
      if (exit.ok() && exit->has_value()) SendExit(**exit);
      if (clock_.NowNs() / 1'000'000 >= next_use_ms_) SendUse();
    }
    channel_.Flush();
    if (relay_ != nullptr)
      relay_->Serve(channel_.num_waiting() > kWaitingBytesMax ? Relay::Flow::kHeld
                                                              : Relay::Flow::kFree);
  }

  void SendOutput() {
    std::string lines = std::move(lines_).str();
    lines_.str("");
    if (lines.empty()) return;
    if (channel_.num_waiting() > kWaitingBytesMax) {
      num_bytes_not_shown_ += lines.size();
      return;
    }
    if (num_bytes_not_shown_ > 0) {
      lines = absl::StrCat("[", HostName(), "] ", num_bytes_not_shown_,
                           " bytes of output are in the log files alone, because the connection "
                           "to the starter is slow\n",
                           lines);
      num_bytes_not_shown_ = 0;
    }
    for (size_t begin = 0; begin < lines.size(); begin += kOutputBytesMax) {
      proto::AgentReport report;
      report.mutable_output()->set_lines(lines.substr(begin, kOutputBytesMax));
      Send(report);
    }
  }

  void SendExit(const launch::WorkerExit& exit) {
    ended_.insert(exit.worker);
    proto::AgentReport report;
    proto::ExitReport* const end = report.mutable_exit();
    end->set_process(exit.worker.value());
    end->set_code(exit.code);
    end->set_signal(exit.signal);
    end->set_sent(static_cast<int32_t>(exit.sent));
    for (const std::string& line : exit.last_lines) end->add_last_line(line);
    end->set_cpu_ms(exit.cpu_ms);
    Send(report);
  }

  void SendUse() {
    next_use_ms_ =
        clock_.NowNs() / 1'000'000 + std::max(kUseEveryMsMin, kUseMsPerProcess * num_processes_);
    proto::AgentReport report;
    for (const WorkerId process : supervisor_->running()) {
      const std::optional<launch::ProcessorUse> use = supervisor_->Use(process);
      if (!use.has_value()) continue;
      proto::UseReport::Use* const fact = report.mutable_use()->add_use();
      fact->set_process(process.value());
      fact->set_is_ready(use->is_ready);
      fact->set_ticks(use->ticks);
      fact->set_waited_ns(use->waited_ns);
      fact->set_num_turns(use->num_turns);
    }
    Send(report);
  }

  const MonotonicClock clock_;
  FrameChannel channel_;
  const AgentOptions options_;
  bool was_asked_ = false;       // to end, by a signal
  std::optional<int> job_code_;  // once the starter has told it
  OutputLines lines_;            // printed and not yet sent
  std::ostream console_{&lines_};
  size_t num_bytes_not_shown_ = 0;
  int num_processes_ = 0;
  std::set<WorkerId> ended_;  // of these; their ends are reported
  std::string program_;       // of the processes
  int64_t next_use_ms_ = 0;
  ProbeTargets targets_;
  std::optional<FetchedFile> fetched_;
  ShippedFile shipped_;
  // Null until the starter reaches another host through this one. The orders to start workers come
  // later than the first order to the relay.
  std::unique_ptr<Relay> relay_;
  // Its workers are the processes of this host, by the same numbers.
  std::unique_ptr<launch::Supervisor> supervisor_;  // destroyed first: it kills the processes
};

}  // namespace

int RunAgent(std::shared_ptr<ByteStream> stream, const std::string& starter_address,
             const AgentOptions& options) {
  return Agent(FrameChannel(std::move(stream), FrameChannel::Side::kAgent), options)
      .Run(starter_address);
}

int RunAgentOnStandardStreams() {
  launch::OwnedDescriptor input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
  launch::OwnedDescriptor output(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  const launch::OwnedDescriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!input.open() || !output.open() || !nothing.open() ||
      ::dup2(nothing.get(), STDIN_FILENO) < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    std::cerr << "weir agent: standard input, output and error must be open" << std::endl;
    return 2;
  }
  return RunAgent(std::make_shared<PipeStream>(std::move(input), std::move(output)),
                  AddressFromSsh(), AgentOptions());
}

int RunAgentOfTask(const InvitationSource& source, TaskId task, const std::string& name,
                   const AgentOptions& options, int64_t limit_ms) {
  absl::StatusOr<Joined> joined = Join(source, task, name, limit_ms);
  if (!joined.ok()) {
    std::cerr << "weir agent: task " << task << " on " << name
              << " does not reach the starter: " << joined.status().message() << std::endl;
    return kExitLost;
  }
  struct sigaction action = {};
  action.sa_handler = &NoteSignal;  // without SA_RESTART, so that a poll returns
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) ::sigaction(signal, &action, nullptr);
  return RunAgent(joined->stream, joined->starter_address, options);
}

int RunInvitedAgent(const std::string& task_variable) {
  int task = -1;
  const char* const number = ::getenv(task_variable.c_str());
  if (number == nullptr || !absl::SimpleAtoi(number, &task)) {
    std::cerr << "weir agent: " << task_variable << " holds no number of a task" << std::endl;
    return 2;
  }
  const char* const node = ::getenv("SLURMD_NODENAME");
  std::string text;
  char bytes[1024];
  ssize_t count;
  while (text.size() <= kInvitationBytesMax && text.find('\n') == std::string::npos &&
         (count = ::read(STDIN_FILENO, bytes, sizeof(bytes))) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    text.append(bytes, static_cast<size_t>(count));
  }
  const absl::StatusOr<Invitation> invitation = ParseInvitation(text);
  if (!invitation.ok()) {
    std::cerr << "weir agent: standard input: " << invitation.status().message() << std::endl;
    return kExitBadOrders;
  }
  return RunAgentOfTask([&invitation] { return *invitation; }, TaskId(task),
                        node == nullptr ? HostName() : node,
                        {AgentSignals::kTold, AgentCode::kDone}, kJoinMs);
}

}  // namespace weir::hosts
