#include "tools/fleet/fleet.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/build_id.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/collective/collective.h"
#include "runtime/control/outcome.h"
#include "runtime/limits/process_limits.h"
#include "runtime/transport/rank_card.h"
#include "tools/fleet/heartbeat.h"
#include "tools/fleet/mesh_change.h"
#include "tools/fleet/wait_account.h"
#include "tools/launch/core_dumps.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/placement.h"
#include "tools/launch/process_state.h"
#include "tools/launch/program_path.h"
#include "tools/train/job_runner.h"

namespace weir::fleet {
namespace {

constexpr int64_t kTickMs = 50;
// The needs of the control plane in this process: threads; addresses for their stacks and heaps;
// files, including those that are open while states are saved; and for each worker its pipes, its
// log and its connection.
constexpr int kThreadsMin = 12;
// The threads of a worker of this machine besides those of its ranks, and of a rank at least. The
// workers take them at the same time, so only this process can tell whether all of them can run.
constexpr int kThreadsPerWorker = 15;
constexpr int kThreadsPerRank = 1;
constexpr int64_t kAddressesMin = 512 << 20;
constexpr int kDescriptorsMin = 24;
constexpr int kDescriptorsPerWorker = 5;
constexpr int64_t kLateMs = 1'000;
// For looks at a lost worker, some of which its host does not answer.
constexpr int64_t kExplainMs = 10'000;
// The time to notice the end of a process after its connection broke, and the time in which workers
// that know the end of the job may leave by themselves.
constexpr int64_t kNoticeMs = 500;
constexpr int64_t kLeaveMs = 1000;
// The leave time of workers that first tell what each actor waits for, or write what their ranks
// did.
constexpr int64_t kTellMs = 5'000;
constexpr int64_t kShutdownMs = 5'000;
// The number of looks at a starved worker within the time after which silence counts as death.
constexpr int64_t kLooksPerDeath = 4;

// Returns the options with the heartbeat of a job of so many workers.
FleetOptions WithHeartbeat(FleetOptions options, size_t num_workers) {
  const Heartbeat chosen =
      ChooseHeartbeat({options.heartbeat_ms, options.dead_after_ms}, static_cast<int>(num_workers));
  options.heartbeat_ms = chosen.every_ms;
  options.dead_after_ms = chosen.dead_after_ms;
  return options;
}

IdVector<WorkerId, size_t> SizesOf(const IdVector<WorkerId, std::vector<RankId>>& ranks_of) {
  IdVector<WorkerId, size_t> sizes;
  for (const std::vector<RankId>& ranks : ranks_of) sizes.push_back(ranks.size());
  return sizes;
}

}  // namespace

Fleet::Fleet(IdVector<WorkerId, std::vector<RankId>> ranks_of, const FleetOptions& options)
    : ranks_of_(std::move(ranks_of)),
      known_ranks_(ranks_of_),
      workers_(AllOf(ranks_of_)),
      room_of_(SizesOf(ranks_of_)),
      options_(WithHeartbeat(options, ranks_of_.size())),
      job_id_(control::MakeJobId()),
      run_began_ns_(options.run_began_ns != 0 ? options.run_began_ns : clock_.NowNs()),
      epoch_(options.epoch),
      starvation_(::sysconf(_SC_CLK_TCK), options_.dead_after_ms * 1'000'000),
      worker_lines_(options.console),
      host_of_(options_.host_of),
      process_epochs_(ranks_of_.size(), options.epoch),
      moment_(options.epoch > 1 ? launch::FailureMoment::kRestart : launch::FailureMoment::kStart) {
}

Fleet::~Fleet() { Finish(absl::CancelledError("the job was given up")); }

// Starts the processes first, so that they load while the control plane is made. They wait for
// their bundle.
absl::Status Fleet::Launch() {
  // gRPC waits for ever for a thread that it does not get.
  int threads = kThreadsMin;
  if (options_.hosts.empty()) {
    for (const std::vector<RankId>& ranks : ranks_of_)
      threads += kThreadsPerWorker + kThreadsPerRank * static_cast<int>(ranks.size());
  }
  WEIR_RETURN_IF_ERROR(limits::CheckRoomForThreads("the starter and its workers", threads));
  WEIR_RETURN_IF_ERROR(limits::CheckRoomForAddresses("the starter", kAddressesMin));
  WEIR_RETURN_IF_ERROR(limits::CheckRoomForFiles(
      "the starter", kDescriptorsMin + kDescriptorsPerWorker * num_workers()));
  absl::StatusOr<std::string> logs = launch::MakeLogDirectory(options_.log_base);
  const bool starts_again = options_.epoch > 1;
  if (!logs.ok() && starts_again) {
    const std::string why(logs.status().message());
    WEIR_ASSIGN_OR_RETURN(logs, launch::MakeTemporaryLogDirectory());
    options_.console->Say(absl::StrCat("WARNING: ", why, " From now on the logs are in ", *logs));
  }
  WEIR_ASSIGN_OR_RETURN(log_directory_, std::move(logs));
  launch::PointLatestAt(log_directory_);
  WEIR_RETURN_IF_ERROR(StartWorkers());
  launch::KeepMemoryOutOfCoreDumps();
  WEIR_ASSIGN_OR_RETURN(authority_, control::JobAuthority::Create(job_id_));
  WEIR_RETURN_IF_ERROR(StartCoordinator());
  for (const WorkerId worker : workers()) WEIR_RETURN_IF_ERROR(TellWorker(worker));
  return WaitForHellos();
}

absl::Status Fleet::StartWorkers() {
  std::promise<absl::Status> launched;
  watcher_ = std::thread([this, &launched] {
    IdVector<WorkerId, launch::WorkerLaunch> launches;
    const std::string program = launch::ResolvedProgram(options_.program);
    for (const WorkerId worker : workers()) {
      const std::string label = launch::RankLabel(ranks_of_[worker]);
      launches.push_back({{program, "worker", label}, label, ranks_of_[worker]});
      if (options_.is_scheduled) launches.back().arguments.push_back("--scheduled");
      if (!options_.hosts.empty()) launches.back().host = options_.host_of[worker];
    }
    launch::SupervisorOptions options;
    options.log_directory = log_directory_;
    if (options_.epoch > 1) options.logs = launch::Logs::kIfPossible;
    options.ranks_shown = options_.ranks_shown;
    options.grace_ms = options_.grace_ms;
    options.console = &worker_lines_;
    absl::StatusOr<std::unique_ptr<launch::Supervisor>> started =
        options_.hosts.empty() ? launch::Supervisor::Start(launches, options)
                               : StartOnHosts(launches, options);
    if (started.ok()) supervisor_ = *std::move(started);
    launched.set_value(started.status());
    if (supervisor_ != nullptr) WatchProcesses();
  });
  return launched.get_future().get();
}

void Fleet::TellEnd(int exit_code) {
  if (on_hosts_ != nullptr) on_hosts_->TellEnd(exit_code);
}

absl::Status Fleet::StartCoordinator() {
  control::CoordinatorOptions options;
  options.bind_address = starter_address_.address;
  options.job_id = job_id_;
  options.epoch = options_.epoch;
  options.num_workers = num_workers();
  options.build_id = BuildId();
  options.heartbeat_ms = options_.heartbeat_ms;
  options.dead_after_ms = options_.dead_after_ms;
  options.on_lost = [this](WorkerId worker, const control::LostWorker& lost) {
    const bool silent = lost.how == control::LostWorker::How::kSilent;
    launch::FailureEvent event;
    event.kind = silent ? launch::FailureEvent::Kind::kFrozen : launch::FailureEvent::Kind::kLost;
    event.time_ns = clock_.NowNs();
    event.worker = worker;
    event.reason = silent ? absl::StrFormat("no heartbeat for %.1f s",
                                            static_cast<double>(options_.dead_after_ms) * 1e-3)
                          : lost.found;
    MutexLock lock(&mutex_);
    if (!process_epochs_.IsOfProcess(worker, lost.epoch)) return;
    lost_.push_back(std::move(event));
    supervisor_->Wake();
  };
  options.excuse_ms = [this](WorkerId worker) { return ExcuseMs(worker); };
  options.may_publish = [this](WorkerId worker, const std::string& key) {
    RankId owner = transport::RankOfCardSubject(key);
    if (!owner.has_value()) owner = collective::RankOfIdSubject(key);
    const std::vector<RankId> ranks = RanksNow(worker);
    return std::find(ranks.begin(), ranks.end(), owner) != ranks.end();
  };
  options.on_event = [this](WorkerId worker, const std::string& event) {
    TakeTrouble(worker, event);
  };
  WEIR_ASSIGN_OR_RETURN(options.credentials,
                        authority_->Issue(control::CoordinatorIdentity(job_id_)));
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<control::Coordinator> coordinator,
                        control::Coordinator::Start(std::move(options)));
  bool failed = false;
  {
    MutexLock lock(&mutex_);
    coordinator_ = std::move(coordinator);
    failed = !failures_.empty();
  }
  if (failed)
    this->coordinator()->Abort(absl::UnavailableError("a worker ended before the job began"));
  return absl::OkStatus();
}

