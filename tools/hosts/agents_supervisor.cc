#include "tools/hosts/agents_supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/outcome.h"
#include "tools/launch/program_path.h"
#include "tools/launch/signal_watch.h"

namespace weir::hosts {
namespace {

using launch::OwnedDescriptor;
using launch::WorkerExit;

constexpr int64_t kNsPerMs = 1000 * 1000;
constexpr int64_t kLastTextMs = 500;  // for the last words of a command whose channel has closed
// An agent that says nothing for a third of the limit is reached in another way, if there is one.
constexpr int64_t kSilencesInLimit = 3;
constexpr int64_t kLooksInSilence = 10;
constexpr size_t kReadBytes = 16 << 10;
constexpr int64_t kMayLackMs = 3000;  // for agents that need not come, once the others have

// Returns the name of a command's program, without its folder.
std::string ProgramName(const std::vector<std::string>& arguments) {
  return arguments[0].substr(arguments[0].rfind('/') + 1);
}

}  // namespace

proto::AgentOrder EndOrderOf(int exit_code) {
  proto::AgentOrder order;
  order.mutable_end()->set_exit_code(exit_code);
  return order;
}

void AwaitClose(FrameChannel* channel, int64_t end_ns) {
  const MonotonicClock clock;
  while (channel->open() && clock.NowNs() < end_ns) {
    pollfd closed = {channel->input(), POLLIN, 0};
    ::poll(&closed, 1, launch::PollMs(end_ns - clock.NowNs()));
    std::vector<std::string> frames;
    channel->Receive(&frames).IgnoreError();
  }
  channel->Close();
}

AgentsSupervisor::~AgentsSupervisor() {
  // An agent closes the channels to the agents that are reached through it.
  const int64_t end_ns = clock_.NowNs() + (options_.workers.reap_ms + kCloseMs) * kNsPerMs;
  for (const HostId host : agents_.ids()) {
    if (agents_[host].relayed != nullptr) continue;
    if (hosts_[host].stream == nullptr) {
      agents_[host].channel.Close();
    } else {
      agents_[host].channel.CloseOutput();
    }
  }
  for (Agent& agent : agents_) {
    if (agent.relayed == nullptr) AwaitClose(&agent.channel, end_ns);
  }
  for (Agent& agent : agents_) {
    if (agent.end.has_value() || !agent.command.process.open()) continue;
    pollfd ended = {agent.command.process.get(), POLLIN, 0};
    if (::poll(&ended, 1, launch::PollMs(std::max<int64_t>(end_ns - clock_.NowNs(), 0))) == 0)
      launch::KillGroup(agent.command);
    launch::Collect(agent.command);
  }
}

absl::Status AgentsSupervisor::StartAgents() {
  agents_.reserve(hosts_.size());  // what a relayed stream sends through points into an agent
  for (const HostId host : hosts_.ids()) {
    const HostAgent& way = hosts_[host];
    std::shared_ptr<RelayedStream> relayed;
    if (way.through.has_value()) {
      FrameChannel* const channel = &agents_[way.through].channel;
      relayed = std::make_shared<RelayedStream>(
          host.value(),
          [channel](const proto::AgentOrder& order) { channel->Send(order.SerializeAsString()); });
    }
    agents_.emplace_back(
        launch::WorkerProcess(),
        FrameChannel(relayed != nullptr ? relayed : way.stream, FrameChannel::Side::kStarter),
        launch::WorkerOutput(OwnedDescriptor(), way.host, options_.workers.console));
    agents_.back().relayed = relayed;
    if (relayed != nullptr || way.stream != nullptr) continue;
    if (absl::Status status = StartCommand(host); !status.ok()) {
      agents_.pop_back();  // it has no stream
      return status;
    }
  }
  return absl::OkStatus();
}

// Starts the command that leads to an agent here.
absl::Status AgentsSupervisor::StartCommand(HostId host) {
  Agent& agent = agents_[host];
  std::vector<std::string> arguments = hosts_[host].arguments;
  if (std::string path = launch::FindInOwnPath(arguments[0]); !path.empty())
    arguments[0] = std::move(path);
  launch::StartOptions start;
  start.streams = launch::StartOptions::Streams::kApart;
  start.environment = launch::StartOptions::Environment::kWhole;
  agent.tried_ns = clock_.NowNs();
  WEIR_ASSIGN_OR_RETURN(agent.command, launch::StartProcess(arguments, start));
  MutexLock lock(&mutex_);
  agent.channel = FrameChannel(
      std::make_shared<PipeStream>(std::move(agent.command.output), std::move(agent.command.input)),
      FrameChannel::Side::kStarter);
  return absl::OkStatus();
}

// Lets the agents that are reached through this one be started, once this one has come.
void AgentsSupervisor::StartRelayed(HostId host) {
  const bool is_sound = options_.build_id.empty() || facts_[host].build_id == options_.build_id;
  for (const HostId child : hosts_.ids()) {
    if (!IsReachedThrough(child, host)) continue;
    if (!is_sound) {
      ReachItself(child, "it runs another build");
      continue;
    }
    proto::AgentOrder order;
    order.mutable_relay()->set_command(child.value());
    proto::RelayOrder::Start* const start = order.mutable_relay()->mutable_start();
    for (const std::string& argument : hosts_[child].arguments) start->add_argument(argument);
    agents_[child].tried_ns = clock_.NowNs();
    SendTo(&agents_[host], order);
  }
}

// Reaches a host from here that is not reached through the other one.
void AgentsSupervisor::ReachItself(HostId host, const std::string& reason) {
  Agent& agent = agents_[host];
  const HostAgent& way = hosts_[host];
  if (options_.workers.console != nullptr) {
    *options_.workers.console << "host '" << way.host << "' is not reached from '"
                              << hosts_[way.through].host << "' (" << reason
                              << "), so the starter reaches it itself" << std::endl;
  }
  if (agent.tried_ns >= 0) {  // a command that hangs does not end with its input
    proto::AgentOrder order;
    order.mutable_relay()->set_command(host.value());
    order.mutable_relay()->mutable_kill();
    SendTo(&agents_[way.through], order);
  }
  agent.relayed = nullptr;
  agent.end.reset();
  agent.errors = launch::WorkerOutput(OwnedDescriptor(), way.host, options_.workers.console);
  if (absl::Status status = StartCommand(host); !status.ok())
    Drop(host, std::string(status.message()));
}

// Returns whether an agent is to be reached through the agent of `host`.
bool AgentsSupervisor::IsReachedThrough(HostId child, HostId host) const {
  return hosts_[child].through == host && agents_[child].relayed != nullptr;
}

// Takes what an agent has to say of a command through which another is reached.
void AgentsSupervisor::TakeRelay(HostId through, const proto::RelayReport& report) {
  const HostId host(report.command());
  if (!agents_.Has(host) || hosts_[host].through != through || agents_[host].relayed == nullptr)
    return;
  Agent& agent = agents_[host];
  agent.errors.Append(report.errors().data(), report.errors().size());
  if (report.has_end()) {
    agent.errors.Append(report.end().error().data(), report.end().error().size());
    agent.errors.Finish();
    if (report.end().error().empty())
      agent.end = launch::EndOfProcess{report.end().code(), report.end().signal(), 0};
  }
  {
    MutexLock lock(&mutex_);
    agent.relayed->Take(report);
    agent.channel.Flush();
  }
  ReadFrames(host);
}

absl::Status AgentsSupervisor::AwaitHellos() {
  const int64_t end_ns = clock_.NowNs() + options_.hello_limit_ms * kNsPerMs;
  const int64_t silence_ms = options_.hello_limit_ms / kSilencesInLimit;
  const auto have_come = [this] {
    return AreAllHosts(
        [this](HostId host) { return options_.may_lack.count(host) > 0 || HasCome(host); });
  };
  while (!have_come() && clock_.NowNs() < end_ns) {
    const int64_t left_ms = (end_ns - clock_.NowNs()) / kNsPerMs + 1;
    ServeUntil(std::min(left_ms, std::max<int64_t>(silence_ms / kLooksInSilence, 1)),
               Listen::kToAgentsOnly, have_come);
    PassOverSilent(silence_ms * kNsPerMs);
  }
  GiveUpThoseThatMayLack();
  std::vector<Problem> missing, strangers;
  for (const HostId host : agents_.ids()) {
    const Agent& agent = agents_[host];
    if (options_.may_lack.count(host) > 0 && !agent.lost.empty()) continue;
    const std::string where = absl::StrCat("host '", hosts_[host].host, "'");
    // A host that was never tried is not named beside the one in between that has not come.
    const bool was_tried = agent.relayed == nullptr || agents_[hosts_[host].through].has_hello;
    if (!agent.has_hello && !was_tried) continue;
    if (!agent.has_hello) {
      const std::string found =
          agent.lost.empty() ? absl::StrCat("nothing within ", options_.hello_limit_ms / 1000, " s",
                                            LastText(agent))
                             : agent.lost;
      if (hosts_[host].arguments.empty()) {
        missing.push_back({"W0872", where, "an agent", found, hosts_[host].advice});
      } else {
        missing.push_back(
            {"W0872", where,
             absl::StrCat("an agent through `", ProgramName(hosts_[host].arguments), "`"), found,
             absl::StrCat(hosts_[host].advice,
                          "; `weir doctor --commands` shows the whole command")});
      }
    } else if (!options_.build_id.empty() && facts_[host].build_id != options_.build_id) {
      strangers.push_back({"W0873", where, absl::StrCat("build ", options_.build_id),
                           absl::StrCat("build ", facts_[host].build_id),
                           "the same build of Weir on every host; --weir PATH names it there"});
    }
  }
  if (!missing.empty()) return ErrorOfAll(absl::StatusCode::kUnavailable, missing);
  if (!strangers.empty()) return ErrorOfAll(absl::StatusCode::kUnavailable, strangers);
  return absl::OkStatus();
}

// Returns whether the agent has come, or cannot come any more.
bool AgentsSupervisor::HasCome(HostId host) const {
  return agents_[host].has_hello || !agents_[host].lost.empty();
}

// Waits a moment for the agents that need not come, and gives up those that have not.
void AgentsSupervisor::GiveUpThoseThatMayLack() {
  const std::set<HostId>& hosts = options_.may_lack;
  ServeUntil(hosts.empty() ? 0 : kMayLackMs, Listen::kToAgentsOnly, [this, &hosts] {
    return std::all_of(hosts.begin(), hosts.end(), [this](HostId host) { return HasCome(host); });
  });
  for (const HostId host : hosts) {
    const bool is_stranger = agents_[host].has_hello && !options_.build_id.empty() &&
                             facts_[host].build_id != options_.build_id;
    if (is_stranger) Lose(host, absl::StrCat("it is of build ", facts_[host].build_id));
    if (!HasCome(host)) Lose(host, "it has not come");
  }
}

// Gives up the relays of agents that have been silent since they were tried: a relayed agent is
// reached from here, and so are the agents that would be reached through an agent that does not
// come.
void AgentsSupervisor::PassOverSilent(int64_t silence_ns) {
  const std::string reason =
      absl::StrFormat("nothing within %.1f s", static_cast<double>(silence_ns) * 1e-9);
  for (const HostId host : agents_.ids()) {
    Agent& agent = agents_[host];
    if (agent.has_hello || !agent.lost.empty() || agent.tried_ns < 0 ||
        clock_.NowNs() - agent.tried_ns < silence_ns)
      continue;
    if (agent.relayed != nullptr) {
      ReachItself(host, reason + LastText(agent));
      continue;
    }
    agent.tried_ns = -1;  // it may still come
    for (const HostId child : hosts_.ids()) {
      if (IsReachedThrough(child, host)) ReachItself(child, absl::StrCat("it says ", reason));
    }
  }
}

absl::Status AgentsSupervisor::Tell(WorkerId index, const std::string& bytes) {
  MutexLock lock(&mutex_);
  Worker& worker = workers_[index];
  if (worker.told)
    return absl::FailedPreconditionError(absl::StrCat("worker ", index, " was told already"));
  if (!worker.running) return absl::UnavailableError(absl::StrCat("worker ", index, " is gone"));
  worker.told = true;
  proto::AgentOrder order;
  order.mutable_tell()->set_process(worker.process.value());
  order.mutable_tell()->set_bytes(bytes);
  agents_[worker.host].channel.Send(order.SerializeAsString());
  wake_.Poke();
  return absl::OkStatus();
}

// Output is shown by Wait and Stop alone, although all that serve the agents receive it.
void AgentsSupervisor::ShowOutput() {
  if (shows_output_ && options_.workers.console != nullptr && !output_.empty()) {
    *options_.workers.console << output_;
    options_.workers.console->flush();
  }
  output_.clear();
}

absl::StatusOr<std::optional<WorkerExit>> AgentsSupervisor::Wait(int64_t limit_ms) {
  const int64_t end_ns = limit_ms < 0 ? -1 : clock_.NowNs() + limit_ms * kNsPerMs;
  bool woken = false;
  while (true) {
    ShowOutput();
    if (!exits_.empty()) {
      WorkerExit exit = std::move(exits_.front());
      exits_.pop_front();
      return exit;
    }
    if (woken || num_running() == 0) return std::nullopt;
    const int64_t left_ns = end_ns < 0 ? -1 : std::max<int64_t>(end_ns - clock_.NowNs(), 0);
    WEIR_ASSIGN_OR_RETURN(woken, Serve(left_ns, Listen::kToCaller));
    woken = woken || left_ns == 0;
  }
}

std::vector<WorkerId> AgentsSupervisor::running() const {
  MutexLock lock(&mutex_);
  std::vector<WorkerId> ids;
  for (const WorkerId w : workers_.ids()) {
    if (workers_[w].running) ids.push_back(w);
  }
  return ids;
}

void AgentsSupervisor::Signal(int signal) {
  proto::AgentOrder order;
  order.mutable_signal()->set_signal(signal);
  MutexLock lock(&mutex_);
  for (Agent& agent : agents_) {
    if (!agent.workers.empty()) agent.channel.Send(order.SerializeAsString());
  }
  for (Worker& worker : workers_) {
    if (!worker.running) continue;
    if (signal == SIGKILL) worker.sent = WorkerExit::Sent::kKilled;
    if (signal == SIGTERM || signal == SIGINT)
      worker.sent = std::max(worker.sent, WorkerExit::Sent::kAsked);
  }
  wake_.Poke();
}

void AgentsSupervisor::Kill(WorkerId index) {
  MutexLock lock(&mutex_);
  Worker& worker = workers_[index];
  if (!worker.running) return;
  proto::AgentOrder order;
  order.mutable_kill()->set_process(worker.process.value());
  agents_[worker.host].channel.Send(order.SerializeAsString());
  worker.sent = WorkerExit::Sent::kKilled;
  wake_.Poke();
}

std::vector<WorkerExit> AgentsSupervisor::Stop() {
  Signal(SIGTERM);
  Signal(SIGCONT);  // a stopped worker finds the other signal when it wakes
  ServeUntil(std::max<int64_t>(options_.workers.grace_ms, 0), Listen::kToCaller,
             [this] { return num_running() == 0; });
  if (num_running() > 0) Signal(SIGKILL);
  return Reap(options_.workers.reap_ms);
}

std::vector<WorkerExit> AgentsSupervisor::Reap(int64_t limit_ms) {
  ServeUntil(limit_ms, Listen::kToAgentsOnly, [this] { return num_running() == 0; });
  ShowOutput();
  std::vector<WorkerExit> exits(std::make_move_iterator(exits_.begin()),
                                std::make_move_iterator(exits_.end()));
  exits_.clear();
  return exits;
}

std::optional<launch::ProcessorUse> AgentsSupervisor::Use(WorkerId index) {
  MutexLock lock(&mutex_);
  const Worker& worker = workers_[index];
  if (clock_.NowNs() - worker.use_ns > options_.use_age_max_ms * kNsPerMs) return std::nullopt;
  return worker.use;
}

// Serves until `is_done`, the limit has passed, or the caller's descriptor is readable.
void AgentsSupervisor::ServeUntil(int64_t limit_ms, Listen listen,
                                  const std::function<bool()>& is_done) {
  const int64_t end_ns = clock_.NowNs() + limit_ms * kNsPerMs;
  while (!is_done()) {
    const int64_t left_ns = end_ns - clock_.NowNs();
    if (left_ns <= 0 || !Serve(left_ns, listen).ok()) return;
    pollfd caller = {options_.workers.wake_descriptor, POLLIN, 0};
    if (listen == Listen::kToCaller && ::poll(&caller, 1, 0) > 0) return;
  }
}

void AgentsSupervisor::TellEnd(int exit_code) { SendToAll(EndOrderOf(exit_code)); }

void AgentsSupervisor::SendTo(Agent* agent, const proto::AgentOrder& order) {
  const std::string frame = order.SerializeAsString();
  MutexLock lock(&mutex_);
  agent->channel.Send(frame);
}

void AgentsSupervisor::SendToAll(const proto::AgentOrder& order) {
  const std::string frame = order.SerializeAsString();
  MutexLock lock(&mutex_);
  for (Agent& agent : agents_) agent.channel.Send(frame);
}

// Serves until `is_done` holds for each agent that is not lost, or the limit has passed.
void AgentsSupervisor::AwaitAll(int64_t limit_ms, bool (*is_done)(const Agent& agent)) {
  ServeUntil(limit_ms, Listen::kToAgentsOnly, [this, is_done] { return AreAll(is_done); });
}

bool AgentsSupervisor::AreAllHosts(const std::function<bool(HostId host)>& holds) const {
  for (const HostId host : agents_.ids()) {
    if (!holds(host)) return false;
  }
  return true;
}

bool AgentsSupervisor::AreAll(bool (*is_done)(const Agent& agent)) const {
  return std::all_of(agents_.begin(), agents_.end(), [is_done](const Agent& agent) {
    return !agent.lost.empty() || is_done(agent);
  });
}

// Returns the descriptors for poll: first the two wake-ups, then four for each agent. poll skips
// -1.
std::vector<pollfd> AgentsSupervisor::DescriptorsToPoll(Listen listen) const {
  std::vector<pollfd> polled;
  polled.push_back({wake_.descriptor(), POLLIN, 0});
  polled.push_back(
      {listen == Listen::kToCaller ? options_.workers.wake_descriptor : -1, POLLIN, 0});
  MutexLock lock(&mutex_);
  for (const Agent& agent : agents_) {
    polled.push_back({agent.channel.input(), POLLIN, 0});
    polled.push_back({agent.channel.num_waiting() > 0 ? agent.channel.output() : -1, POLLOUT, 0});
    polled.push_back({agent.command.errors.get(), POLLIN, 0});
    polled.push_back({agent.end.has_value() ? -1 : agent.command.process.get(), POLLIN, 0});
  }
  return polled;
}

// Polls once and serves what the poll shows. Returns whether the caller was woken.
absl::StatusOr<bool> AgentsSupervisor::Serve(int64_t limit_ns, Listen listen) {
  std::vector<pollfd> polled = DescriptorsToPoll(listen);
  const int num_ready = ::poll(polled.data(), polled.size(), launch::PollMs(limit_ns));
  if (num_ready < 0 && errno != EINTR)
    return absl::InternalError(absl::StrCat("poll failed: ", ::strerror(errno)));
  if (num_ready <= 0) return false;
  bool woken = polled[0].revents != 0 && wake_.TakeWake();
  woken = woken || polled[1].revents != 0;
  for (const HostId host : agents_.ids()) {
    const pollfd* of_agent = &polled[2 + 4 * static_cast<size_t>(host.value())];
    Agent& agent = agents_[host];
    if (of_agent[1].revents != 0) {
      MutexLock lock(&mutex_);
      agent.channel.Flush();
    }
    if (of_agent[2].revents != 0) ReadErrors(&agent);
    if (of_agent[0].revents != 0) ReadFrames(host);
    // An attempt to reach a host again may have ended with its command just now.
    if (of_agent[3].revents != 0 && !agent.end.has_value() && agent.command.process.open())
      EndCommand(&agent);
  }
  return woken;
}

void AgentsSupervisor::ReadErrors(Agent* agent) {
  char bytes[kReadBytes];
  const ssize_t count = ::read(agent->command.errors.get(), bytes, sizeof(bytes));
  if (count > 0) {
    agent->errors.Append(bytes, static_cast<size_t>(count));
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    agent->command.errors.Close();
    agent->errors.Finish();
  }
}

void AgentsSupervisor::ReadFrames(HostId host) {
  Agent& agent = agents_[host];
  std::vector<std::string> frames;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = agent.channel.Receive(&frames);
  }
  for (const std::string& frame : frames) {
    proto::AgentReport report;
    if (!report.ParseFromString(frame)) {
      status = absl::DataLossError("its agent sent something that is no report");
      break;
    }
    Take(host, report);
  }
  if (!status.ok()) Lose(host, std::string(status.message()));
}

