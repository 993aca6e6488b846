#include "actors/engine/time_engine.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/stall_report.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

constexpr int64_t kMomentsBetweenLooks = 1 << 12;  // at Stop
constexpr double kLeastShare = 0.1;                // of an act's time that jitter leaves

int64_t ReadNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

// Returns the speed of an act while `busy` cores are busy, as a share of the speed of the act
// alone. For an act that knows its speed with all cores busy, the speed changes evenly with each
// core.
double SpeedOf(const TimeEngineOptions::Host& host, int busy, double busy_speed) {
  if (busy <= 0) return 1;
  const int at_once = host.cores > 0 ? std::min(busy, host.cores) : busy;
  double speed = 1;
  if (busy_speed > 0 && host.cores > 0) {
    if (host.cores > 1) speed = 1 + (busy_speed - 1) * (at_once - 1) / (host.cores - 1);
  } else if (!host.core_speed.empty()) {
    speed = host.core_speed[std::min<size_t>(at_once, host.core_speed.size()) - 1];
  }
  return speed * at_once / busy;
}

}  // namespace

TimeDevice::TimeDevice(Work work, int num_threads, int num_queues, int depth)
    : work_(work),
      depth_(std::max(1, depth)),
      team_(num_threads),
      queues_(std::max(1, num_queues)) {
  for (Queue& queue : queues_) {
    queue.times.resize(static_cast<size_t>(depth_));
    queue.awaited.resize(static_cast<size_t>(depth_) * queues_.size());
  }
}

device::Device::Launched TimeDevice::Launch(const device::DeviceWork& work) {
  ++queues_[work.queue].num_launched;
  launched_queue_ = work.queue;
  if (work_ == Work::kCosted) {
    work.run(work.context);
    launched_ns_ = work.cost_ns;
    return Launched::kIssued;
  }
  // Of the thread, so that what else this machine does in between is not taken for work.
  const clockid_t clock = team_.num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  const int64_t begin = ReadNs(clock);
  work.run(work.context);
  launched_ns_ = ReadNs(clock) - begin;
  return Launched::kIssued;
}

void TimeDevice::Await(QueueId queue, device::QueuePosition position) {
  Queue& waiting = queues_[queue];
  int64_t& awaited = AwaitedBy(waiting, waiting.num_launched + 1)[position.queue.value()];
  awaited = std::max(awaited, position.number);
}

bool TimeDevice::CanBegin(QueueId queue) {
  Queue& q = queues_[queue];
  if (q.num_begun == q.num_launched || q.num_begun > q.num_done) return false;
  const int64_t* const awaited = AwaitedBy(q, q.num_begun + 1);
  if (queues_.size() == 1) return true;
  for (const QueueId other : queues_.ids()) {
    if (queues_[other].num_done < awaited[other.value()]) return false;
  }
  return true;
}

void TimeDevice::Begin(QueueId queue, int64_t now_ns) {
  Queue& q = queues_[queue];
  ++q.num_begun;
  std::fill_n(AwaitedBy(q, q.num_begun), queues_.size(), 0);
  q.times[IndexOf(q.num_begun)].begin = now_ns;
}

void TimeDevice::Complete(QueueId queue, int64_t now_ns) {
  Queue& q = queues_[queue];
  ++q.num_done;
  q.times[IndexOf(q.num_done)].end = now_ns;
}