void Fleet::WatchProcesses() {
  while (!ending_.load()) {
    const int64_t slept_ns = clock_.NowNs();
    absl::StatusOr<std::optional<launch::WorkerExit>> exit = supervisor_->Wait(kTickMs);
    // This process was stopped, or got no core. The other processes received no request in that
    // time.
    if (clock_.NowNs() - slept_ns > kLateMs * 1'000'000) watch_since_ns_.store(clock_.NowNs());
    if (exit.ok() && exit->has_value()) TakeExit(**exit);
    TakeLost();
    DoRequest();
    CheckProgress();
    RecordWorkers();
  }
  // Workers that know of the end leave by themselves. The other workers are asked, and then killed.
  const int64_t deadline_ns =
      clock_.NowNs() + (IsStuck() || !options_.trace.empty() ? kTellMs : kLeaveMs) * 1'000'000;
  while (supervisor_->num_running() > NumFrozen() && clock_.NowNs() < deadline_ns) {
    absl::StatusOr<std::optional<launch::WorkerExit>> exit = supervisor_->Wait(kTickMs);
    if (exit.ok() && exit->has_value()) TakeExit(**exit);
  }
  for (const launch::WorkerExit& exit : supervisor_->Stop()) TakeExit(exit);
  // The commands that lead to the agents of hosts end with this thread.
  if (at_end_) at_end_();
}

