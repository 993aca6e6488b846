#include "tools/hosts/program_launch.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/build_id.h"
#include "runtime/base/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/hosts/host_name.h"
#include "tools/hosts/host_placement.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/placement.h"
#include "tools/launch/process_state.h"

namespace weir::hosts {
namespace {

using launch::WorkerExit;

constexpr int64_t kProbeMs = 2000;
constexpr int64_t kNsPerMs = 1000 * 1000;
constexpr int64_t kKilledMs = 1'000;      // for processes to end after SIGKILL
constexpr int64_t kRemainingMs = 10'000;  // for those that are still seen then
constexpr char kLoopback[] = "127.0.0.1";

// Returns an address of the host of rank 0 that all hosts with ranks reach, tried out from each.
absl::StatusOr<std::string> FindMasterAddress(HostsSupervisor* supervisor,
                                              const IdVector<HostId, HostAgent>& agents,
                                              const RankPlace& last) {
  const int num_used = last.agent.value() + 1;
  const auto is_here = [](const HostAgent& agent) { return IsHere(agent.host); };
  if (last.num_hosts == 1 || std::all_of(agents.begin(), agents.begin() + num_used, is_here))
    return kLoopback;
  const std::vector<std::string> tried = supervisor->ListenForProbes().front();
  const IdVector<HostId, std::vector<AddressProbe>> probes = supervisor->Probe(tried, kProbeMs);
  std::vector<std::string> results;
  for (size_t i = 0; i < tried.size(); ++i) {
    const auto first = probes.begin(), end = probes.begin() + num_used;
    const auto failed = std::find_if(first, end, [i](const std::vector<AddressProbe>& of_host) {
      return !of_host[i].error.empty();
    });
    if (failed == end) return control::SocketAddress::ParseWithPort(tried[i])->host();
    results.push_back(absl::StrCat(tried[i], " from ",
                                   agents[HostId(static_cast<int32_t>(failed - first))].host, ": ",
                                   (*failed)[i].error));
  }
  return ErrorOf(absl::StatusCode::kUnavailable,
                 {"W0875", absl::StrCat("host '", agents.front().host, "'"),
                  "an address that all hosts of the job reach",
                  results.empty() ? "none that the host knows" : absl::StrJoin(results, "; "),
                  "--master-addr ADDRESS names one"});
}

// The processes of a launch, from their start to their end.
class RunningProgram {
 public:
  RunningProgram(const ProgramLaunch& launch, IdVector<RankId, RankPlace> places,
                 const FoundHosts& found, launch::SignalWatch* signals, console::Console* console)
      : launch_(launch),
        places_(std::move(places)),
        found_(found),
        signals_(signals),
        console_(console) {}

  absl::Status Start(std::ostream* out) {
    WEIR_ASSIGN_OR_RETURN(log_directory_, launch::MakeLogDirectory(launch_.log_base));
    launch::PointLatestAt(log_directory_);
    started_ns_ = clock_.NowNs();
    HostsSupervisorOptions options;
    std::error_code error;
    options.build_id = BuildId();
    options.program = launch_.command.front();
    options.folder = std::filesystem::current_path(error).string();
    options.workers.log_directory = std::filesystem::absolute(log_directory_, error).string();
    options.workers.ranks_shown = launch_.ranks_shown;
    options.workers.grace_ms = launch_.grace_ms;
    options.workers.console = out;
    options.workers.wake_descriptor = signals_->descriptor();
    options.workers.program = launch::WorkerProgram::kOfUser;
    WEIR_ASSIGN_OR_RETURN(supervisor_, HostsSupervisor::Reach(found_.agents, options));
    absl::Status started = StartProcesses();
    if (!started.ok()) supervisor_->TellEnd(ExitCode(started));
    return started;
  }

