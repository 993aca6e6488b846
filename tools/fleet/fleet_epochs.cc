// The parts of Fleet that begin an epoch: what a worker is told of it, and how the job goes on when
// processes were lost.
#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/hello_watch.h"
#include "tools/fleet/losses.h"
#include "tools/fleet/mesh_change.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/placement.h"
#include "tools/launch/process_state.h"

namespace weir::fleet {
namespace {

// The time to notice what ended a call: the end of a process mostly comes at once.
constexpr int64_t kNoticeMs = 1000;
// The longest wait for the end of a process that is ending, which frees its memory first.
constexpr int64_t kTogetherMs = 1000;
// The time between two looks at whether a process has ended before its hello.
constexpr int64_t kHelloLookMs = 20;
// At most this number of processes that have said no hello are explained. Each explanation may take
// a second.
constexpr size_t kExplainedMax = 3;

}  // namespace

absl::Status Fleet::TellWorker(WorkerId worker) {
  WEIR_ASSIGN_OR_RETURN(control::Credentials credentials,
                        authority_->Issue(control::WorkerIdentity(job_id_, worker, epoch_.load())));
  proto::WorkerBundle bundle;
  bundle.set_job_id(job_id_);
  bundle.set_epoch(epoch_.load());
  bundle.set_worker(worker.value());
  bundle.set_coordinator_address(coordinator()->address());
  bundle.set_authority_pem(credentials.authority_pem);
  bundle.set_certificate_pem(credentials.certificate_pem);
  bundle.set_key_pem(credentials.key_pem);
  bundle.set_job_key(credentials.job_key);
  bundle.set_heartbeat_ms(options_.heartbeat_ms);
  bundle.set_dead_after_ms(options_.dead_after_ms);
  bundle.set_num_workers(num_workers());
  bundle.set_trace_part(TracePartOf(worker));
  bundle.set_host(HostOf(worker));
  bundle.set_is_child_of_starter(options_.hosts.empty());
  bundle.set_interface(options_.hosts.empty()        ? "lo"
                       : !options_.interface.empty() ? options_.interface
                                                     : starter_address_.interfaces[HostIdOf(worker)]);
  // If the worker is already gone, WaitForWorkers reports it.
  supervisor_->Tell(worker, bundle.SerializeAsString()).IgnoreError();
  return absl::OkStatus();
}

std::vector<WorkerId> Fleet::LostWorkers() const { return fleet::LostWorkers(failures_); }

absl::Status Fleet::GiveUp(WorkerId worker, const std::string& evidence) {
  launch::FailureEvent event;
  event.kind = launch::FailureEvent::Kind::kSlow;
  event.time_ns = clock_.NowNs();
  event.worker = worker;
  event.ranks = known_ranks_[worker];
  event.pid = supervisor_->pid(worker);
  event.host = HostOf(worker);
  event.reason = evidence;
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat("the process of ", launch::RankLabel(event.ranks), " is slow: ", evidence));
  Fail(std::move(event), reason);
  return reason;
}

bool Fleet::AnotherIsEnding() const {
  if (is_spread_over_hosts()) return false;
  // A connection closes before the end of its process is known, and the end says more.
  std::vector<WorkerId> ended;
  for (const launch::FailureEvent& event : failures_) {
    if (event.kind == launch::FailureEvent::Kind::kExit) ended.push_back(event.worker);
  }
  for (const WorkerId worker : workers()) {
    if (std::count(ended.begin(), ended.end(), worker) == 0 &&
        launch::IsEnding(static_cast<pid_t>(supervisor_->pid(worker))))
      return true;
  }
  return false;
}

