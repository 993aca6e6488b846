#include "actors/engine/sim_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/stall_report.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

using Chooser = SimEngineOptions::Chooser;
using Kind = SimEvent::Kind;
using Delivery = transport::SimNetwork::Delivery;

// Returns the place of a rank in the lists of an engine, which has all ranks of the job in order.
int PlaceOf(RankId rank) { return rank.value(); }

}  // namespace

device::WalledDeviceOptions SimDeviceOptions(const Plan& plan) {
  device::WalledDeviceOptions options;
  options.num_queues = plan.num_queues;
  options.depth = plan.depth;
  options.memory = device::WalledDeviceOptions::Memory::kHost;
  options.drive = device::WalledDeviceOptions::Drive::kOwner;
  return options;
}

SimEngine::SimEngine(std::vector<RankExecutor*> ranks, std::vector<device::WalledDevice*> devices,
                     transport::SimNetwork* network, ManualClock* clock,
                     const SimEngineOptions& options)
    : ranks_(std::move(ranks)),
      devices_(std::move(devices)),
      network_(network),
      clock_(clock),
      invariants_(ranks_, *network) {
  Rewind(options);
}

void SimEngine::Rewind(const SimEngineOptions& options) {
  options_ = options;
  decisions_.clear();
  bounds_.clear();
  change_points_.clear();
  demoted_.clear();
  slow_.clear();
  dead_.assign(ranks_.size(), false);
  next_fault_ = next_tamper_ = 0;
  harm_ = nullptr;
  seen_ = false;
  num_draws_ = last_source_ = history_hash_ = victim_ = 0;
  num_events_ = num_deliveries_ = 0;
  if (!fault_.ok()) fault_ = absl::OkStatus();
  {
    MutexLock lock(&stop_mutex_);
    if (!stop_reason_.ok()) stop_reason_ = absl::OkStatus();
    stop_.store(false, std::memory_order_relaxed);
  }
  if (options_.chooser == Chooser::kStarveOne) {
    // A rank, a lane, or an actor of a rank.
    uint64_t sources = ranks_.size() + static_cast<uint64_t>(network_->num_lanes());
    for (const RankExecutor* rank : ranks_) sources += rank->plan().actors.size();
    if (sources > 0) victim_ = Draw(sources);
  }
  if (options_.chooser == Chooser::kPriorities) {
    for (int i = 1; i < options_.depth; ++i) {
      change_points_.push_back(
          static_cast<int64_t>(Draw(std::max<int64_t>(1, options_.num_events_expected))));
    }
  }
}

uint64_t SimEngine::Draw(uint64_t bound) { return MixKey(options_.seed, num_draws_++) % bound; }

uint32_t SimEngine::Decide(uint32_t bound, uint32_t otherwise) {
  if (decisions_.size() < options_.script.size()) {
    otherwise = options_.script[decisions_.size()] % bound;
  } else if (options_.chooser == Chooser::kFirst) {
    otherwise = 0;
  }
  decisions_.push_back(otherwise);
  bounds_.push_back(bound);
  return otherwise;
}

absl::Status SimEngine::RunSteps(int64_t steps) {
  if (!fault_.ok()) return fault_;
  for (RankExecutor* rank : ranks_) rank->RaiseLimits(steps);
  for (;;) {
    if (stop_.load(std::memory_order_relaxed)) return fault_ = StopReason();
    fault_ = BeforeEvent();
    if (!fault_.ok()) return fault_;
    ListEnabled();
    if (enabled_.empty()) break;
    if (options_.states_seen != nullptr && decisions_.size() >= options_.script.size() &&
        SeenBefore()) {
      return absl::OkStatus();
    }
    if (options_.num_events_max > 0 && num_events_ >= options_.num_events_max) {
      return fault_ =
                 CodedError(absl::StatusCode::kAborted, "W0516",
                            absl::StrCat("no end: still not done after ", num_events_, " events"));
    }
    const SimEvent event = options_.chooser == Chooser::kByTime ? NextByTime() : enabled_[Choose()];
    if (options_.on_event) options_.on_event(num_events_, event);
    fault_ = Happen(event);
    if (fault_.ok() && options_.check == SimEngineOptions::Check::kEveryStep) fault_ = Check(event);
    if (!fault_.ok()) {
      return absl::Status(fault_.code(), absl::StrCat(fault_.message(), " [seed ", options_.seed,
                                                      ", event ", num_events_, "]"));
    }
  }
  return fault_ = AtRest();
}