control::Coordinator* Fleet::coordinator() const {
  MutexLock lock(&mutex_);
  return coordinator_.get();
}

bool Fleet::IsStuck() {
  MutexLock lock(&mutex_);
  return std::any_of(failures_.begin(), failures_.end(), [](const launch::FailureEvent& event) {
    return event.kind == launch::FailureEvent::Kind::kStuck;
  });
}

// Counts the workers among those that run from which nothing comes any more.
int Fleet::NumFrozen() {
  std::set<WorkerId> frozen;
  MutexLock lock(&mutex_);
  for (const launch::FailureEvent& event : failures_) {
    if (event.kind == launch::FailureEvent::Kind::kFrozen ||
        event.kind == launch::FailureEvent::Kind::kNoHello)
      frozen.insert(event.worker);
  }
  for (const launch::FailureEvent& event : failures_) {
    if (event.kind == launch::FailureEvent::Kind::kExit) frozen.erase(event.worker);
  }
  return static_cast<int>(frozen.size());
}

void Fleet::TakeExit(const launch::WorkerExit& exit) {
  if (!IsOfJob(exit.worker)) return;
  const bool is_clean = exit.code == 0 && exit.signal == 0 && exit.lost.empty();
  if (is_clean && ending_.load()) return;
  launch::FailureEvent event = launch::EventOf(exit, known_ranks_[exit.worker]);
  event.host = HostOf(exit.worker);
  if (!exit.lost.empty()) {
    event.advice = absl::StrCat(
        "look at host '", event.host, "': is it up, and is its network?",
        may_recover_.load() ? "" : " `--resume` takes the job up from its last checkpoint");
    ExplainLostHost(event);
  }
  AddActivity(&event);
  ExplainExit(exit, &event);
  Fail(std::move(event),
       absl::UnavailableError(absl::StrCat(LabelOf(exit.worker), " (",
                                           launch::ProcessText(exit.pid, HostOf(exit.worker)),
                                           "): ", launch::ExitText(exit))));
}

