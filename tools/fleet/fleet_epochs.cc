// The parts of Fleet that begin an epoch: what a worker is told of it, and how the job goes on when
// processes were lost.
#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/fleet/fleet.h"
#include "tools/launch/placement.h"

namespace weir::fleet {
namespace {

// The time to notice what ended a call: the end of a process mostly comes at once.
constexpr int64_t kNoticeMs = 1000;
constexpr int64_t kHelloLimitMs = 30'000;
// The time between two looks at whether a process has ended before its hello.
constexpr int64_t kHelloLookMs = 20;

bool IsLoss(const launch::FailureEvent& event) {
  return event.kind == launch::FailureEvent::Kind::kExit ||
         event.kind == launch::FailureEvent::Kind::kLost ||
         event.kind == launch::FailureEvent::Kind::kFrozen;
}

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
                                                     : starter_address_.interfaces[options_.host_of[worker]]);
  // If the worker is already gone, WaitForWorkers reports it.
  supervisor_->Tell(worker, bundle.SerializeAsString()).IgnoreError();
  return absl::OkStatus();
}

std::vector<WorkerId> Fleet::LostWorkers() const {
  std::vector<WorkerId> lost;
  for (const launch::FailureEvent& event : failures_) {
    if (IsLoss(event) && std::count(lost.begin(), lost.end(), event.worker) == 0)
      lost.push_back(event.worker);
  }
  std::sort(lost.begin(), lost.end());
  return lost;
}

launch::FailureReport Fleet::ReportLoss() {
  launch::FailedJob job;
  bool is_lost = false;
  {
    MutexLock lock(&mutex_);
    const auto is_known = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      // The end of a process says more than the end of its connection.
      const bool has_end =
          std::any_of(failures_.begin(), failures_.end(), [](const launch::FailureEvent& event) {
            return IsLoss(event) && event.kind != launch::FailureEvent::Kind::kLost;
          });
      return has_ended_ || (has_end && !is_explaining_ && lost_.empty());
    };
    failed_.WaitFor(&mutex_, kNoticeMs, is_known);
    if (has_ended_ || !may_recover_.load()) return {};
    is_lost = !LostWorkers().empty();
    has_ended_ = !is_lost;
    job.events = failures_;
  }
  if (!is_lost) {
    // All processes live, so nothing that could be replaced is lost.
    coordinator()->Abort(absl::UnavailableError("the job failed, and no process was lost"));
    return {};
  }
  job.start_ns = started_ns_;
  job.log_directory = log_directory_;
  job.ends = launch::FailedJob::Ends::kProcess;
  return launch::ReportFailure(job);
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

absl::Status Fleet::StartAnew(const std::vector<WorkerId>& lost) {
  std::vector<std::string> names;
  for (const WorkerId worker : lost) names.push_back(launch::RankLabel(ranks_of_[worker]));
  const absl::Status reason = absl::UnavailableError(
      absl::StrCat("the process of ", absl::StrJoin(names, " and "), " was lost, and starts anew"));
  const uint32_t epoch = epoch_.load() + 1;
  // What the coordinator loses from here on is of the new epoch.
  epoch_.store(epoch);
  coordinator()->BeginEpoch(epoch, lost, reason);
  for (const WorkerId worker : lost) {
    // Whether a process can start follows from no other process.
    const absl::Status started = supervisor_->StartAgain(worker);
    if (!started.ok()) return WithCode(absl::StatusCode::kFailedPrecondition, started);
    WEIR_RETURN_IF_ERROR(TellWorker(worker));
  }
  MutexLock lock(&mutex_);
  const auto is_of_old = [&lost](const launch::FailureEvent& event) {
    return !IsLoss(event) || std::count(lost.begin(), lost.end(), event.worker) > 0;
  };
  failures_.erase(std::remove_if(failures_.begin(), failures_.end(), is_of_old), failures_.end());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<WorkerId>> Fleet::BeginEpoch() {
  std::vector<WorkerId> lost;
  {
    MutexLock lock(&mutex_);
    lost = LostWorkers();
  }
  if (lost.empty()) return absl::FailedPreconditionError("no process of the job is lost");
  // The end of a process may not be noticed yet, and a process that has not said hello would say it
  // for the old epoch.
  const IdVector<WorkerId, control::WorkerHealth> health = coordinator()->Health();
  for (const WorkerId worker : workers()) {
    if (!health[worker].connected && std::count(lost.begin(), lost.end(), worker) == 0)
      lost.push_back(worker);
  }
  std::sort(lost.begin(), lost.end());
  absl::Status started;
  LetWatcherDo([&] { started = StartAnew(lost); });
  WEIR_RETURN_IF_ERROR(started);
  WEIR_RETURN_IF_ERROR(WaitForHellos());
  return lost;
}

// Waits until all workers have said hello in the new epoch. The coordinator cannot know that a
// process has ended before its hello; only the supervisor sees that end.
absl::Status Fleet::WaitForHellos() {
  const int64_t end_ns = clock_.NowNs() + kHelloLimitMs * 1'000'000;
  while (true) {
    const absl::Status come = coordinator()->WaitForWorkers(kHelloLookMs);
    if (!absl::IsDeadlineExceeded(come)) return come;
    MutexLock lock(&mutex_);
    for (const launch::FailureEvent& event : failures_) {
      if (event.kind != launch::FailureEvent::Kind::kExit) continue;
      return absl::UnavailableError(absl::StrCat("the process of ", launch::RankLabel(event.ranks),
                                                 " ended before it said hello"));
    }
    if (clock_.NowNs() >= end_ns) return come;
  }
}

}  // namespace weir::fleet