void AgentsSupervisor::Take(HostId host, const proto::AgentReport& report) {
  Agent& agent = agents_[host];
  if (report.has_hello()) TakeHello(host, report.hello());
  if (report.has_look()) {
    agent.look = report.look();
    agent.owes_look = false;
  }
  if (report.has_signal() && report.signal().signal() == SIGUSR1) {
    launch::AskForCheckpoint();
  } else if (report.has_signal()) {
    launch::AskToEnd();
  }
  if (report.has_probe()) agent.probe = report.probe();
  if (report.has_listen()) agent.listen = report.listen();
  if (report.has_clock()) agent.clock = report.clock();
  if (report.has_measure()) agent.measure = report.measure();
  if (report.has_remove()) agent.has_removed = report.remove().request() == num_requests_;
  if (report.has_fetch()) TakeFetch(&agent, report.fetch());
  if (report.has_ship() && report.ship().request() == num_requests_)
    agent.ship_status = control::FromOutcome(report.ship().outcome());
  if (report.has_relay()) TakeRelay(host, report.relay());
  if (report.has_output()) output_ += report.output().lines();
  MutexLock lock(&mutex_);
  if (report.has_start()) TakeStart(&agent, report.start());
  if (report.has_start_one()) TakeStartOne(&agent, report.start_one());
  if (report.has_exit()) TakeExit(agent, report.exit());
  if (report.has_use()) TakeUse(agent, report.use());
}