TimeEngine::TimeEngine(std::vector<RankExecutor*> ranks, std::vector<TimeDevice*> devices,
                       TimeNetwork* network, ManualClock* clock, TimeEngineOptions options)
    : network_(network),
      clock_(clock),
      seed_(options.seed),
      settled_step_(options.settled_step),
      executors_(std::move(ranks)),
      times_(executors_.size()) {
  for (const TimeEngineOptions::Host& spec : options.hosts) {
    Host& host = hosts_.emplace_back();
    host.options = spec;
    host.shared = spec.cores > 0 || !spec.core_speed.empty();
  }
  if (hosts_.empty()) hosts_.emplace_back();
  // Metrics of a step may be reported long after it, when a device has nothing better to do.
  const auto updates = [](const PlanActor& actor) { return actor.phase == ActorPhase::kUpdate; };
  const bool any_updates =
      std::any_of(executors_.begin(), executors_.end(), [&](const RankExecutor* rank) {
        return std::any_of(rank->plan().actors.begin(), rank->plan().actors.end(), updates);
      });
  for (size_t i = 0; i < executors_.size(); ++i) {
    Rank& rank = ranks_.emplace_back();
    rank.executor = executors_[i];
    rank.device = devices[i];
    rank.queues.resize(rank.device->num_queues());
    for (Queue& queue : rank.queues) queue.acts.resize(rank.device->depth());
    const Plan& plan = rank.executor->plan();
    rank.endpoint = network->time_endpoint(plan.rank);
    rank.executor->SetMeetingHook([this, i] { Touch(static_cast<int32_t>(i)); });
    if (i < options.devices.size()) rank.options = options.devices[i];
    int32_t num_edges = 0;  // the executor adds its edges in the order of its registers
    for (const PlanRegister& r : plan.registers) {
      rank.edge_of_register.push_back(r.side == RegisterSide::kLocal ? EdgeHandle()
                                                                     : EdgeHandle(num_edges++));
    }
    for (const PlanActor& actor : plan.actors) {
      rank.ends_step.push_back(!any_updates || updates(actor));
      if (options.busy_speed) rank.busy_speed.push_back(options.busy_speed(plan, actor));
    }
    place_of_rank_.resize(std::max<size_t>(place_of_rank_.size(), plan.rank.value() + 1), -1);
    place_of_rank_[plan.rank] = static_cast<int32_t>(i);
  }
}

void TimeEngine::Stop(absl::Status reason) {
  MutexLock lock(&stop_mutex_);
  if (stop_reason_.ok()) stop_reason_ = std::move(reason);
  stop_.store(true, std::memory_order_relaxed);
}

absl::Status TimeEngine::RunSteps(int64_t steps) {
  if (!fault_.ok()) return fault_;
  steps_asked_ += steps;
  step_end_ns_.resize(steps_asked_, clock_->NowNs());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    ranks_[i].executor->RaiseLimits(steps);
    ranks_[i].accounted_ns = clock_->NowNs();
    Touch(static_cast<int32_t>(i));
  }
  for (int64_t moments = 1;; ++moments) {
    // All that is due now comes before what starts now, so that the best of all that are ready is
    // chosen.
    while (!events_.empty() && events_.top().at_ns <= clock_->NowNs() && fault_.ok()) {
      const Event event = events_.top();
      events_.pop();
      fault_ = Happen(event);
    }
    if (fault_.ok() && moments % kMomentsBetweenLooks == 0 &&
        stop_.load(std::memory_order_relaxed)) {
      MutexLock lock(&stop_mutex_);
      fault_ = stop_reason_;
    }
    looked_at_.swap(touched_);
    for (size_t i = 0; i < looked_at_.size() && fault_.ok(); ++i) fault_ = Look(looked_at_[i]);
    if (!fault_.ok()) return fault_;
    looked_at_.clear();
    if (!touched_.empty()) continue;  // a rank has more to launch, after what is due by now
    if (events_.empty()) break;
    clock_->AdvanceTo(events_.top().at_ns);
  }
  for (const RankExecutor* rank : executors_) {
    if (!rank->all_done()) return fault_ = NoProgress();
  }
  return absl::OkStatus();
}

absl::Status TimeEngine::NoProgress() const {
  return CodedError(
      absl::StatusCode::kAborted, "W0516",
      absl::StrCat("no progress: nothing can happen any more, but", DescribeStall(executors_)));
}

void TimeEngine::Push(int64_t at_ns, Event::Kind kind, int32_t index, int64_t detail) {
  events_.push({at_ns, num_pushed_++, kind, index, detail});
}

void TimeEngine::PushPosted() {
  for (const TimeNetwork::Arrival& arrival : network_->posted()) {
    const bool enters = arrival.at == TimeNetwork::Arrival::At::kWayIn;
    Push(arrival.at_ns, enters ? Event::Kind::kWayIn : Event::Kind::kArrival, arrival.lane,
         arrival.takes_ns);
  }
  network_->posted().clear();
}

void TimeEngine::Touch(int32_t rank) {
  if (ranks_[rank].touched) return;
  ranks_[rank].touched = true;
  touched_.push_back(rank);
}