// The workers of a lost host have mostly lost their connections before. The host is the reason.
void Fleet::ExplainLostHost(const launch::FailureEvent& lost) {
  MutexLock lock(&mutex_);
  for (launch::FailureEvent& event : failures_) {
    if (event.worker != lost.worker || event.kind != launch::FailureEvent::Kind::kLost) continue;
    event.cause = lost.reason;
    event.advice = lost.advice;
  }
  lost_hosts_[lost.worker] = lost;
}

// Does the same for a loss that is taken after that of the host.
void Fleet::ExplainByLostHost(launch::FailureEvent* event) {
  MutexLock lock(&mutex_);
  const auto host = lost_hosts_.find(event->worker);
  if (host == lost_hosts_.end()) return;
  event->cause = host->second.reason;
  event->advice = host->second.advice;
}

// A broken connection mostly is the end of the process, noticed from the other side. That end has
// more information, so the report combines the two events.
void Fleet::TakeLost() {
  std::vector<launch::FailureEvent> lost;
  {
    MutexLock lock(&mutex_);
    lost.swap(lost_);
    is_explaining_ = !lost.empty();
  }
  for (launch::FailureEvent& event : lost) {
    if (!IsOfJob(event.worker)) continue;
    event.ranks = known_ranks_[event.worker];
    event.pid = supervisor_->pid(event.worker);
    event.host = HostOf(event.worker);
    AddActivity(&event);
    if (event.kind == launch::FailureEvent::Kind::kFrozen) ExplainSilence(&event);
    if (event.kind == launch::FailureEvent::Kind::kLost) ExplainByLostHost(&event);
    absl::Status reason =
        absl::UnavailableError(absl::StrCat(launch::RankLabel(event.ranks), ": ", event.reason));
    // Other workers may need time to stop waiting for this worker. A person who watches learns at
    // once why they end. Whether all start again then is not known here.
    if (event.kind == launch::FailureEvent::Kind::kFrozen) {
      options_.console->Say(absl::StrCat("the process of ", launch::RankLabel(event.ranks), " (",
                                         launch::ProcessText(event.pid, event.host),
                                         ") is frozen: ", event.reason,
                                         event.cause.empty() ? "" : "; ", event.cause,
                                         may_recover_.load() ? "" : "; all processes end"));
    }
    Fail(std::move(event), reason);
  }
  MutexLock lock(&mutex_);
  is_explaining_ = false;
  failed_.NotifyAll();
}

// Takes the report of a worker that cannot go on and knows why. Runs on the coordinator's thread.
void Fleet::TakeTrouble(WorkerId worker, const std::string& bytes) {
  proto::WorkerTrouble trouble;
  if (!trouble.ParseFromString(bytes)) return;
  launch::FailureEvent event;
  event.kind = launch::FailureEvent::Kind::kBroken;
  event.time_ns = clock_.NowNs();
  event.worker = worker;
  const absl::Status status = control::FromOutcome(trouble.outcome());
  event.reason = std::string(status.message());
  if (const std::optional<Problem> problem = ProblemOf(status);
      problem.has_value() && !problem->hint.empty()) {
    event.reason = HeadText(*problem);
    event.advice = problem->hint;
  }
  MutexLock lock(&mutex_);
  if (trouble.epoch() != epoch_.load()) return;
  lost_.push_back(std::move(event));
  supervisor_->Wake();
}