launch::FailureReport Fleet::ReportLoss() {
  std::vector<launch::FailureEvent> failures;
  bool is_lost = false;
  {
    MutexLock lock(&mutex_);
    const auto is_known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      // The end of a process, or of its host, says more than the end of its connection.
      bool has_end = false;
      for (const launch::FailureEvent& event : failures_) {
        const bool is_connection =
            event.kind == launch::FailureEvent::Kind::kLost && lost_hosts_.count(event.worker) == 0;
        has_end = has_end || (IsLoss(event) && !is_connection);
      }
      return has_ended_ || (has_end && !is_explaining_ && lost_.empty());
    };
    failed_.WaitFor(&mutex_, kNoticeMs, is_known);
    if (has_ended_ || !may_recover_.load()) return {};
    // Processes that were killed at the same moment are one loss, though one ends before the other.
    failed_.WaitFor(&mutex_, kTogetherMs, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return has_ended_ || !AnotherIsEnding();
    });
    if (has_ended_) return {};
    told_lost_ = LostWorkers();
    is_lost = !LostWorkers().empty();
    has_ended_ = !is_lost;
    failures = failures_;
  }
  if (!is_lost) {
    // All processes live, so nothing that could be replaced is lost.
    coordinator()->Abort(absl::UnavailableError("the job failed, and no process was lost"));
    return {};
  }
  has_told_loss_ = true;
  return launch::ReportFailure(FailedJobOf(std::move(failures), launch::FailedJob::Ends::kProcess));
}

launch::FailedJob Fleet::FailedJobOf(std::vector<launch::FailureEvent> events,
                                     launch::FailedJob::Ends ends) const {
  launch::FailedJob job;
  job.start_ns = run_began_ns_;
  job.log_directory = log_directory_;
  job.events = std::move(events);
  job.ends = ends;
  // Logs have the ranks of the start of the job in their names.
  const auto at_start = SpreadOver(AllOf(ranks_of_), room_of_, num_ranks_at_start());
  for (launch::FailureEvent& event : job.events) {
    if (event.worker.has_value() && at_start.has_value())
      event.log = launch::LogFileName(launch::RankLabel((*at_start)[event.worker]));
  }
  return job;
}

void Fleet::LetWatcherDo(std::function<void()> act) {
  std::promise<void> done;
  {
    MutexLock lock(&mutex_);
    request_ = [&act, &done] {
      act();
      done.set_value();
    };
  }
  supervisor_->Wake();
  done.get_future().wait();
}

void Fleet::DoRequest() {
  std::function<void()> request;
  {
    MutexLock lock(&mutex_);
    request.swap(request_);
  }
  if (request) request();
}

// Returns the workers whose processes are lost, in order.
std::vector<WorkerId> Fleet::WorkersToStart() const {
  std::vector<WorkerId> lost;
  {
    MutexLock lock(&mutex_);
    lost = LostWorkers();
  }
  if (lost.empty()) return lost;
  IdVector<WorkerId, bool> is_there = WhoIsThere();
  for (const WorkerId worker : is_there.ids()) {
    if (!IsOfJob(worker)) is_there[worker] = true;
  }
  return WorkersToReplace(std::move(lost), is_there);
}

IdVector<WorkerId, bool> Fleet::WhoIsThere() const {
  const std::vector<WorkerId> running = supervisor_->running();
  IdVector<WorkerId, bool> is_there;
  for (const control::WorkerHealth& health : coordinator()->Health()) {
    const auto processes = std::count(running.begin(), running.end(), is_there.next_id());
    is_there.push_back(health.connected && processes > 0);
  }
  return is_there;
}

absl::Status Fleet::StartAnew(const std::vector<WorkerId>& lost, Replace replace) {
  std::vector<std::string> names;
  for (const WorkerId worker : lost) names.push_back(LabelOf(worker));
  const bool starts = replace == Replace::kAll;
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat("the process of ", absl::StrJoin(names, " and "),
                   starts ? " was lost, and starts anew" : " was lost, and the mesh changes"));
  if (on_hosts_ != nullptr && starts) WEIR_RETURN_IF_ERROR(TakePlaces(lost));
  const uint32_t epoch = epoch_.load() + 1;
  {
    // What the coordinator loses from here on is of the new epoch. What it lost before, and nobody
    // has taken yet, is known unless its worker is none of the lost.
    MutexLock lock(&mutex_);
    epoch_.store(epoch);
    process_epochs_.Start(lost, epoch);
    DropSettled(lost, &lost_);
  }
  coordinator()->BeginEpoch(epoch, lost, reason);
  if (!starts) {
    Leave(lost);
    // A process that is stopped, slow or cut off would keep its memory, and its device.
    for (const WorkerId worker : lost) supervisor_->Kill(worker);
  }
  for (const WorkerId worker : starts ? lost : std::vector<WorkerId>()) {
    // Whether a process can start follows from no other process.
    const absl::Status started = StartOneAnew(worker, lost);
    if (!started.ok()) return WithCode(absl::StatusCode::kFailedPrecondition, started);
    WEIR_RETURN_IF_ERROR(TellWorker(worker));
  }
  MutexLock lock(&mutex_);
  for (const WorkerId worker : lost) lost_hosts_.erase(worker);
  DropSettled(lost, &failures_);
  return absl::OkStatus();
}

