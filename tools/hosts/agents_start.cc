// The part of the supervisor that lets agents start workers: all of them at first, and one anew.
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/outcome.h"
#include "tools/hosts/agents_supervisor.h"
#include "tools/launch/worker_environment.h"

namespace weir::hosts {
namespace {

using launch::WorkerExit;
using launch::WorkerLaunch;

// For an agent to start one worker, whose old process it may have to kill and wait for.
constexpr int64_t kStartOneMs = 5000;

proto::StartOrder::Process ProcessOf(const WorkerLaunch& launch) {
  proto::StartOrder::Process process;
  for (size_t i = 1; i < launch.arguments.size(); ++i) process.add_argument(launch.arguments[i]);
  process.set_label(launch.label);
  for (const RankId rank : launch.ranks) process.add_rank(rank.value());
  for (const std::string& variable : launch.variables) process.add_variable(variable);
  return process;
}

}  // namespace

absl::Status AgentsSupervisor::StartWorkers(const IdVector<WorkerId, WorkerLaunch>& workers) {
  IdVector<HostId, proto::AgentOrder> orders(hosts_.size());
  for (proto::AgentOrder& order : orders) *order.mutable_start() = EmptyStart();
  launches_ = workers;
  {
    MutexLock lock(&mutex_);
    for (const WorkerLaunch& launch : workers) {
      Agent& agent = agents_[launch.host];
      *orders[launch.host].mutable_start()->add_process() = ProcessOf(launch);
      Worker worker;
      worker.host = launch.host;
      worker.process = agent.workers.next_id();
      agent.workers.push_back(workers_.next_id());
      workers_.push_back(std::move(worker));
    }
    for (const HostId host : agents_.ids()) {
      if (orders[host].start().process_size() > 0)
        agents_[host].channel.Send(orders[host].SerializeAsString());
    }
  }
  AwaitAll(options_.hello_limit_ms,
           [](const Agent& agent) { return agent.workers.empty() || agent.has_started; });
  for (const HostId host : agents_.ids()) {
    if (!agents_[host].workers.empty()) WEIR_RETURN_IF_ERROR(StartStatusOf(host));
  }
  return absl::OkStatus();
}

// Returns how the host has answered the order to start workers.
absl::Status AgentsSupervisor::StartStatusOf(HostId host) {
  const Agent& agent = agents_[host];
  if (agent.has_started && agent.start_status.ok()) return absl::OkStatus();
  return agent.has_started ? Refused(host, agent.start_status) : NoWorkersOf(host);
}

// Returns the error of a host that has refused to start workers.
absl::Status AgentsSupervisor::Refused(HostId host, const absl::Status& status) const {
  const std::string where = absl::StrCat("host '", hosts_[host].host, "'");
  std::optional<Problem> refused = ProblemOf(status);
  if (!refused.has_value() || refused->code != "W0874") return CausedBy(status, "W0874", where);
  refused->where = where;
  return ErrorOf(status.code(), *refused);
}

// Returns the error of a host that gives no answer.
absl::Status AgentsSupervisor::NoWorkersOf(HostId host) {
  const SilentHost silent = FindSilent(host);
  return ErrorOf(
      absl::StatusCode::kUnavailable,
      {"W0874", absl::StrCat("host '", hosts_[silent.host].host, "'"), "its workers", silent.found,
       agents_[host].lost.empty() ? "look at that host: is it overloaded, or is its agent stopped?"
                                  : ""});
}

// Returns the order to start workers, without any.
proto::StartOrder AgentsSupervisor::EmptyStart() const {
  proto::StartOrder start;
  start.set_log_directory(options_.workers.log_directory);
  start.set_logs_if_possible(options_.workers.logs == launch::Logs::kIfPossible);
  for (const RankId rank : options_.workers.ranks_shown) start.add_rank_shown(rank.value());
  start.set_reap_ms(options_.workers.reap_ms);
  start.set_program(options_.program);
  start.set_folder(options_.folder);
  start.set_is_program_of_user(options_.workers.program == launch::WorkerProgram::kOfUser);
  for (const std::string& entry : launch::SharedEnvironment(::environ))
    start.add_environment(entry);
  return start;
}

absl::Status AgentsSupervisor::StartAgain(WorkerId index) {
  HostId host;
  {
    MutexLock lock(&mutex_);
    host = workers_[index].host;
  }
  return StartAgainOn(index, host);
}

absl::Status AgentsSupervisor::StartAgainOn(WorkerId index, HostId host) {
  Agent& agent = agents_[host];
  WEIR_RETURN_IF_ERROR(PrepareStart(host));
  proto::AgentOrder order;
  proto::StartOneOrder* const one = order.mutable_start_one();
  {
    MutexLock lock(&mutex_);
    Worker& worker = workers_[index];
    worker.running = false;
    if (worker.host != host) {
      worker.host = host;
      worker.process = HostProcessId();
    }
    if (!worker.process.has_value()) {
      *one->mutable_added() = ProcessOf(launches_[index]);
      one->set_process(agent.workers.next_id().value());
    } else {
      one->set_process(worker.process.value());
    }
    one->set_request(++num_requests_);
    starting_ = index;
    agent.started_one.reset();
    agent.channel.Send(order.SerializeAsString());
  }
  ServeUntil(kStartOneMs, Listen::kToAgentsOnly,
             [&agent] { return agent.started_one.has_value() || !agent.lost.empty(); });
  if (!agent.lost.empty() || !agent.started_one.has_value()) {
    const absl::Status status = NoWorkersOf(host);
    Lose(host, "it gives no answer");
    return status;
  }
  return agent.started_one->ok() ? absl::OkStatus() : Refused(host, *agent.started_one);
}

// Takes the answer to the order to start the process of `starting_`. The end of that process may be
// the next report.
void AgentsSupervisor::TakeStartOne(Agent* agent, const proto::StartOneReport& report) {
  if (report.request() != num_requests_) return;  // of an order that was given up
  agent->started_one = control::FromOutcome(report.outcome());
  if (!agent->started_one->ok()) return;
  const WorkerId index = starting_;
  // The end of the old process has no consequence any more.
  std::erase_if(exits_, [index](const WorkerExit& exit) { return exit.worker == index; });
  Worker& worker = workers_[index];
  if (!worker.process.has_value()) {
    worker.process = agent->workers.next_id();
    agent->workers.push_back(index);
  }
  worker.pid = report.pid();
  worker.log_path = report.log_path();
  worker.running = true;
  worker.told = false;
  worker.sent = WorkerExit::Sent::kNothing;
  worker.use.reset();
}

// Lets an agent that has started no workers yet do what comes before their start.
absl::Status AgentsSupervisor::PrepareStart(HostId host) {
  Agent& agent = agents_[host];
  if (!agent.has_started && agent.lost.empty()) {
    proto::AgentOrder order;
    *order.mutable_start() = EmptyStart();
    order.mutable_start()->set_logs_if_possible(true);  // as of any later start
    SendTo(&agent, order);
    ServeUntil(kStartOneMs, Listen::kToAgentsOnly,
               [&agent] { return agent.has_started || !agent.lost.empty(); });
  }
  const absl::Status status = agent.lost.empty() ? StartStatusOf(host) : NoWorkersOf(host);
  if (!agent.has_started) Lose(host, "it gives no answer");
  return status;
}

void AgentsSupervisor::ReachAgain(HostId host) {
  Agent& agent = agents_[host];
  if (agent.lost.empty() || hosts_[host].arguments.empty() || facts_[host].agent_pid == 0) return;
  EndAttempt(&agent);
  {
    MutexLock lock(&mutex_);
    agent.relayed = nullptr;
    agent.errors = launch::WorkerOutput(launch::OwnedDescriptor(), hosts_[host].host,
                                        options_.workers.console);
  }
  // Without a command the host stays lost.
  agent.is_reached_again = StartCommand(host).ok();
}

// Ends a command that has brought no agent, or an agent that is not taken.
void AgentsSupervisor::EndAttempt(Agent* agent) {
  agent->is_reached_again = false;
  {
    MutexLock lock(&mutex_);
    agent->channel.Close();
  }
  if (agent->command.process.open() && !agent->end.has_value()) {
    launch::KillGroup(agent->command);
    launch::Collect(agent->command);
  }
  agent->command = launch::WorkerProcess();
  agent->end.reset();
}

// A lost host has an agent again. The processes of its old agent ended with that one, and the new
// one numbers its own anew.
void AgentsSupervisor::TakeReturn(HostId host) {
  Agent& agent = agents_[host];
  if (!options_.build_id.empty() && facts_[host].build_id != options_.build_id)
    return EndAttempt(&agent);
  agent.is_reached_again = false;
  agent.lost.clear();
  agent.has_started = false;
  agent.start_status = absl::OkStatus();
  agent.started_one.reset();
  agent.owes_look = false;
  MutexLock lock(&mutex_);
  for (const WorkerId index : agent.workers) {
    if (BelongsTo(workers_[index], agent)) workers_[index].process = HostProcessId();
  }
  agent.workers = IdVector<HostProcessId, WorkerId>();
}

}  // namespace weir::hosts