// Excuses a worker that others keep from the cores: the worker is late, not dead, and is looked at
// again soon.
int64_t Fleet::ExcuseMs(WorkerId worker) {
  if (!starvation_.IsStarved(worker.value(), supervisor_->Use(worker), clock_.NowNs())) return 0;
  if (starvation_.NumLooks(worker.value()) == 2) {  // the first look may be mistaken
    options_.console->Say(absl::StrFormat(
        "the process of %s (%s) gets no core: no heartbeat for %.1f s, though it "
        "is ready to run; other programs use the machine",
        LabelNow(worker), launch::ProcessText(supervisor_->pid(worker), HostOf(worker)),
        static_cast<double>(options_.dead_after_ms) * 1e-3));
  }
  return std::max<int64_t>(1, options_.dead_after_ms / kLooksPerDeath);
}

// While steps run, some actor acts now and then; otherwise the plan or a rank is stuck.
void Fleet::CheckProgress() {
  if (!watch_progress_.load()) return;
  const int64_t now_ns = clock_.NowNs();
  if (now_ns - watch_since_ns_.load() < options_.stuck_after_ms * 1'000'000) return;
  const IdVector<WorkerId, control::WorkerHealth> health = coordinator()->Health();
  launch::FailureEvent event;
  event.kind = launch::FailureEvent::Kind::kStuck;
  event.time_ns = now_ns;
  event.reason = absl::StrFormat("no actor of any rank has acted for %.1f s",
                                 static_cast<double>(options_.stuck_after_ms) * 1e-3);
  std::vector<WorkerId> unfinished;
  for (const WorkerId worker : workers()) {
    if (health[worker].since_progress_ms < options_.stuck_after_ms) return;
    event.details.push_back(health[worker].progress.activity);
    if (!health[worker].progress.done) unfinished.push_back(worker);
  }
  // No other worker has an actor that waits, so no account of waits names this worker.
  if (unfinished.size() == 1 && workers_.size() > 1) {
    event.details.push_back(absl::StrCat("all other ranks have done their acts and wait for ",
                                         launch::RankLabel(ranks_of_[unfinished.front()])));
  }
  watch_progress_.store(false);
  ExplainStandstill(&event);
  supervisor_->HideOutput();  // the list of all waits is long, and the report has a summary
  const absl::Status reason =
      CodedError(absl::StatusCode::kAborted, "W0516", absl::StrCat("no progress: ", event.reason));
  Fail(std::move(event), reason);
}

// Lets programs that watch the run see the workers.
void Fleet::RecordWorkers() {
  if (options_.live == nullptr || !options_.live->WantsWorkers()) return;
  const control::Coordinator* const coordinator = this->coordinator();
  IdVector<WorkerId, control::WorkerHealth> health(ranks_of_.size());
  if (coordinator != nullptr) health = coordinator->Health();
  std::vector<live::LiveWorker> seen;
  for (const WorkerId worker : workers()) {
    live::LiveWorker& one = seen.emplace_back();
    one.ranks = ranks_of_[worker];
    one.host = HostOf(worker);
    one.pid = supervisor_->pid(worker);
    one.silent_ms = health[worker].since_heartbeat_ms;
    one.acts = health[worker].progress.acts;
    one.activity = health[worker].progress.activity;
    one.resident_bytes = health[worker].progress.resident_bytes;
    if (health[worker].connected) one.state = live::LiveWorker::State::kConnected;
    if (!health[worker].connected && health[worker].pid > 0)
      one.state = live::LiveWorker::State::kEnded;
  }
  options_.live->SetWorkers(seen, epoch_.load());
}