  // Serves the processes until they have ended.
  void Serve() {
    while (supervisor_->num_running() > 0) {
      const int64_t left_ms = kill_at_ns_ == 0 ? -1 : (kill_at_ns_ - clock_.NowNs()) / kNsPerMs + 1;
      const absl::StatusOr<std::optional<WorkerExit>> exit =
          supervisor_->Wait(kill_at_ns_ == 0 ? -1 : std::max<int64_t>(left_ms, 0));
      if (exit.ok() && exit->has_value()) TakeExit(**exit);
      TakeSignals();
      if (!exit.ok() || (!job_.events.empty() && !interrupted_)) break;
      if (kill_at_ns_ != 0 && clock_.NowNs() >= kill_at_ns_) break;
    }
    for (const WorkerExit& exit : interrupted_ ? Kill(supervisor_.get()) : supervisor_->Stop())
      TakeExit(exit);
  }

  launch::FailureReport Report() {
    if (interrupted_) job_.events.clear();
    job_.start_ns = started_ns_;
    job_.log_directory = log_directory_;
    job_.program = launch::WorkerProgram::kOfUser;
    AddRemaining();
    launch::FailureReport report = launch::ReportFailure(job_);
    if (interrupted_) report.exit_code = launch::kExitInterrupted;
    if (report.exit_code == 0) launch::RemoveEmptyLogs(log_directory_);
    supervisor_->TellEnd(report.exit_code);
    return report;
  }

 private:
  absl::Status StartProcesses() {
    std::string address = launch_.master_address;
    if (address.empty()) {
      WEIR_ASSIGN_OR_RETURN(address,
                            FindMasterAddress(supervisor_.get(), found_.agents, places_.back()));
    }
    const int port =
        launch_.master_port != 0 ? launch_.master_port : supervisor_->facts().front().free_port;
    IdVector<WorkerId, launch::WorkerLaunch> workers;
    for (const RankPlace& place : places_) {
      launch::WorkerLaunch worker;
      worker.arguments = launch_.command;
      worker.label = launch::RankLabel({place.rank});
      worker.ranks = {place.rank};
      worker.host = place.agent;
      worker.variables = RankVariables(place, places_.size());
      worker.variables.push_back(absl::StrCat("MASTER_ADDR=", address));
      worker.variables.push_back(absl::StrCat("MASTER_PORT=", port));
      worker.variables.insert(worker.variables.end(), launch_.variables.begin(),
                              launch_.variables.end());
      workers.push_back(std::move(worker));
    }
    WEIR_RETURN_IF_ERROR(supervisor_->StartWorkers(workers));
    for (const WorkerId worker : workers.ids()) {
      // The input of a process that is gone matters to nobody.
      supervisor_->Tell(worker, "").IgnoreError();
    }
    return absl::OkStatus();
  }

  void TakeExit(const WorkerExit& exit) {
    if (exit.code == 0 && exit.signal == 0 && exit.lost.empty()) return;
    launch::FailureEvent event = launch::EventOf(exit, {RankOf(exit.worker)});
    event.host = HostOf(exit.worker);
    if (!exit.lost.empty())
      event.advice = absl::StrCat("look at host '", HostNameOf(exit.worker),
                                  "': is it up, and is its network?");
    job_.events.push_back(std::move(event));
  }

  void TakeSignals() {
    while (const std::optional<int> signal = signals_->Take()) {
      const bool asks_to_end = *signal != SIGUSR1 && *signal != SIGUSR2;
      if (asks_to_end && interrupted_) {
        kill_at_ns_ = clock_.NowNs();
        continue;
      }
      if (asks_to_end) {
        interrupted_ = true;
        kill_at_ns_ = clock_.NowNs() + launch_.grace_ms * kNsPerMs;
        console_->Say(absl::StrCat(launch::SignalText(*signal), " goes to ",
                                   supervisor_->num_running(),
                                   supervisor_->num_running() == 1 ? " process" : " processes",
                                   "; a second one kills them"));
      }
      supervisor_->Signal(*signal);
      if (asks_to_end) supervisor_->Signal(SIGCONT);  // a stopped process finds it when it wakes
    }
  }

  void AddRemaining() {
    const std::vector<WorkerId> running = supervisor_->running();
    const std::vector<launch::WorkerLook> looks = supervisor_->Look(running);
    for (size_t i = 0; i < running.size(); ++i) {
      job_.remaining.push_back({{RankOf(running[i])},
                                supervisor_->pid(running[i]),
                                looks[i].is_seen ? launch::StateText(looks[i].kind)
                                                 : "is on a host that does not answer",
                                HostOf(running[i])});
    }
  }