void AgentsSupervisor::TakeHello(HostId host, const proto::AgentHello& hello) {
  Agent& agent = agents_[host];
  agent.has_hello = true;
  HostFacts& facts = facts_[host];
  facts.name = hello.host_name();
  facts.machine = hello.machine();
  facts.build_id = hello.build_id();
  facts.agent_pid = hello.pid();
  facts.cores.assign(hello.core().begin(), hello.core().end());
  facts.memory_bytes = hello.memory_bytes();
  facts.shared_memory_bytes = hello.shared_memory_bytes();
  facts.gpus = hello.gpus();
  if (agent.relayed == nullptr) facts.starter_address = hello.starter_address();
  facts.free_port = hello.free_port();
  facts.interfaces.clear();
  for (const proto::AgentHello::Interface& interface : hello.interface())
    facts.interfaces.push_back(
        {interface.name(), {interface.address().begin(), interface.address().end()}});
  if (agent.is_reached_again) return TakeReturn(host);
  StartRelayed(host);
}

AgentsSupervisor::Worker* AgentsSupervisor::WorkerOf(const Agent& agent, HostProcessId process) {
  if (!agent.workers.Has(process)) return nullptr;
  Worker& worker = workers_[agent.workers[process]];
  return BelongsTo(worker, agent) && worker.process == process ? &worker : nullptr;
}