// Explains the waits of a stuck job. Workers that could still look at their actors have given an
// account, and the accounts together show the reason.
void Fleet::TellWaits(std::vector<launch::FailureEvent>* events) {
  const auto stuck =
      std::find_if(events->begin(), events->end(), [](const launch::FailureEvent& event) {
        return event.kind == launch::FailureEvent::Kind::kStuck;
      });
  if (stuck == events->end()) return;
  std::vector<actors::Wait> waits;
  std::vector<std::string> lines, missing;
  const IdVector<WorkerId, control::WorkerHealth> health = coordinator()->Health();
  for (const WorkerId worker : workers()) {
    const std::vector<RankId>& ranks = ranks_of_[worker];
    proto::WorkerLastWords words;
    std::optional<std::vector<actors::Wait>> account;
    if (words.ParseFromString(health[worker].last_words) && words.has_account())
      account = WaitsOf(words.account());
    if (!account.has_value()) {
      missing.push_back(absl::StrCat("no account came from ", launch::RankLabel(ranks)));
      continue;
    }
    for (std::string& line : WaitsForOthers(*account, ranks)) lines.push_back(std::move(line));
    if (words.account().num_left_out() > 0) {
      missing.push_back(absl::StrCat("the account of ", launch::RankLabel(ranks), " leaves out ",
                                     words.account().num_left_out(), " more actors that wait"));
    }
    for (actors::Wait& wait : *account) waits.push_back(std::move(wait));
  }
  std::sort(lines.begin(), lines.end());
  for (std::string& line : missing) lines.push_back(std::move(line));
  for (std::string& line : actors::ExplainWaits(waits)) lines.push_back(std::move(line));
  stuck->details.insert(stuck->details.end(), lines.begin(), lines.end());
}

// Adds the last activity that the worker reported.
void Fleet::AddActivity(launch::FailureEvent* event) {
  const control::Coordinator* const coordinator = this->coordinator();
  if (coordinator == nullptr) return;
  const control::WorkerHealth health = coordinator->Health()[event->worker];
  event->last_activity = health.progress.activity;
  event->activity_age_ms = health.since_heartbeat_ms;
}

void Fleet::Enter(launch::FailureMoment moment) {
  MutexLock lock(&mutex_);
  moment_ = moment;
}

void Fleet::Fail(launch::FailureEvent event, const absl::Status& reason) {
  control::Coordinator* coordinator = nullptr;
  {
    MutexLock lock(&mutex_);
    event.moment = moment_;
    const bool is_loss = event.kind != launch::FailureEvent::Kind::kStuck;
    failures_.push_back(std::move(event));
    if (may_recover_.load() && is_loss && !has_ended_) {
      failed_.NotifyAll();
      return;
    }
    has_ended_ = true;
    coordinator = coordinator_.get();
  }
  failed_.NotifyAll();
  if (coordinator != nullptr) coordinator->Abort(reason);
}

absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> Fleet::Call(
    const proto::WorkerCommand& command, Watch watch) {
  return CallEach(IdVector<WorkerId, proto::WorkerCommand>(ranks_of_.size(), command), watch);
}

absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> Fleet::CallEach(
    const IdVector<WorkerId, proto::WorkerCommand>& commands, Watch watch) {
  IdVector<WorkerId, std::string> requests;
  for (const proto::WorkerCommand& command : commands)
    requests.push_back(command.SerializeAsString());
  watch_since_ns_.store(clock_.NowNs());
  watch_progress_.store(watch == Watch::kProgress);
  absl::StatusOr<IdVector<WorkerId, std::string>> replies = coordinator()->CallEach(requests, 0);
  watch_progress_.store(false);
  WEIR_RETURN_IF_ERROR(replies.status());
  IdVector<WorkerId, proto::WorkerAnswer> answers(ranks_of_.size());
  for (const WorkerId worker : workers()) {
    if (!answers[worker].ParseFromString((*replies)[worker])) {
      return absl::InternalError(
          absl::StrCat("the process of ", LabelOf(worker), " gave an answer that is none"));
    }
  }
  return answers;
}