absl::Status SimEngine::AtRest() {
  for (const RankExecutor* rank : ranks_) {
    if (rank->all_done()) continue;
    return CodedError(
        absl::StatusCode::kAborted, "W0516",
        absl::StrCat("no progress: nothing can happen any more, but", DescribeStall(ranks_)));
  }
  return invariants_.CheckAll();
}

void SimEngine::Stop(absl::Status reason) {
  MutexLock lock(&stop_mutex_);
  if (stop_reason_.ok()) stop_reason_ = std::move(reason);
  stop_.store(true, std::memory_order_relaxed);
}

absl::Status SimEngine::StopReason() {
  MutexLock lock(&stop_mutex_);
  return stop_reason_;
}

// Faults that come with the event to be.
absl::Status SimEngine::BeforeEvent() {
  for (; next_fault_ < options_.faults.size() && options_.faults[next_fault_].at <= num_events_;
       ++next_fault_) {
    const SimFault& fault = options_.faults[next_fault_];
    switch (fault.kind) {
      case SimFault::Kind::kTamper: break;  // at a delivery
      case SimFault::Kind::kSlowLane:
      case SimFault::Kind::kSlowRank: slow_.push_back(&fault); break;
      case SimFault::Kind::kDeadRank:
        harm_ = &fault;
        dead_[fault.target] = true;
        network_->Kill(ranks_[fault.target]->plan().rank);
        break;
      case SimFault::Kind::kAbort: harm_ = &fault; return absl::CancelledError("aborted, as asked");
    }
  }
  const int64_t now = num_events_;
  slow_.erase(std::remove_if(slow_.begin(), slow_.end(),
                             [now](const SimFault* fault) { return fault->until <= now; }),
              slow_.end());
  return absl::OkStatus();
}

void SimEngine::ListEnabled() {
  enabled_.clear();
  for (int lane : network_->busy_lanes()) enabled_.push_back({Kind::kDeliver, lane});
  for (int k = 0; k < network_->num_open(); ++k) enabled_.push_back({Kind::kSettle, k});
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (dead_[i]) continue;
    if (network_->HasNotice(ranks_[i]->plan().rank)) enabled_.push_back({Kind::kNotice, index});
    ListWork(index);
    if (ranks_[i]->HasEndedMeeting()) enabled_.push_back({Kind::kMeet, index});
    if (!ranks_[i]->device_has_room()) continue;
    for (int k = 0; k < ranks_[i]->num_ready(); ++k) {
      enabled_.push_back({Kind::kStart, index, k, ranks_[i]->ready_actor(k)});
    }
  }
  if (!slow_.empty()) LeaveOutTheSlow();
}

void SimEngine::ListWork(int rank) {
  const device::WalledDevice& device = *devices_[rank];
  const int num_queues = device.num_queues();
  for (const QueueId queue : IdRange<QueueId>(num_queues)) {
    if (device.num_pending(queue) > 0 && device.CanComplete(queue))
      enabled_.push_back(
          {Kind::kComplete, rank, queue.value(), ranks_[rank]->oldest_running(queue)});
    if (num_queues > 1 && device.CanStep(queue))
      enabled_.push_back({Kind::kWork, rank, queue.value()});
  }
}

// Unless nothing else can happen.
void SimEngine::LeaveOutTheSlow() {
  const auto is_slow = [this](const SimEvent& event) {
    return std::any_of(slow_.begin(), slow_.end(), [this, &event](const SimFault* fault) {
      return fault->kind == SimFault::Kind::kSlowRank
                 ? IsOfRank(event, fault->target)
                 : event.kind == Kind::kDeliver && event.index == fault->target;
    });
  };
  const auto slow = std::stable_partition(enabled_.begin(), enabled_.end(),
                                          [&](const SimEvent& e) { return !is_slow(e); });
  if (slow != enabled_.begin()) enabled_.erase(slow, enabled_.end());
}

bool SimEngine::IsOfRank(const SimEvent& event, int rank) const {
  switch (event.kind) {
    case Kind::kDeliver: return network_->lane(event.index).to == ranks_[rank]->plan().rank;
    case Kind::kSettle: return network_->open_rank(event.index) == ranks_[rank]->plan().rank;
    default: return event.index == rank;
  }
}