void AgentsSupervisor::TakeStart(Agent* agent, const proto::StartReport& report) {
  agent->has_started = true;
  agent->start_status = control::FromOutcome(report.outcome());
  if (!agent->start_status.ok()) return;
  for (int process = 0; process < report.pid_size(); ++process) {
    Worker* const worker = WorkerOf(*agent, HostProcessId(process));
    if (worker == nullptr) continue;
    worker->pid = report.pid(process);
    worker->log_path = process < report.log_path_size() ? report.log_path(process) : "";
    worker->running = true;
  }
}

void AgentsSupervisor::TakeExit(const Agent& agent, const proto::ExitReport& report) {
  const HostProcessId process(report.process());
  Worker* const worker = WorkerOf(agent, process);
  if (worker == nullptr || !worker->running) return;
  worker->running = false;
  WorkerExit exit;
  exit.worker = agent.workers[process];
  exit.pid = worker->pid;
  exit.code = report.code();
  exit.signal = report.signal();
  exit.sent = worker->sent;
  exit.time_ns = clock_.NowNs();
  exit.last_lines.assign(report.last_line().begin(), report.last_line().end());
  exit.cpu_ms = report.cpu_ms();
  exits_.push_back(std::move(exit));
}

void AgentsSupervisor::TakeUse(const Agent& agent, const proto::UseReport& report) {
  for (const proto::UseReport::Use& use : report.use()) {
    Worker* const worker = WorkerOf(agent, HostProcessId(use.process()));
    if (worker == nullptr) continue;
    worker->use = {use.is_ready(), use.ticks(), use.waited_ns(), use.num_turns()};
    worker->use_ns = clock_.NowNs();
  }
}

