// The parts of Fleet with which a job whose mesh has become smaller gets its lost workers back.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/losses.h"
#include "tools/fleet/mesh_change.h"
#include "tools/launch/placement.h"

namespace weir::fleet {

std::vector<WorkerId> Fleet::WorkersAway() const {
  std::vector<WorkerId> away;
  for (const WorkerId worker : ranks_of_.ids()) {
    if (!IsOfJob(worker)) away.push_back(worker);
  }
  return away;
}

bool Fleet::CanGrow() {
  if (!may_recover_.load() || WorkersAway().empty()) return false;
  bool have_places = true;
  LetWatcherDo([this, &have_places] {
    have_places = on_hosts_ == nullptr || PlacesOf(AllOf(ranks_of_), WorkersAway()).ok();
  });
  return have_places;
}

void Fleet::SeekLostHosts() {
  if (on_hosts_ == nullptr) return;
  LetWatcherDo([this] {
    for (const HostId host : options_.hosts.ids()) {
      if (!on_hosts_->LostText(host).empty()) on_hosts_->ReachAgain(host);
    }
  });
}

// A process that is lost before the epoch begins belongs to the old one, and its loss is dealt with
// first.
absl::Status Fleet::CheckAllAreThere() const {
  const IdVector<WorkerId, bool> is_there = WhoIsThere();
  MutexLock lock(&mutex_);
  bool all_are_there = failures_.empty() && lost_.empty();
  for (const WorkerId worker : workers_) all_are_there = all_are_there && is_there[worker];
  return all_are_there ? absl::OkStatus() : absl::UnavailableError("a process of the job is lost");
}

absl::StatusOr<std::vector<WorkerId>> Fleet::BeginGrowth() {
  const std::vector<WorkerId> returning = WorkersAway();
  if (returning.empty() || !may_recover_.load())
    return absl::FailedPreconditionError("no worker of the job can come back");
  anew_ = returning;
  exchanged_.insert(returning.begin(), returning.end());
  absl::Status started;
  LetWatcherDo([&] { started = StartReturning(returning); });
  WEIR_RETURN_IF_ERROR(started);
  const absl::Status come = WaitForHellos();
  // Another process may have been lost. The processes that still start are of use to the others.
  if (absl::IsUnavailable(come)) AwaitWhoComes();
  if (absl::IsUnavailable(come) || absl::IsAborted(come)) return come;
  if (come.ok()) {
    anew_.clear();
    return returning;
  }
  const std::string reason = absl::StrCat("its new process cannot join: ", come.message());
  const IdVector<WorkerId, control::WorkerHealth> health = coordinator()->Health();
  for (const WorkerId worker : returning) {
    if (!health[worker].connected) FailToCome(worker, reason);
  }
  return WithCode(absl::StatusCode::kUnavailable, come);
}

// Lets the workers be of the job again, in the next epoch, and starts their processes. A process
// that cannot start is a loss of that epoch as any other.
absl::Status Fleet::StartReturning(const std::vector<WorkerId>& returning) {
  WEIR_RETURN_IF_ERROR(CheckAllAreThere());
  const uint32_t epoch = epoch_.load() + 1;
  {
    MutexLock lock(&mutex_);
    workers_ = AllOf(ranks_of_);
    ranks_of_ = *SpreadOver(workers_, room_of_, num_ranks_at_start());  // as at the start
    epoch_.store(epoch);
    process_epochs_.Start(returning, epoch);
    for (const WorkerId worker : returning) {
      known_ranks_[worker] = ranks_of_[worker];
      lost_hosts_.erase(worker);
    }
  }
  coordinator()->BeginEpoch(epoch, returning,
                            absl::UnavailableError("processes come back, and the mesh grows"));
  absl::Status started = on_hosts_ == nullptr ? absl::OkStatus() : TakePlaces(returning);
  for (const WorkerId worker : returning) {
    if (started.ok()) started = StartOneAnew(worker, returning);
    if (started.ok()) started = TellWorker(worker);
    if (!started.ok()) FailToCome(worker, absl::StrCat("no process starts: ", started.message()));
  }
  return started.ok() ? started : WithCode(absl::StatusCode::kUnavailable, started);
}

launch::FailureEvent Fleet::FailureToCome(launch::FailureEvent::Kind kind, WorkerId worker,
                                          const std::string& reason) const {
  launch::FailureEvent event;
  event.kind = kind;
  event.time_ns = clock_.NowNs();
  event.worker = worker;
  event.ranks = known_ranks_[worker];
  event.pid = supervisor_->pid(worker);
  event.host = HostOf(worker);
  event.reason = reason;
  return event;
}

void Fleet::TakeFailureToCome(launch::FailureEvent event) {
  const absl::Status status =
      absl::UnavailableError(absl::StrCat(launch::RankLabel(event.ranks), ": ", event.reason));
  Fail(std::move(event), status);
}

void Fleet::FailToCome(WorkerId worker, const std::string& reason) {
  TakeFailureToCome(FailureToCome(launch::FailureEvent::Kind::kLost, worker, reason));
}

absl::Status Fleet::GiveUpReturned(const std::vector<WorkerId>& returned,
                                   const std::string& reason) {
  for (const WorkerId worker : returned) FailToCome(worker, reason);
  return absl::UnavailableError(reason);
}

}  // namespace weir::fleet