  // A worker is the process of the rank with its number.
  static RankId RankOf(WorkerId worker) { return RankId(worker.value()); }
  const std::string& HostNameOf(WorkerId worker) const {
    return found_.agents[places_[RankOf(worker)].agent].host;
  }
  // Empty if the job has one host.
  std::string HostOf(WorkerId worker) const {
    return found_.agents.size() == 1 ? "" : HostNameOf(worker);
  }

  const ProgramLaunch& launch_;
  const IdVector<RankId, RankPlace> places_;
  const FoundHosts& found_;
  launch::SignalWatch* const signals_;
  console::Console* const console_;
  const MonotonicClock clock_;
  std::string log_directory_;
  std::unique_ptr<HostsSupervisor> supervisor_;
  int64_t started_ns_ = 0;
  bool interrupted_ = false;
  int64_t kill_at_ns_ = 0;  // 0: never
  launch::FailedJob job_;
};

}  // namespace

std::vector<WorkerExit> Kill(launch::Supervisor* supervisor) {
  supervisor->Signal(SIGKILL);
  std::vector<WorkerExit> exits = supervisor->Reap(kKilledMs);
  const std::vector<launch::WorkerLook> looks = supervisor->Look(supervisor->running());
  // A host that does not answer shows no process, however long this one waits.
  const bool is_seen = std::any_of(looks.begin(), looks.end(),
                                   [](const launch::WorkerLook& look) { return look.is_seen; });
  if (!is_seen) return exits;
  for (WorkerExit& exit : supervisor->Reap(kRemainingMs)) exits.push_back(std::move(exit));
  return exits;
}

absl::StatusOr<IdVector<RankId, RankPlace>> PlacePrograms(const HostList& agents, int processes) {
  if (processes == 0) processes = NumProcesses(agents, std::numeric_limits<int>::max());
  WEIR_ASSIGN_OR_RETURN(const auto agent_of, PlaceOnHosts(agents, processes));
  std::map<std::string, int> groups;  // by the name of the host
  std::vector<int> num_local;         // by group
  IdVector<RankId, RankPlace> places;
  for (const HostId agent : agent_of) {
    const auto [group, is_new] =
        groups.emplace(agents[agent].name, static_cast<int>(num_local.size()));
    if (is_new) num_local.push_back(0);
    places.push_back({places.next_id(), agent, group->second, 0,
                      num_local[static_cast<size_t>(group->second)]++, 0});
  }
  for (RankPlace& place : places) {
    place.num_hosts = static_cast<int>(num_local.size());
    place.num_local = num_local[static_cast<size_t>(place.group)];
  }
  return places;
}

std::vector<std::string> RankVariables(const RankPlace& place, size_t world_size) {
  return {absl::StrCat("RANK=", place.rank),
          absl::StrCat("WORLD_SIZE=", world_size),
          absl::StrCat("LOCAL_RANK=", place.local_rank),
          absl::StrCat("LOCAL_WORLD_SIZE=", place.num_local),
          absl::StrCat("GROUP_RANK=", place.group),
          absl::StrCat("GROUP_WORLD_SIZE=", place.num_hosts)};
}

absl::StatusOr<launch::FailureReport> RunProgram(const ProgramLaunch& launch,
                                                 const FoundHosts& found,
                                                 launch::SignalWatch* signals, std::ostream* out,
                                                 console::Console* console) {
  WEIR_ASSIGN_OR_RETURN(auto places, PlacePrograms(found.listed, launch.processes));
  const size_t num_used = static_cast<size_t>(places.back().agent.value()) + 1;
  if (num_used < found.listed.size()) {
    console->Say(absl::StrCat(found.listed.size() - num_used, " of ", found.listed.size(),
                              IsScheduler(found.backend) ? " tasks" : " hosts",
                              " have nothing to do (--processes gives more)"));
  }
  RunningProgram program(launch, std::move(places), found, signals, console);
  WEIR_RETURN_IF_ERROR(program.Start(out));
  program.Serve();
  return program.Report();
}

}  // namespace weir::hosts