// Collects a command that has ended. What it printed last is still read.
void AgentsSupervisor::EndCommand(Agent* agent) {
  agent->end = launch::Collect(agent->command);
  while (agent->command.errors.open()) {
    pollfd more = {agent->command.errors.get(), POLLIN, 0};
    if (::poll(&more, 1, 0) <= 0) break;
    ReadErrors(agent);
  }
}

// Returns "; it printed: <the last lines>".
std::string AgentsSupervisor::LastText(const Agent& agent) const {
  constexpr size_t kLinesMax = 3;
  constexpr size_t kNoiseShownMax = 200;
  std::vector<std::string> lines = agent.errors.last_lines();
  if (lines.empty() && !agent.channel.noise().empty())
    lines = absl::StrSplit(agent.channel.noise().substr(0, kNoiseShownMax), '\n');
  if (lines.size() > kLinesMax) lines.erase(lines.begin(), lines.end() - kLinesMax);
  if (lines.empty()) return "";
  std::string text = absl::StrJoin(lines, " | ");
  while (!text.empty() && text.back() == '.') text.pop_back();  // a message ends with a full stop
  return absl::StrCat("; it printed: ", text);
}

// Returns how the channel to an agent has ended, and what its command printed.
std::string AgentsSupervisor::EndText(HostId host, const std::string& reason) const {
  const Agent& agent = agents_[host];
  std::string how = absl::StrCat("the connection to its agent ended: ", reason);
  if (agent.end.has_value() && agent.end->signal != SIGPIPE) {  // which the close has caused
    const std::string program = ProgramName(hosts_[host].arguments);
    WorkerExit exit;
    exit.code = agent.end->code;
    exit.signal = agent.end->signal;
    how = absl::StrCat("`", program, "` ended: ", launch::ExitText(exit));
  }
  return absl::StrCat(how, LastText(agent));
}