size_t SimEngine::Choose() {
  const uint32_t num_enabled = static_cast<uint32_t>(enabled_.size());
  if (options_.chooser == Chooser::kPriorities) {
    return Decide(num_enabled, static_cast<uint32_t>(ChooseByPriority()));
  }
  if (options_.chooser == Chooser::kStarveOne) {
    size_t others = 0;
    for (const SimEvent& event : enabled_) others += !IsVictim(event);
    if (others > 0) {
      size_t k = Draw(others);
      for (uint32_t i = 0;; ++i) {
        if (!IsVictim(enabled_[i]) && k-- == 0) return Decide(num_enabled, i);
      }
    }
  }
  return DecideUniformly(num_enabled);
}

bool SimEngine::IsVictim(const SimEvent& event) const {
  uint64_t victim = victim_;
  if (victim < ranks_.size()) return IsOfRank(event, static_cast<int>(victim));
  victim -= ranks_.size();
  const uint64_t num_lanes = static_cast<uint64_t>(network_->num_lanes());
  if (victim < num_lanes)
    return event.kind == Kind::kDeliver && static_cast<uint64_t>(event.index) == victim;
  victim -= num_lanes;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const uint64_t num_actors = ranks_[rank]->plan().actors.size();
    if (victim < num_actors) {
      return static_cast<size_t>(event.index) == rank && event.actor.has_value() &&
             static_cast<uint64_t>(event.actor.value()) == victim;
    }
    victim -= num_actors;
  }
  return false;
}

// Returns the source of an event. Each source has a priority: a lane, a queue of a device, an
// actor.
uint64_t SimEngine::SourceOf(const SimEvent& event) const {
  uint64_t part = 0;
  if (event.kind == Kind::kStart) part = static_cast<uint64_t>(event.actor.value()) + 1;
  if (event.kind == Kind::kComplete || event.kind == Kind::kWork)
    part = static_cast<uint64_t>(event.choice);  // the queue
  return (static_cast<uint64_t>(event.kind) << 56) | (static_cast<uint64_t>(event.index) << 24) |
         part;
}

size_t SimEngine::ChooseByPriority() {
  const auto priority = [this](const SimEvent& event) -> uint64_t {
    const uint64_t source = SourceOf(event);
    const auto at = std::find(demoted_.begin(), demoted_.end(), source);
    if (at != demoted_.end())
      return static_cast<uint64_t>(demoted_.end() - at) - 1;  // the latest is the least
    return demoted_.size() + (MixKey(options_.seed, source) >> 1);
  };
  size_t best = 0;
  uint64_t best_priority = priority(enabled_[0]);
  for (size_t i = 1; i < enabled_.size(); ++i) {
    const uint64_t other = priority(enabled_[i]);
    if (other <= best_priority) continue;
    best = i;
    best_priority = other;
  }
  if (std::find(change_points_.begin(), change_points_.end(), num_events_) !=
      change_points_.end()) {
    demoted_.push_back(SourceOf(enabled_[best]));
  }
  return best;
}

SimEvent SimEngine::NextByTime() {
  const SimEvent* best = nullptr;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  for (const SimEvent& event : enabled_) {
    int64_t ns = clock_->NowNs();
    if (event.kind == Kind::kDeliver) ns = network_->lane(event.index).oldest_due_ns;
    if (event.kind == Kind::kComplete)
      ns = devices_[event.index]->oldest_done_ns(QueueId(event.choice));
    // An event that is due already comes before an act that starts now, so that the best is chosen
    // among all acts that are ready at this time.
    const bool earlier =
        ns < best_ns || (ns == best_ns && best->kind == Kind::kStart && event.kind != Kind::kStart);
    if (best == nullptr || earlier) {
      best = &event;
      best_ns = ns;
    }
  }
  return *best;
}

absl::Status SimEngine::Happen(const SimEvent& event) {
  ++num_events_;
  history_hash_ = MixKey(history_hash_, SourceOf(event));
  if (options_.coverage != nullptr) CoverEvent(event);
  switch (event.kind) {
    case Kind::kDeliver: return DeliverNext(event.index);
    case Kind::kStart: {
      device::WalledDevice& device = *devices_[event.index];
      device.NotBefore(clock_->NowNs());
      const bool at_launch = DecideUniformly(2) == 0;
      history_hash_ = MixKey(history_hash_, at_launch);
      ranks_[event.index]->StartReady(event.choice);
      if (at_launch) device.StepAll();
      return ranks_[event.index]->fault();
    }
    case Kind::kComplete:
      clock_->AdvanceTo(devices_[event.index]->oldest_done_ns(QueueId(event.choice)));
      network_->set_now_ns(clock_->NowNs());
      devices_[event.index]->CompleteOldest(QueueId(event.choice));
      ranks_[event.index]->CollectCompletions();
      return ranks_[event.index]->fault();
    case Kind::kWork: devices_[event.index]->Step(QueueId(event.choice)); return absl::OkStatus();
    case Kind::kSettle: {
      const int rank = PlaceOf(network_->open_rank(event.index));
      network_->Settle(event.index);
      return dead_[rank] ? absl::OkStatus() : ranks_[rank]->Poll();
    }
    case Kind::kNotice: return ranks_[event.index]->Poll();
    case Kind::kMeet: ranks_[event.index]->CollectMeetings(); return ranks_[event.index]->fault();
  }
  return absl::OkStatus();
}