bool Fleet::IsOfJob(WorkerId worker) const {
  return std::binary_search(workers_.begin(), workers_.end(), worker);
}

std::vector<RankId> Fleet::RanksNow(WorkerId worker) const {
  MutexLock lock(&mutex_);
  return ranks_of_[worker];
}

std::string Fleet::LabelOf(WorkerId worker) const {
  return launch::RankLabel(known_ranks_[worker]);
}

std::string Fleet::LabelNow(WorkerId worker) const {
  MutexLock lock(&mutex_);
  return launch::RankLabel(known_ranks_[worker]);
}

void Fleet::NoteStepDone() {
  exchanged_.clear();
  if (known_ranks_ == ranks_of_) return;
  LetWatcherDo([&] {
    MutexLock lock(&mutex_);
    known_ranks_ = ranks_of_;
  });
}

// Lets workers be no part of the job any more. What still ends of them is no failure.
void Fleet::Leave(const std::vector<WorkerId>& gone) {
  coordinator()->Dismiss(gone);
  MutexLock lock(&mutex_);
  std::erase_if(workers_, [&gone](WorkerId worker) {
    return std::count(gone.begin(), gone.end(), worker) > 0;
  });
  for (const WorkerId worker : gone) ranks_of_[worker].clear();
}

absl::Status Fleet::Spread(int num_ranks) {
  std::optional<IdVector<WorkerId, std::vector<RankId>>> ranks_of =
      SpreadOver(workers(), room_of_, num_ranks);
  if (!ranks_of.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("the processes have room for ",
                                                      NumRanksLeft(workers(), {}, room_of_),
                                                      " ranks, and not for ", num_ranks));
  }
  LetWatcherDo([&] {
    MutexLock lock(&mutex_);
    ranks_of_ = *std::move(ranks_of);
  });
  return absl::OkStatus();
}

std::vector<WorkerId> Fleet::DismissIdle() {
  std::vector<WorkerId> idle;
  LetWatcherDo([&] {
    for (const WorkerId worker : workers_) {
      if (ranks_of_[worker].empty()) idle.push_back(worker);
    }
    Leave(idle);
  });
  return idle;
}

absl::StatusOr<std::vector<WorkerId>> Fleet::BeginEpoch(Replace replace) {
  std::vector<WorkerId> lost;
  LetWatcherDo([&] { lost = WorkersToStart(); });
  if (lost.empty()) return absl::FailedPreconditionError("no process of the job is lost");
  SayAlsoLost(lost);
  exchanged_.insert(lost.begin(), lost.end());
  if (replace == Replace::kAll) anew_ = lost;
  absl::Status started;
  LetWatcherDo([&] { started = StartAnew(lost, replace); });
  WEIR_RETURN_IF_ERROR(started);
  WEIR_RETURN_IF_ERROR(WaitForHellos());
  anew_.clear();
  return lost;
}

// Tells of losses that came after the report. A new process that has said no hello yet is none of
// them.
void Fleet::SayAlsoLost(const std::vector<WorkerId>& lost) {
  for (const WorkerId worker : lost) {
    if (std::count(told_lost_.begin(), told_lost_.end(), worker) +
            std::count(anew_.begin(), anew_.end(), worker) >
        0)
      continue;
    launch::FailedJob job;
    {
      MutexLock lock(&mutex_);
      for (const launch::FailureEvent& event : failures_) {
        if (event.worker == worker) job.events.push_back(event);
      }
    }
    const std::string how = launch::FirstFailureText(job);
    const std::string line =
        absl::StrCat("WARNING: the process of ", LabelOf(worker), " was lost a moment later, too",
                     how.empty() ? "" : ": ", how);
    options_.console->Say(line);
    if (options_.live != nullptr) options_.live->Say(line);
  }
}