absl::Status TimeEngine::Happen(const Event& event) {
  ++num_events_;
  history_hash_ =
      MixKey(history_hash_ ^ static_cast<uint64_t>(event.at_ns),
             static_cast<uint64_t>(event.kind) << 32 | static_cast<uint32_t>(event.index));
  if (event.kind == Event::Kind::kActDone && event.detail > 0)
    history_hash_ = MixKey(history_hash_, static_cast<uint64_t>(event.detail));
  switch (event.kind) {
    case Event::Kind::kArrival: {
      const int32_t place = place_of_rank_[network_->Arrive(event.index)];
      Rank& rank = ranks_[place];
      const bool blocked = rank.num_working > 0 && rank.device->depth() == 1;
      if (blocked || rank.waking) break;  // seen after the act, or once awake
      if (rank.options.wake_ns == 0 || rank.num_working > 0) {
        Touch(place);
      } else {
        rank.waking = true;
        Push(clock_->NowNs() + rank.options.wake_ns, Event::Kind::kWake, place);
      }
      break;
    }
    case Event::Kind::kWayIn:
      network_->Enter(event.index, event.detail);
      PushPosted();
      break;
    case Event::Kind::kWake:
      ranks_[event.index].waking = false;
      Touch(event.index);
      break;
    case Event::Kind::kActDone:
      return FinishAct(event.index, QueueId(static_cast<int32_t>(event.detail)));
    case Event::Kind::kHost: {
      Host& host = hosts_[event.index];
      if (event.detail != host.version) break;  // its speed has changed since
      AdvanceHost(host);
      const auto ended = host.Next();
      const int32_t rank = ended->rank;
      const QueueId queue = ended->queue;
      host.running.erase(ended);
      host.busy_cores -= ranks_[rank].options.cores;
      RescheduleHost(event.index);
      return FinishAct(rank, queue);
    }
  }
  return absl::OkStatus();
}

absl::Status TimeEngine::FinishAct(int32_t index, QueueId queue) {
  Rank& rank = ranks_[index];
  AccountWork(index);
  Queue& q = rank.queues[queue];
  ++q.num_ended;
  q.works = false;
  --rank.num_working;
  rank.device->Complete(queue, clock_->NowNs());
  rank.executor->CollectCompletions();
  PushPosted();
  AccountActs(index);
  BeginActs(index);
  Touch(index);
  return rank.executor->fault();
}

// Does what the thread of a rank does: takes the messages that have come, then launches the best
// act.
absl::Status TimeEngine::Look(int32_t index) {
  Rank& rank = ranks_[index];
  rank.touched = false;
  if (rank.num_working > 0 && rank.device->depth() == 1) return absl::OkStatus();
  if (rank.executor->HasEndedMeeting()) {
    rank.executor->CollectMeetings();
    PushPosted();
    AccountActs(index);
  }
  if (rank.endpoint->has_messages()) {
    WEIR_RETURN_IF_ERROR(rank.executor->Poll());
    rank.owed_ns += rank.endpoint->TakeReceiveNs();
    PushPosted();
  }
  if (rank.executor->num_ready() == 0 || !rank.executor->device_has_room())
    return rank.executor->fault();
  LaunchBest(index);
  if (rank.executor->num_ready() > 0 && rank.executor->device_has_room()) Touch(index);
  return rank.executor->fault();
}

void TimeEngine::LaunchBest(int32_t index) {
  Rank& rank = ranks_[index];
  rank.executor->StartReady(0);
  Queue& queue = rank.queues[rank.device->launched_queue()];
  const Act& act = rank.executor->newest_running(rank.device->launched_queue());
  queue.at(queue.num_launched++) = {Duration(rank), act.actor, act.step, act.cause};
  BeginActs(index);
}

// Begins the next act of each queue that need not wait.
void TimeEngine::BeginActs(int32_t index) {
  Rank& rank = ranks_[index];
  for (const QueueId queue : rank.queues.ids()) {
    if (rank.device->CanBegin(queue)) BeginAct(index, queue);
  }
}

void TimeEngine::BeginAct(int32_t index, QueueId queue) {
  Rank& rank = ranks_[index];
  Queue& q = rank.queues[queue];
  if (rank.num_working == 0) {
    AccountIdle(index, q.oldest());
  } else {
    AccountWork(index);
  }
  q.works = true;
  ++rank.num_working;
  rank.device->Begin(queue, clock_->NowNs());
  if (hosts_[rank.options.host].shared) {
    AddToHost(index, queue);
  } else {
    Push(clock_->NowNs() + q.oldest().work_ns, Event::Kind::kActDone, index, queue.value());
  }
}

