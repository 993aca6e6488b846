// The parts of RecoveryWorld that stand in the place of Fleet: processes start and end, a loss is
// reported, and an epoch begins.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tests/chaos/recovery_world.h"
#include "tools/fleet/losses.h"
#include "tools/fleet/mesh_change.h"

namespace weir::chaos {
namespace {

constexpr uint64_t kEventsBeforeEpoch = 4;  // fewer
constexpr uint64_t kHostsStayLost = 3;      // one in so many comes back
constexpr uint64_t kSoughtStayLost = 2;     // one in so many that are sought

// At one of so many looks the time for hellos is over: in a new epoch, and in a start of all
// processes, which takes more events.
constexpr uint64_t kLooksForHellos = 80;
constexpr uint64_t kLooksAtStart = 1000;

using Kind = launch::FailureEvent::Kind;

}  // namespace

absl::Status RecoveryWorld::StartFleet(std::shared_ptr<const WorkerFacts> facts, uint32_t epoch,
                                       const Places& places) {
  facts_ = std::move(facts);
  moment_ = launch::FailureMoment::kStart;
  epoch_ = epoch;
  fence_.emplace(epoch);
  values_ = control::PublishedValues();
  failures_.clear();
  lost_.clear();
  processes_.clear();
  gone_groups_.clear();
  presence_ = IdVector<WorkerId, Presence>(facts_->ranks_of.size(), Presence::kAwaited);
  workers_.clear();
  room_of_.clear();
  for (const WorkerId worker : facts_->ranks_of.ids()) {
    workers_.push_back(worker);
    room_of_.push_back(facts_->ranks_of[worker].size());
  }
  TellStarter(absl::StrCat("all processes start in epoch ", epoch, ": ", facts_->layout.ToText()));
  hosts_.Begin(places.listed, places.host_of, places.lost);
  const bool has_room = hosts_.HasRoom(workers_, {});
  // A host that was lost may have come back, and then it is in reserve.
  std::set<HostId> still_lost;
  for (const HostId host : places.lost) {
    if (hosts_.IsDead(host) && Draw(kHostsStayLost) == 0) hosts_.Return(host);
    if (hosts_.IsDead(host)) still_lost.insert(host);
  }
  hosts_.Begin(places.listed, places.host_of, still_lost);
  for (const HostId host : places.host_of) {
    if (still_lost.count(host) == 0) continue;
    if (has_room) Violate("the job waits for a lost host, and others have room");
    return absl::FailedPreconditionError(absl::StrCat("host ", host, " must come, and is lost"));
  }
  for (const WorkerId worker : facts_->ranks_of.ids()) processes_.push_back(StartProcess(worker));
  return WaitForHellos(kLooksAtStart);
}

std::string RecoveryWorld::EndFleet() {
  failures_.insert(failures_.end(), lost_.begin(), lost_.end());
  std::string reported;
  for (const launch::FailureEvent& event : failures_) {
    const bool lives = event.kind != Kind::kFrozen && processes_.Has(event.worker) &&
                       processes_[event.worker]->worker != nullptr;
    if (lives && presence_[event.worker] == Presence::kConnected) {
      reported = absl::StrCat("a failure of ", LabelOf(event.worker),
                              ", whose process lives: ", event.reason);
    }
  }
  for (const std::unique_ptr<Process>& process : processes_) process->files->Kill();
  processes_.clear();
  failures_.clear();
  lost_.clear();
  hellos_.clear();
  notices_.clear();
  sought_.clear();
  for (const HostId host : hosts_.dead()) hosts_.NoteLost(host);
  return reported;
}

std::optional<launch::JobFailure> RecoveryWorld::ReportLoss() {
  const auto is_known = [this] {
    const bool has_end =
        std::any_of(failures_.begin(), failures_.end(), [](const launch::FailureEvent& event) {
          return fleet::IsLoss(event) && event.kind != Kind::kLost;
        });
    return has_end && lost_.empty();
  };
  Enter(RecoveryPhase::kNotice);
  while (!is_known() && !(notices_.empty() && lost_.empty())) {
    if (!Step()) return std::nullopt;
  }
  if (is_gone_ || fleet::LostWorkers(failures_).empty()) return std::nullopt;
  const launch::FailureReport report =
      launch::ReportFailure({.events = failures_, .ends = launch::FailedJob::Ends::kProcess});
  launch::JobFailure failure =
      launch::FailureOf(report, absl::StrJoin(report.everyone, " and "), /*steps_done=*/0);
  failure.time_ms = now_;
  return failure;
}

bool RecoveryWorld::IsOfJob(WorkerId worker) const {
  return std::find(workers_.begin(), workers_.end(), worker) != workers_.end();
}

std::vector<WorkerId> RecoveryWorld::WorkersToStart() const {
  IdVector<WorkerId, bool> is_there;
  for (const WorkerId worker : presence_.ids())
    is_there.push_back(!IsOfJob(worker) || presence_[worker] == Presence::kConnected);
  std::vector<WorkerId> lost = fleet::LostWorkers(failures_);
  return lost.empty() ? lost : fleet::WorkersToReplace(std::move(lost), is_there);
}

RecoveryWorld::Foreseen RecoveryWorld::Foresee() const {
  Foreseen foreseen;
  foreseen.lost = WorkersToStart();
  foreseen.ranks_left = fleet::NumRanksLeft(workers_, foreseen.lost, room_of_);
  foreseen.have_places = !hosts_.are_used() || hosts_.PlacesFromNowOn(workers_, {}).has_value();
  return foreseen;
}

int RecoveryWorld::num_ranks_at_start() const {
  size_t count = 0;
  for (const size_t room : room_of_) count += room;
  return static_cast<int>(count);
}

int RecoveryWorld::NumRanksLeft() const {
  std::vector<WorkerId> on_lost_hosts;
  for (const WorkerId worker : workers_) {
    if (hosts_.are_used() && hosts_.lost().count(hosts_.HostOf(worker)) > 0)
      on_lost_hosts.push_back(worker);
  }
  return fleet::NumRanksLeft(workers_, on_lost_hosts, room_of_);
}

IdVector<WorkerId, std::string> RecoveryWorld::HostNames() const {
  IdVector<WorkerId, std::string> names;
  for (const WorkerId worker : processes_.ids()) names.push_back(hosts_.NameOf(worker));
  return names;
}

absl::Status RecoveryWorld::TakePlaces(const std::vector<WorkerId>& starting) {
  const auto places = hosts_.PlacesFromNowOn(workers_, starting);
  if (places.has_value() != hosts_.HasRoom(workers_, starting)) {
    Violate(places.has_value() ? "workers of a lost host get places where there is no room"
                               : "hosts have room for the workers of a lost one, and get none");
  }
  if (!places.has_value())
    return absl::ResourceExhaustedError("a host is lost, and no other takes its place");
  for (const WorkerId worker : starting) {
    if (hosts_.HostOf(worker) != (*places)[worker]) ++num_moved_;
  }
  if (const std::string wrong = hosts_.Move(starting, *places, workers_); !wrong.empty())
    Violate(wrong);
  if (!violation_.empty()) return absl::CancelledError("workers have wrong places");
  return absl::OkStatus();
}

absl::Status RecoveryWorld::StartOneAnew(WorkerId worker, const std::vector<WorkerId>& starting) {
  while (hosts_.are_used() && hosts_.IsDead(hosts_.HostOf(worker))) {
    TellStarter(absl::StrCat("host ", hosts_.HostOf(worker), " counts as lost"));
    hosts_.NoteLost(hosts_.HostOf(worker));
    WEIR_RETURN_IF_ERROR(TakePlaces(starting));
  }
  processes_[worker]->files->Kill();
  processes_[worker] = StartProcess(worker);
  presence_[worker] = Presence::kAwaited;
  TellStarter(absl::StrCat("process ", processes_[worker]->id, " starts as ", LabelOf(worker),
                           hosts_.are_used() ? " on host " : "", hosts_.NameOf(worker)));
  return absl::OkStatus();
}

void RecoveryWorld::Leave(const std::vector<WorkerId>& gone) {
  for (const WorkerId worker : gone) {
    TellStarter(absl::StrCat(LabelOf(worker), " leaves the job"));
    Process& process = *processes_[worker];
    process.files->Kill();
    process.worker.reset();
    process.out.clear();
    process.pieces.clear();
    process.is_connected = false;
  }
  std::erase_if(workers_, [&gone](WorkerId worker) {
    return std::find(gone.begin(), gone.end(), worker) != gone.end();
  });
}

absl::StatusOr<IdVector<WorkerId, std::vector<RankId>>> RecoveryWorld::Spread(int num_ranks) const {
  auto ranks_of = fleet::SpreadOver(workers_, room_of_, num_ranks);
  if (!ranks_of.has_value())
    return absl::ResourceExhaustedError("the processes have no room for so many ranks");
  return *std::move(ranks_of);
}

void RecoveryWorld::DismissIdle() {
  std::vector<WorkerId> idle;
  for (const WorkerId worker : workers_) {
    if (facts_->ranks_of[worker].empty()) idle.push_back(worker);
  }
  Leave(idle);
}

// The thread that watches the processes comes to a request a moment later.
absl::Status RecoveryWorld::AwaitWatcher() {
  for (uint64_t events = Draw(kEventsBeforeEpoch); events > 0; --events) Step();
  return is_gone_ ? absl::CancelledError("the starter is gone") : absl::OkStatus();
}

void RecoveryWorld::OpenEpoch() {
  fence_->Begin(++epoch_);
  values_ = control::PublishedValues();
  TellStarter(absl::StrCat("epoch ", epoch_, " begins"));
}

absl::Status RecoveryWorld::BeginEpoch(Replace replace) {
  if (is_gone_) return absl::CancelledError("the starter is gone");
  const std::vector<WorkerId> lost = WorkersToStart();
  if (lost.empty()) return absl::FailedPreconditionError("no process of the job is lost");
  WEIR_RETURN_IF_ERROR(AwaitWatcher());
  const bool starts = replace == Replace::kAll;
  if (starts && hosts_.are_used()) WEIR_RETURN_IF_ERROR(TakePlaces(lost));
  moment_ = launch::FailureMoment::kRecovery;
  OpenEpoch();
  if (!starts) Leave(lost);
  for (const WorkerId worker : starts ? lost : std::vector<WorkerId>())
    WEIR_RETURN_IF_ERROR(StartOneAnew(worker, lost));
  AnnounceEpoch();
  fleet::DropSettled(lost, &failures_);
  fleet::DropSettled(lost, &lost_);
  Enter(RecoveryPhase::kHello);
  return WaitForHellos(kLooksForHellos);
}

void RecoveryWorld::AnnounceEpoch() {
  for (const std::unique_ptr<Process>& process : processes_) {
    if (process->is_connected) process->in.push_back({ToWorker::Kind::kEpoch, 0, epoch_, {}, ""});
  }
}

// --- Growth (tools/fleet/fleet_growth.cc) ---

std::vector<WorkerId> RecoveryWorld::WorkersAway() const {
  std::vector<WorkerId> away;
  for (const WorkerId worker : processes_.ids()) {
    if (!IsOfJob(worker)) away.push_back(worker);
  }
  return away;
}

bool RecoveryWorld::CanGrow() const {
  const std::vector<WorkerId> away = WorkersAway();
  return !away.empty() &&
         (!hosts_.are_used() ||
          hosts_.PlacesFromNowOn(fleet::AllOf(facts_->ranks_of), away).has_value());
}

void RecoveryWorld::SeekLostHosts() {
  if (hosts_.are_used()) sought_.assign(hosts_.lost().begin(), hosts_.lost().end());
}

// The attempt to reach a lost host ends. The processes that the host had have ended with it.
void RecoveryWorld::HostComes() {
  const size_t which = Draw(sought_.size());
  const HostId host = sought_[which];
  sought_.erase(sought_.begin() + static_cast<std::ptrdiff_t>(which));
  const bool comes = Draw(kSoughtStayLost) == 0;
  TellStarter(absl::StrCat("host ", host, comes ? " is reached again" : " does not come"));
  if (!comes) return;
  std::erase_if(notices_, [host](const Notice& notice) { return notice.host == host; });
  hosts_.Return(host);
}

bool RecoveryWorld::AllAreThere() const {
  return failures_.empty() && lost_.empty() &&
         std::all_of(workers_.begin(), workers_.end(),
                     [this](WorkerId worker) { return presence_[worker] == Presence::kConnected; });
}

void RecoveryWorld::FailToCome(Kind kind, WorkerId worker, const std::string& reason) {
  TellStarter(absl::StrCat(LabelOf(worker), " does not come: ", reason));
  launch::FailureEvent event;
  event.kind = kind;
  event.moment = moment_;
  event.time_ns = now_;
  event.worker = worker;
  event.reason = reason;
  failures_.push_back(std::move(event));
}

absl::Status RecoveryWorld::BeginGrowth() {
  if (is_gone_) return absl::CancelledError("the starter is gone");
  WEIR_RETURN_IF_ERROR(AwaitWatcher());
  const std::vector<WorkerId> returning = WorkersAway();
  if (!AllAreThere()) return absl::UnavailableError("a process of the job is lost");
  workers_ = fleet::AllOf(facts_->ranks_of);
  moment_ = launch::FailureMoment::kGrowth;
  OpenEpoch();
  TellStarter("the mesh grows");
  for (const WorkerId worker : returning) presence_[worker] = Presence::kAwaited;
  absl::Status started = hosts_.are_used() ? TakePlaces(returning) : absl::OkStatus();
  for (const WorkerId worker : returning) {
    if (started.ok()) started = StartOneAnew(worker, returning);
    if (!started.ok()) FailToCome(Kind::kLost, worker, std::string(started.message()));
  }
  AnnounceEpoch();
  if (!started.ok()) return WithCode(absl::StatusCode::kUnavailable, started);
  Enter(RecoveryPhase::kHello);
  const absl::Status come = WaitForHellos(kLooksForHellos);
  // Another process may have been lost. The processes that still start are of use to the others.
  if (absl::IsUnavailable(come)) AwaitWhoComes();
  return come;
}

}  // namespace weir::chaos