// The channel to an agent has ended, and with it the workers of the host, seen from here.
void AgentsSupervisor::Lose(HostId host, const std::string& reason) {
  Agent& agent = agents_[host];
  if (agent.is_reached_again) EndAttempt(&agent);
  if (!agent.lost.empty()) return;
  {
    MutexLock lock(&mutex_);
    agent.channel.Close();
  }
  const int64_t end_ns = clock_.NowNs() + kLastTextMs * kNsPerMs;
  while (agent.command.process.open() && !agent.end.has_value() && clock_.NowNs() < end_ns) {
    pollfd polled[] = {{agent.command.process.get(), POLLIN, 0},
                       {agent.command.errors.get(), POLLIN, 0}};
    if (::poll(polled, 2, launch::PollMs(end_ns - clock_.NowNs())) <= 0) break;
    if (polled[1].revents != 0) ReadErrors(&agent);
    if (polled[0].revents != 0) EndCommand(&agent);
  }
  const std::string how = EndText(host, reason);
  if (agent.relayed != nullptr && !agent.has_hello) {
    ReachItself(host, how);
    return;
  }
  Drop(host, how);
}

// Gives a host up, with its workers and with those that are reached through it.
void AgentsSupervisor::Drop(HostId host, const std::string& how) {
  agents_[host].lost = how;
  LoseWorkers(host);
  for (const HostId child : hosts_.ids()) {
    if (!IsReachedThrough(child, host)) continue;
    Lose(child,
         absl::StrCat("host '", hosts_[host].host, "', through which it is reached, is lost"));
  }
}

void AgentsSupervisor::LoseWorkers(HostId host) {
  const Agent& agent = agents_[host];
  MutexLock lock(&mutex_);
  for (const WorkerId index : agent.workers) {
    Worker& worker = workers_[index];
    if (!worker.running || !BelongsTo(worker, agent)) continue;
    worker.running = false;
    WorkerExit exit;
    exit.worker = index;
    exit.pid = worker.pid;
    exit.sent = worker.sent;
    exit.time_ns = clock_.NowNs();
    exit.lost =
        absl::StrCat("the connection to host '", hosts_[host].host, "' has ended: ", agent.lost);
    exits_.push_back(std::move(exit));
  }
}

}  // namespace weir::hosts