int64_t TimeEngine::Duration(Rank& rank) {
  double ns = static_cast<double>(rank.device->launched_ns() + std::exchange(rank.owed_ns, 0));
  if (rank.options.jitter > 0) {
    const uint64_t key = MixKey(seed_, static_cast<uint64_t>(rank.executor->plan().rank.value()));
    ns *= std::max(kLeastShare, 1 + rank.options.jitter * NormalAt(key, rank.num_draws++));
  }
  return std::llround(ns);
}

void TimeEngine::AddToHost(int32_t index, QueueId queue) {
  Rank& rank = ranks_[index];
  Host& host = hosts_[rank.options.host];
  AdvanceHost(host);
  host.busy_cores += rank.options.cores;
  const LaunchedAct& act = rank.queues[queue].oldest();
  const double busy_speed = rank.busy_speed.empty() ? 0 : rank.busy_speed[act.actor];
  host.running.push_back({static_cast<double>(act.work_ns), busy_speed, 1, index, queue});
  RescheduleHost(rank.options.host);
}

void TimeEngine::AdvanceHost(Host& host) {
  const auto passed_ns = static_cast<double>(clock_->NowNs() - host.as_of_ns);
  for (Host::Running& act : host.running) act.left_ns -= passed_ns * act.speed;
  host.as_of_ns = clock_->NowNs();
}

std::vector<TimeEngine::Host::Running>::iterator TimeEngine::Host::Next() {
  return std::min_element(running.begin(), running.end(), [](const Running& a, const Running& b) {
    return a.LeftNow() < b.LeftNow();
  });
}

void TimeEngine::RescheduleHost(int32_t index) {
  Host& host = hosts_[index];
  for (Host::Running& act : host.running)
    act.speed = SpeedOf(host.options, host.busy_cores, act.busy_speed);
  ++host.version;
  if (host.running.empty()) return;
  Push(clock_->NowNs() + std::llround(host.Next()->LeftNow()), Event::Kind::kHost, index,
       host.version);
}

// Accounts the time until now, in which at least one queue has worked, to one of the acts.
void TimeEngine::AccountWork(int32_t index) {
  Rank& rank = ranks_[index];
  const int64_t ns = clock_->NowNs() - std::exchange(rank.accounted_ns, clock_->NowNs());
  const IdVector<ActorId, PlanActor>& actors = rank.executor->plan().actors;
  const LaunchedAct* shown = nullptr;
  for (Queue& queue : rank.queues) {
    if (!queue.works) continue;
    const LaunchedAct& act = queue.oldest();
    if (shown == nullptr || actors[shown->actor].phase == ActorPhase::kBoxing) shown = &act;
  }
  if (shown == nullptr || !IsSettled(shown->step)) return;
  times_[index].busy_ns[static_cast<size_t>(actors[shown->actor].phase)] += ns;
}

// Accounts the time until now, in which no queue has worked, to the cause of the next act.
void TimeEngine::AccountIdle(int32_t index, const LaunchedAct& next) {
  Rank& rank = ranks_[index];
  const int64_t now = clock_->NowNs();
  const int64_t idle = now - std::exchange(rank.accounted_ns, now);
  if (idle <= 0 || !IsSettled(next.step)) return;
  int64_t exposed = 0;
  if (next.cause.kind == WaitCause::Kind::kInput &&
      rank.edge_of_register[next.cause.register_id].has_value()) {
    const int64_t sent = rank.endpoint->last_sent_ns(rank.edge_of_register[next.cause.register_id]);
    exposed = std::clamp<int64_t>(now - sent, 0, idle);
  }
  times_[index].exposed_ns += exposed;
  times_[index].waiting_ns += idle - exposed;
}

// Accounts the acts that the rank has recorded since the last time.
void TimeEngine::AccountActs(int32_t index) {
  Rank& rank = ranks_[index];
  const trace::ActRing& ring = rank.executor->trace();
  const int64_t num_recorded = ring.size() + ring.num_dropped();
  const int64_t num_new = num_recorded - std::exchange(rank.num_recorded, num_recorded);
  for (int64_t i = std::max<int64_t>(0, ring.size() - num_new); i < ring.size(); ++i) {
    const trace::ActRecord& record = ring.at(i);
    if (!record.actor.has_value()) continue;  // a run began
    ++num_acts_;
    if (rank.ends_step[record.actor] && record.step < static_cast<int64_t>(step_end_ns_.size()))
      step_end_ns_[record.step] = std::max(step_end_ns_[record.step], record.end);
    if (IsSettled(record.step)) ++times_[index].acts;
  }
}

}  // namespace weir::actors