std::vector<launch::RemainingWorker> Fleet::Remaining() const {
  std::vector<launch::RemainingWorker> remaining;
  if (supervisor_ == nullptr) return remaining;
  const std::vector<WorkerId> running = supervisor_->running();
  const std::vector<launch::WorkerLook> looks = supervisor_->Look(running);
  for (size_t i = 0; i < running.size(); ++i) {
    const WorkerId worker = running[i];
    const launch::WorkerLook& look = looks[i];
    // Dead threads that a debugger has not collected still exist.
    const std::string state = !look.is_seen ? "is on a host that does not answer"
                              : look.kind == launch::ProcessState::Kind::kGone
                                  ? "is held by a debugger"
                                  : launch::StateText(look.kind);
    remaining.push_back(
        {known_ranks_[worker], supervisor_->pid(worker), state, HostOf(worker), look.is_seen});
  }
  return remaining;
}

void Fleet::AwaitRemaining() {
  const std::vector<launch::RemainingWorker> before = Remaining();
  if (before.empty()) return;
  // A host that does not answer shows no process, however long this one waits.
  const auto num_seen =
      std::count_if(before.begin(), before.end(),
                    [](const launch::RemainingWorker& worker) { return worker.is_seen; });
  if (num_seen > 0) {
    options_.console->Say(absl::StrFormat("waiting %.0f s for %d %s that SIGKILL has not ended yet",
                                          static_cast<double>(options_.remaining_limit_ms) * 1e-3,
                                          num_seen, num_seen == 1 ? "process" : "processes"));
    supervisor_->Reap(options_.remaining_limit_ms);
  }
  for (const launch::RemainingWorker& worker : Remaining()) {
    options_.console->Say(absl::StrCat("the process of ", launch::RankLabel(worker.ranks), " (",
                                       launch::ProcessText(worker.pid, worker.host),
                                       ") is left behind: it ", worker.state,
                                       ", and ends as soon as that lets go of it"));
  }
}

launch::FailureReport Fleet::Finish(const absl::Status& status) {
  if (!watcher_.joinable()) return {};
  if (status.ok()) Enter(launch::FailureMoment::kEnding);
  bool failed = !status.ok();
  std::vector<launch::FailureEvent> failures;
  {
    MutexLock lock(&mutex_);
    if (absl::IsUnavailable(status) || absl::IsAborted(status) ||
        absl::IsDeadlineExceeded(status)) {
      failed_.WaitFor(&mutex_, kNoticeMs, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !failures_.empty();
      });
      // A loss that is known, and not yet explained, is what the report is about.
      failed_.WaitFor(&mutex_, kExplainMs, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !failures_.empty() || (!is_explaining_ && lost_.empty());
      });
    }
    failed = failed || !failures_.empty();
    failures = failures_;
  }
  control::Coordinator* const coordinator = this->coordinator();
  if (coordinator != nullptr) {
    if (failed) {  // workers that end now follow
      coordinator->Abort(absl::CancelledError("the job has failed"));
    } else {
      coordinator->Shutdown(kShutdownMs);
      MutexLock lock(&mutex_);
      failures = failures_;
    }
  }
  IdVector<WorkerId, int64_t> clock_offset_ns(ranks_of_.size(), 0);
  if (coordinator != nullptr) {
    const IdVector<WorkerId, control::WorkerHealth> health = coordinator->Health();
    for (const WorkerId worker : workers())
      clock_offset_ns[worker] = health[worker].clock_offset_ns;
  }
  at_end_ = [&] {
    if (failed && !trace_complete_ && !options_.trace.empty()) GatherTrace(clock_offset_ns);
    RemoveShipped(on_hosts_);
  };
  ending_.store(true);
  if (supervisor_ != nullptr) supervisor_->Wake();
  watcher_.join();
  if (failures.empty()) {  // nothing failed by itself; consequences of the end do not count
    if (status.ok() && !has_told_loss_) launch::RemoveEmptyLogs(log_directory_);
    return {};
  }
  {
    MutexLock lock(&mutex_);
    failures = failures_;  // with those that the watching thread saw at the end
  }
  launch::FailedJob job =
      FailedJobOf(std::move(failures),
                  status.ok() ? launch::FailedJob::Ends::kProcess : launch::FailedJob::Ends::kJob);
  job.remaining = Remaining();
  TellWaits(&job.events);
  return launch::ReportFailure(job);
}

}  // namespace weir::fleet