absl::Status SimEngine::DeliverNext(int lane_index) {
  const transport::SimNetwork::Lane lane = network_->lane(lane_index);
  clock_->AdvanceTo(lane.oldest_due_ns);
  network_->set_now_ns(clock_->NowNs());
  Delivery how;
  if (options_.pieces == SimEngineOptions::Pieces::kDrawn && DecideUniformly(2) == 1) {
    how.pieces = Delivery::Pieces::kInPieces;
  }
  while (next_tamper_ < options_.faults.size() &&
         (options_.faults[next_tamper_].kind != SimFault::Kind::kTamper ||
          options_.faults[next_tamper_].at < num_deliveries_)) {
    ++next_tamper_;
  }
  if (next_tamper_ < options_.faults.size() &&
      options_.faults[next_tamper_].at == num_deliveries_) {
    const SimFault& fault = options_.faults[next_tamper_++];
    how.tamper = fault.tamper;
    how.bit = fault.bit;
    if (!IsHarmless(fault) && harm_ == nullptr) harm_ = &fault;
  }
  ++num_deliveries_;
  history_hash_ = MixKey(history_hash_, static_cast<uint64_t>(how.tamper) * 2 +
                                            (how.pieces == Delivery::Pieces::kInPieces));
  network_->Deliver(lane_index, how);
  // The sender may have been waiting for the word that its message has left.
  const int from = PlaceOf(lane.from), to = PlaceOf(lane.to);
  if (!dead_[from]) WEIR_RETURN_IF_ERROR(ranks_[from]->Poll());
  return dead_[to] ? absl::OkStatus() : ranks_[to]->Poll();
}

absl::Status SimEngine::Check(const SimEvent& event) {
  switch (event.kind) {
    case Kind::kDeliver: return invariants_.CheckLane(event.index);
    case Kind::kStart:
    case Kind::kComplete: return invariants_.CheckActor(event.index, event.actor);
    case Kind::kWork: return absl::OkStatus();  // the rank does not see it
    default: return invariants_.CheckAll();
  }
}

bool SimEngine::SeenBefore() {
  uint64_t hash = network_->HashState();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    hash = MixKey(hash, ranks_[i]->HashState());
    hash = MixKey(hash, devices_[i]->HashState());
  }
  seen_ = !options_.states_seen->insert(hash).second;
  return seen_;
}

void SimEngine::CoverEvent(const SimEvent& event) {
  const uint64_t source = SourceOf(event);
  Cover(MixKey(last_source_, source));
  last_source_ = source;
  switch (event.kind) {
    case Kind::kDeliver:
      Cover(MixKey(source, 1000 + network_->lane(event.index).num_messages));
      break;
    case Kind::kComplete: {
      const ActorMachine& machine = ranks_[event.index]->machine(event.actor);
      Cover(MixKey(MixKey(event.index, event.actor.value()),
                   2000 + static_cast<uint64_t>(machine.last_cause().register_id.value())));
      for (int i = 0; i < machine.num_outputs(); ++i) {  // credit 0 while the act ends
        if (machine.output(i).available == 0)
          Cover(MixKey(MixKey(event.index, event.actor.value()), 3000 + i));
      }
      break;
    }
    default: break;
  }
  const transport::SimNetwork::Counts& counts = network_->counts();
  if (counts.fenced > 0) Cover(4001);
  if (counts.foreign > 0) Cover(4002);
  if (counts.overtaken > 0) Cover(4003);
  if (harm_ != nullptr)
    Cover(MixKey(4004,
                 static_cast<uint64_t>(harm_->kind) * 16 + static_cast<uint64_t>(harm_->tamper)));
}

}  // namespace weir::actors