// Waits until all workers have said hello in the new epoch. The coordinator cannot know that a
// process has ended before its hello; only the supervisor sees that end.
absl::Status Fleet::WaitForHellos() {
  HelloWatch watch(ChooseHelloLimits(options_.dead_after_ms, num_workers()));
  while (true) {
    const int64_t begin_ns = clock_.NowNs();
    const absl::Status come = coordinator()->WaitForWorkers(kHelloLookMs);
    watch.AddWait((clock_.NowNs() - begin_ns) / 1'000'000);
    if (!absl::IsDeadlineExceeded(come)) return come;
    {
      MutexLock lock(&mutex_);
      const auto loss = std::find_if(failures_.begin(), failures_.end(), IsLoss);
      if (loss != failures_.end()) {
        return absl::UnavailableError(absl::StrCat("a process was lost before it said hello: ",
                                                   launch::FirstFailureText({.events = {*loss}})));
      }
    }
    if (watch.LookIsDue() && FailSilent(&watch))
      return WithCode(absl::StatusCode::kUnavailable, come);
  }
}

// Waits until each process of the job that runs has said hello, or has failed to, whoever else is
// lost meanwhile.
void Fleet::AwaitWhoComes() {
  HelloWatch watch(ChooseHelloLimits(options_.dead_after_ms, num_workers()));
  const auto some_are_silent = [this] {
    bool some = false;
    LetWatcherDo([&] { some = !SilentWorkers().empty(); });
    return some;
  };
  for (int64_t begin_ns = clock_.NowNs(); some_are_silent(); begin_ns = clock_.NowNs()) {
    absl::SleepFor(absl::Milliseconds(kHelloLookMs));
    watch.AddWait((clock_.NowNs() - begin_ns) / 1'000'000);
    if (watch.LookIsDue()) FailSilent(&watch);
  }
}

std::vector<WorkerId> Fleet::SilentWorkers() const {
  std::vector<WorkerId> lost;
  {
    MutexLock lock(&mutex_);
    lost = LostWorkers();
  }
  const std::vector<WorkerId> running = supervisor_->running();
  const IdVector<WorkerId, control::WorkerHealth> health = coordinator()->Health();
  std::vector<WorkerId> silent;
  for (const WorkerId worker : workers()) {
    if (!health[worker].connected && std::count(running.begin(), running.end(), worker) > 0 &&
        std::count(lost.begin(), lost.end(), worker) == 0)
      silent.push_back(worker);
  }
  return silent;
}

bool Fleet::FailSilent(HelloWatch* watch) {
  const int64_t begin_ns = clock_.NowNs();
  std::vector<WorkerId> failed;
  LetWatcherDo([&] {
    const std::vector<WorkerId> workers = SilentWorkers();
    const std::vector<launch::WorkerLook> looks = supervisor_->Glance(workers);
    std::vector<SilentWorker> silent;
    for (size_t i = 0; i < workers.size(); ++i)
      silent.push_back({workers[i], looks[i].kind, looks[i].is_seen});
    failed = watch->Judge(silent);
    const std::string reason = absl::StrFormat("has not said hello within %.1f s",
                                               static_cast<double>(watch->waited_ms()) * 1e-3);
    std::vector<launch::FailureEvent> events;
    for (const WorkerId worker : failed) {
      events.push_back(FailureToCome(launch::FailureEvent::Kind::kNoHello, worker, reason));
      if (events.size() <= kExplainedMax) ExplainSilence(&events.back());
    }
    for (launch::FailureEvent& event : events) TakeFailureToCome(std::move(event));
  });
  watch->AddLook((clock_.NowNs() - begin_ns) / 1'000'000);
  return !failed.empty();
}

}  // namespace weir::fleet
