#include "actors/engine/rank_executor.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

// The CPU time of the calling thread.
int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

// A rank whose device does nothing but wait for other ranks looks so often without a rest. Then it
// leaves the core to others between two looks: those ranks may need the core.
constexpr int kLooksWithoutRest = 200;
constexpr auto kRest = std::chrono::microseconds(20);

}  // namespace

// --- parts of every act, which are inlined: calls would be much of what a hop costs ---------

inline void RankExecutor::Deliver(RegisterRuntime& r, int32_t slot) {
  if (r.ledger.Publish(slot) == SlotLedger::Use::kFree) {  // nobody reads it
    ActorRuntime& producer = actors_[r.producer_actor];
    if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
    return;
  }
  ActorRuntime& first = actors_[r.first_consumer.actor];
  if (first.machine.OnToken(r.first_consumer.port)) AddReady(first);
  for (const PortRef& consumer : r.other_consumers) {
    ActorRuntime& actor = actors_[consumer.actor];
    if (actor.machine.OnToken(consumer.port)) AddReady(actor);
  }
}

inline void RankExecutor::Release(RegisterRuntime& r, int32_t slot) {
  if (r.ledger.Release(slot) == SlotLedger::Use::kInUse) return;
  if (r.side == RegisterSide::kLocal) {
    ActorRuntime& producer = actors_[r.producer_actor];
    if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
    return;
  }
  ++num_sent_;
  absl::Status sent = endpoint_->ReturnCredit(r.edge, slot);
  if (!sent.ok()) Fault(sent);
}

// A token or a credit of an act; returns payload bytes sent.
inline int64_t RankExecutor::Perform(const ActorRuntime& actor, const Act& act,
                                     const Effect& effect) {
  RegisterRuntime& r = registers_[effect.register_id];
  if (effect.kind == Effect::Kind::kReturnCredit) {
    Release(r, effect.slot);
  } else if (r.side == RegisterSide::kOutbound) {
    return Send(actor, act, r, effect);
  } else {
    Deliver(r, effect.slot);
  }
  return 0;
}

inline TimePart RankExecutor::WaitOf(const WaitCause& cause) const {
  if (cause.kind == WaitCause::Kind::kNone) return TimePart::kBetweenActs;
  if (cause.kind == WaitCause::Kind::kCredit) return TimePart::kCredit;
  if (cause.kind == WaitCause::Kind::kGroup) return TimePart::kOtherRanks;
  return registers_[cause.register_id].side == RegisterSide::kInbound ? TimePart::kOtherRanks
                                                                      : TimePart::kOwnInput;
}

// Records for how much of the time of the act the thread had a core.
inline void RankExecutor::MeasureAct(ActorRuntime& actor, const Act& act,
                                     trace::ActRecord& record) {
  const int64_t ticks = record.end - record.start;
  record.cpu_us = trace::ActRecord::kCpuUnknown;
  if (depth_ > 1) return;  // the thread has done other things meanwhile
  if (actor.measured) {
    const int64_t cpu_ns = std::max<int64_t>(0, ThreadCpuNs() - act.start_cpu_ns);
    measured_ticks_ += ticks;
    cpu_ns_ += cpu_ns;
    record.cpu_us =
        static_cast<uint32_t>(std::min<int64_t>(cpu_ns / 1000, trace::ActRecord::kCpuUnknown - 1));
  }
  actor.measured = long_act_ticks_ > 0 && ticks >= long_act_ticks_;
}

inline void RankExecutor::ShowAct(const Act& act) {
  shown_.act.store(act.number, std::memory_order_relaxed);
  shown_.since.store(act.start_ticks, std::memory_order_relaxed);
  shown_.actor.store(act.actor, std::memory_order_relaxed);
}

inline void RankExecutor::BeginNextAct(ActorRuntime& actor, bool is_ready) {
  Act& act = actor.act;
  if (++actor.act_in_step == actor.acts_per_step) {
    actor.act_in_step = act.micro_batch = act.chunk = 0;
    act.step += actor.every;
  } else if (++act.chunk == actor.chunks) {
    act.chunk = 0;
    ++act.micro_batch;
  }
  if (is_ready) AddReady(actor);
}

// --- runs ----------------------------------------------------------------------------------

ActorId RankExecutor::TurnBefore(ActorId actor) const {
  const ActorRuntime& a = actors_[actor];
  if (a.kind == ActorKind::kCollective && a.machine.ready() && collective_order_.actor() != actor)
    return collective_order_.actor();
  if (!a.stream.has_value() || !a.machine.ready() || streams_[a.stream].actor() == actor)
    return ActorId();
  return streams_[a.stream].actor();
}

void RankExecutor::RaiseLimits(int64_t steps) {
  now_ = Now();
  // Virtual time has no threads to measure. The length of a tick is known well enough after a
  // while.
  if (const int64_t ns = MonotonicClock().NowNs() - made_ns_;
      options_.clock == nullptr && ns > trace::kCpuReadMinNs) {
    const double ticks_per_ns =
        static_cast<double>(TickClock::Now() - made_ticks_) / static_cast<double>(ns);
    long_act_ticks_ =
        std::max<int64_t>(1, static_cast<int64_t>(trace::kCpuReadMinNs * ticks_per_ns));
  }
  trace::ActRecord& record = trace_.Next();  // no actor: a run begins
  record = {};
  record.ready = record.start = record.end = now_;
  trace_.Commit();
  account_.BeginRun(now_);
  num_unfinished_ = static_cast<int64_t>(actors_.size());
  collective_order_.SetLimit(next_step_ + steps);
  for (ActorRuntime& actor : actors_) {
    const int64_t acts =
        actor.plan->ActsBefore(next_step_ + steps) - actor.plan->ActsBefore(next_step_);
    if (actor.machine.RaiseLimit(acts)) AddReady(actor);
    if (actor.machine.done()) --num_unfinished_;
  }
  next_step_ += steps;
}

absl::Status RankExecutor::RunUntilIdle(const std::atomic<bool>& stop) {
  if (groups_ == nullptr) return Work(stop);
  if (!groups_->has_joined()) WEIR_RETURN_IF_ERROR(JoinGroups(stop));
  if (groups_->has_joined()) Work(stop).IgnoreError();
  if (!fault_.ok() || stop.load(std::memory_order_relaxed)) {
    groups_->Abort();
  } else if (absl::Status checked = CheckGroups(); !checked.ok()) {
    Fault(checked);
  }
  return fault_;
}

absl::Status RankExecutor::JoinGroups(const std::atomic<bool>& stop) {
  if (absl::Status joined = groups_->Join(stop); !joined.ok()) {
    Fault(At(absl::StrCat("rank ", plan_->rank), joined));
    groups_->Abort();
  }
  positions_[QueueId(num_queues_ - 1)] = groups_->num_own_works();
  return fault_;
}

absl::Status RankExecutor::CheckGroups() {
  return At(absl::StrCat("rank ", plan_->rank), groups_->Check());
}

void RankExecutor::LeaveGroups() {
  if (groups_ != nullptr) groups_->Leave();
}

absl::Status RankExecutor::Work(const std::atomic<bool>& stop) {
  int num_looks = 0;  // at collectives of the device, since the last act began
  while (fault_.ok() && !stop.load(std::memory_order_relaxed)) {
    if (has_edges_) {
      absl::StatusOr<int64_t> num_messages = endpoint_->Poll(this);
      if (!num_messages.ok()) {
        Fault(num_messages.status());
        break;
      }
      if (*num_messages == 0 && ready_.empty() && NumInFlight() == 0 && !HasEndedMeeting()) {
        // The others may wait for messages that the endpoint holds back.
        if (absl::Status flushed = endpoint_->Flush(); !flushed.ok()) Fault(flushed);
        break;
      }
    }
    if (NumInFlight() > 0) CollectCompletions();
    if (!meetings_.empty()) CollectMeetings();
    if (!ready_.empty() && device_has_room()) {
      Start(actors_[actor_at_place_[ready_.First()]]);
      num_looks = 0;
    } else if (num_running_ > 0) {
      continue;
    } else if (num_joint_ > 0) {
      // The others may wait for messages that the endpoint holds back, or for this core.
      if (absl::Status flushed = endpoint_->Flush(); !flushed.ok()) Fault(flushed);
      if (absl::Status checked = CheckGroups(); !checked.ok()) Fault(checked);
      if (++num_looks > kLooksWithoutRest) std::this_thread::sleep_for(kRest);
    } else if (!has_edges_) {
      break;
    }
  }
  return fault_;
}

void RankExecutor::StartReady(int k) { Start(actors_[actor_at_place_[ready_.Nth(k)]]); }

absl::Status RankExecutor::Poll() {
  absl::StatusOr<int64_t> num_messages = endpoint_->Poll(this);
  if (!num_messages.ok()) Fault(num_messages.status());
  return fault_;
}

// Finds the place of the next act of an actor whose micro-batches have places of their own. Returns
// false if it is not the actor's turn in its stream.
bool RankExecutor::TakesPlace(ActorRuntime& actor) const {
  if (actor.stream.has_value() && streams_[actor.stream].actor() != actor.machine.id())
    return false;
  if (actor.kind == ActorKind::kCollective && collective_order_.actor() != actor.machine.id())
    return false;
  if (actor.places != nullptr) actor.place = actor.places[actor.act.micro_batch];
  return true;
}

// Finishes acts in the order in which they were issued. A queue that is asked later may have done
// more, and never less, than a queue that waited for it.
void RankExecutor::CollectCompletions() {
  for (const QueueId queue : IdRange<QueueId>(num_queues_)) {
    if (!flights_[queue].empty()) num_done_[queue] = device_->NumDone(queue);
  }
  for (;;) {
    QueueId next;
    for (const QueueId queue : IdRange<QueueId>(num_queues_)) {
      const FlightRing& flights = flights_[queue];
      if (flights.empty() || flights.oldest().position > num_done_[queue]) continue;
      if (!next.has_value() || flights.oldest().number < flights_[next].oldest().number)
        next = queue;
    }
    if (!next.has_value()) break;
    FinishFlight(next);
  }
  if (absl::Status fault = device_->fault(); !fault.ok() && fault_.ok())
    Fault(At(absl::StrCat("rank ", plan_->rank, ActsUnderWay()), fault));
}

// Returns the names of the first acts that the device was given and has not done.
std::string RankExecutor::ActsUnderWay() const {
  constexpr int kNamesMax = 8;
  std::vector<std::string> names;
  for (const FlightRing& flights : flights_) {
    for (int k = 0; k < flights.size() && names.size() < kNamesMax; ++k) {
      const Act& act = flights[k].act;
      // People count steps from 1, as metrics do.
      names.push_back(absl::StrCat("'", plan_->actors[act.actor].name, "' of step ", act.step + 1));
    }
  }
  if (names.empty()) return "";
  return absl::StrCat(", under way ", absl::StrJoin(names, ", "),
                      NumInFlight() > static_cast<int>(names.size()) ? " and more" : "");
}

ActorId RankExecutor::running_actor() const {
  for (const FlightRing& flights : flights_) {
    if (!flights.empty()) return flights.oldest().act.actor;
  }
  return ActorId();
}

int64_t RankExecutor::NumLeaving(RegisterId register_id) const {
  int64_t leaving = 0;
  for (const FlightRing& flights : flights_) {
    for (int k = 0; k < flights.size(); ++k) {
      for (const Effect& effect : flights[k].leaving) {
        leaving += effect.register_id == register_id && effect.kind == Effect::Kind::kPublishToken;
      }
    }
  }
  return leaving;
}

void RankExecutor::Start(ActorRuntime& actor) {
  ready_.Remove(actor.place);
  actor.machine.Start();
  if (actor.stream.has_value()) PassTurn(streams_[actor.stream]);
  if (actor.kind == ActorKind::kCollective) PassCollective();
  if (actor.rebinds) BindSlots(actor);
  if (options_.clock != nullptr) now_ = Now();
  actor.act.number = actor.machine.acts_done();
  actor.act.cause = actor.machine.last_cause();
  actor.act.start_ticks = now_;
  if (NumInFlight() == 0) ShowAct(actor.act);
  if (actor.measured) actor.act.start_cpu_ns = ThreadCpuNs();
  if (depth_ > 1) AwaitOthers(actor);
  if (has_edges_ && actor.is_long) {
    if (absl::Status flushed = endpoint_->Flush(); !flushed.ok()) Fault(flushed);
  }
  if (device_->Launch({&RunBody, &actor, actor.cost_ns, actor.queue}) ==
      device::Device::Launched::kDone) {
    Meets(actor) ? BeginMeeting(actor, actor.act, 0) : Finish(actor);
    return;
  }
  FlightRing& flights = flights_[actor.queue];
  Flight& flight = flights.next();
  flight.act = actor.act;
  flight.number = num_issued_++;
  flight.position = ++positions_[actor.queue];
  flight.awaited.swap(awaited_);
  flight.leaving.clear();
  flights.Add();
  ++(IsJoint(actor) ? num_joint_ : num_running_);
  if (depth_ > 1 && !Meets(actor) && !IsJoint(actor)) FinishIssue(actor, flight);
}

// Lets the queue of the act that is about to be issued wait for the work of other queues on the
// slots of that act.
void RankExecutor::AwaitOthers(const ActorRuntime& actor) {
  if (num_queues_ == 1) return;
  std::fill(awaited_.begin(), awaited_.end(), AwaitedAct());
  const ActorMachine& machine = actor.machine;
  for (int i = 0; i < machine.num_inputs(); ++i) {
    const ActorMachine::Port& port = machine.input(i);
    for (int32_t k = 0; k < port.tokens; ++k)
      AwaitWriter(actor.queue, port.register_id, port.slot(k));
  }
  for (int i = 0; i < machine.num_outputs(); ++i) {
    const ActorMachine::Port& port = machine.output(i);
    for (int32_t k = 0; k < port.tokens; ++k)
      AwaitReaders(actor.queue, port.register_id, port.slot(k));
  }
}

// Lets the queue wait for the act that wrote the slot last. A token from another rank is written by
// the time that this rank knows of the token.
void RankExecutor::AwaitWriter(QueueId queue, RegisterId register_id, int32_t slot) {
  const RegisterRuntime& r = registers_[register_id];
  if (r.side != RegisterSide::kLocal) return;
  Await(queue, {actors_[r.producer_actor].queue, r.written[slot]},
        {WaitCause::Kind::kInput, register_id});
}

// Lets the queue wait for the last readers of the slot. Readers on another rank have read by the
// time that this rank knows of their credit.
void RankExecutor::AwaitReaders(QueueId queue, RegisterId register_id, int32_t slot) {
  const RegisterRuntime& r = registers_[register_id];
  if (r.side != RegisterSide::kLocal) return;
  for (const QueueId other : IdRange<QueueId>(num_queues_)) {
    Await(queue, {other, r.read[slot * num_queues_ + other.value()]},
          {WaitCause::Kind::kCredit, register_id});
  }
}

void RankExecutor::Await(QueueId queue, device::QueuePosition position, WaitCause cause) {
  if (!queue_clock_.Advance(queue, position)) return;
  device_->Await(queue, position);
  awaited_[position.queue] = {position.number, cause};
}

// The device runs what it is given in that order, so the next may be given to it at once.
void RankExecutor::PassTurn(TurnOrder& stream) {
  stream.Advance();
  ActorRuntime& next = actors_[stream.actor()];
  if (next.machine.ready()) AddReady(next);
}

void RankExecutor::PassCollective() {
  collective_order_.Advance();
  const ActorId next = collective_order_.actor();
  if (next.has_value() && actors_[next].machine.ready()) AddReady(actors_[next]);
}

// The operands of the act are there, and its slots are free. The last rank to come does the work of
// all, and that is the time of its act. In virtual time the act takes what its work has taken.
void RankExecutor::BeginMeeting(ActorRuntime& actor, Act act, int64_t takes) {
  act.start_ticks = Now() - takes;
  if (absl::Status begun = collectives_->Begin(*actor.plan, actor.program); !begun.ok())
    return Fault(At(absl::StrCat("rank ", plan_->rank), begun));
  const absl::StatusOr<bool> ended = collectives_->HasEnded(act.actor);
  if (!ended.ok()) return Fault(At(absl::StrCat("rank ", plan_->rank), ended.status()));
  now_ = Now();
  if (*ended) return FinishMeeting(act, WaitOf(act.cause));
  meetings_.push_back({act, takes});
  if (num_running_ == 0) ShowAct(act);
}

bool RankExecutor::HasEndedMeeting() {
  for (const Meeting& meeting : meetings_) {
    const absl::StatusOr<bool> ended = collectives_->HasEnded(meeting.act.actor);
    if (!ended.ok() || *ended) return true;
  }
  return false;
}

void RankExecutor::CollectMeetings() {
  for (size_t i = 0; i < meetings_.size();) {
    const absl::StatusOr<bool> ended = collectives_->HasEnded(meetings_[i].act.actor);
    if (!ended.ok()) return Fault(At(absl::StrCat("rank ", plan_->rank), ended.status()));
    if (!*ended) {
      ++i;
      continue;
    }
    Act act = meetings_[i].act;
    now_ = Now();
    // The rank has done other things meanwhile. So the act itself takes no time but virtual time,
    // in which its queue did nothing else.
    const QueueId queue = depth_ > 1 ? actors_[act.actor].queue : QueueId(0);
    act.ready_ticks = act.start_ticks =
        std::max(now_ - meetings_[i].takes, std::min(now_, recorded_until_[queue]));
    act.cause = {WaitCause::Kind::kGroup, RegisterId()};
    meetings_.erase(meetings_.begin() + static_cast<std::ptrdiff_t>(i));
    FinishMeeting(act, TimePart::kOtherRanks);
  }
}

// All ranks of the group have come, and the results are there. What comes before the act on other
// queues was over when the meeting began, so no later act need wait for it.
void RankExecutor::FinishMeeting(const Act& act, TimePart wait) {
  ActorRuntime& actor = actors_[act.actor];
  actor.measured = false;
  effects_.clear();
  const bool is_ready = actor.machine.OnActDone(&effects_);
  int64_t bytes_sent = 0;
  for (const Effect& effect : effects_) bytes_sent += Perform(actor, act, effect);
  Record(actor, act, wait, now_, bytes_sent);
  BeginNextAct(actor, is_ready);
  if (actor.machine.done()) --num_unfinished_;
}

void RankExecutor::ReportMetric(const Act& act, float value) {
  if (options_.sink == nullptr || options_.compute == RankExecutorOptions::Compute::kSkip) return;
  options_.sink->Report(plan_->actors[act.actor].feed, act.step, act.micro_batch, value);
}

// An act that was done when Launch returned.
void RankExecutor::Finish(ActorRuntime& actor) {
  now_ = Now();
  if (actor.kind == ActorKind::kSink) ReportMetric(actor.act, flights_[actor.queue].next().metric);
  effects_.clear();
  const bool is_ready = actor.machine.OnActDone(&effects_);
  int64_t bytes_sent = 0;
  for (const Effect& effect : effects_) bytes_sent += Perform(actor, actor.act, effect);
  Record(actor, actor.act, WaitOf(actor.act.cause), now_, bytes_sent);
  BeginNextAct(actor, is_ready);
  if (actor.machine.done()) --num_unfinished_;
}

// Performs the effects on this rank of an act that is issued. On a device of depth 1 the act is
// done, too.
void RankExecutor::FinishIssue(ActorRuntime& actor, Flight& flight) {
  effects_.clear();
  const bool is_ready = actor.machine.OnActDone(&effects_);
  flight.is_last = actor.machine.done();
  for (const Effect& effect : effects_) {
    RegisterRuntime& r = registers_[effect.register_id];
    if (r.side != RegisterSide::kLocal) {
      flight.leaving.push_back(effect);
      continue;
    }
    if (!r.written.empty()) {
      if (effect.kind == Effect::Kind::kPublishToken) {
        r.written[effect.slot] = flight.position;
      } else {
        r.read[effect.slot * num_queues_ + actor.queue.value()] = flight.position;
      }
    }
    Perform(actor, flight.act, effect);
  }
  BeginNextAct(actor, is_ready);
}

// The oldest act of a queue is done. The device knows when it began and ended; the host hears of it
// now.
void RankExecutor::FinishFlight(QueueId queue) {
  FlightRing& flights = flights_[queue];
  Flight& flight = flights.oldest();
  ActorRuntime& actor = actors_[flight.act.actor];
  now_ = Now();
  if (Meets(actor)) {
    const device::WorkTimes times = device_->TimesOf({queue, flight.position});
    flights.RemoveOldest();
    --num_running_;
    // The ring keeps the flight until the next Add.
    return BeginMeeting(actor, flight.act, options_.clock != nullptr ? times.end - times.begin : 0);
  }
  if (actor.kind == ActorKind::kSink) ReportMetric(flight.act, flight.metric);
  if (depth_ == 1 || IsJoint(actor)) FinishIssue(actor, flight);
  int64_t bytes_sent = 0;
  for (const Effect& effect : flight.leaving) bytes_sent += Perform(actor, flight.act, effect);
  const device::QueuePosition position{queue, flight.position};
  const device::WorkTimes times = device_->TimesOf(position);
  flight.act.start_ticks = times.begin;
  if (num_queues_ > 1) EndWaits(flight, position, times.end);
  if (flight.is_last) --num_unfinished_;
  flights.RemoveOldest();
  --(IsJoint(actor) ? num_joint_ : num_running_);
  // The ring keeps a removed flight until the next Add.
  Record(actor, flight.act, WaitOf(flight.act.cause), times.end, bytes_sent);
}

// Ends the waits for the act at `done`, which `flight` is, and the waits of that act itself for
// acts of which the host will hear later than of this one.
void RankExecutor::EndWaits(Flight& flight, device::QueuePosition done, int64_t end) {
  for (const QueueId queue : IdRange<QueueId>(num_queues_)) {
    FlightRing& others = flights_[queue];
    const AwaitedAct& awaited = flight.awaited[queue];
    if (!others.empty() && others.oldest().position <= awaited.position)
      EndWait(awaited, device_->TimesOf({queue, awaited.position}).end, &flight.act);
    for (int k = 0; k < others.size(); ++k) {
      const AwaitedAct& waiting = others[k].awaited[done.queue];
      if (waiting.position == done.number) EndWait(waiting, end, &others[k].act);
    }
  }
}

// The wait that ends last is the cause of an act's time.
void RankExecutor::EndWait(const AwaitedAct& awaited, int64_t end, Act* act) {
  if (end <= act->ready_ticks) return;
  act->ready_ticks = end;
  act->cause = awaited.cause;
}

// Writes an act that is done to the trace, and shows what runs now.
void RankExecutor::Record(ActorRuntime& actor, const Act& act, TimePart wait, int64_t end,
                          int64_t bytes_sent) {
  trace::ActRecord& record = trace_.Next();
  record.actor = act.actor;
  record.waited_register = act.cause.register_id;
  record.wait = static_cast<trace::ActRecord::Wait>(act.cause.kind);
  record.step = act.step;
  record.micro_batch = act.micro_batch;
  record.chunk = act.chunk;
  record.ready = act.ready_ticks;
  record.start = act.start_ticks;
  record.end = end;
  record.bytes_sent = bytes_sent;
  account_.AddAct(depth_ > 1 ? actor.queue : QueueId(0), actor.work, wait, act.ready_ticks,
                  act.start_ticks, end);
  MeasureAct(actor, act, record);
  trace_.Commit();
  int64_t& recorded_until = recorded_until_[depth_ > 1 ? actor.queue : QueueId(0)];
  recorded_until = std::max(recorded_until, end);

  shown_.acts.store(shown_.acts.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (NumInFlight() == 0) {
    if (!meetings_.empty()) return ShowAct(meetings_.front().act);
    shown_.actor.store(ActorId(), std::memory_order_relaxed);
    return;
  }
  for (const FlightRing& flights : flights_) {
    if (!flights.empty()) return ShowAct(flights.oldest().act);
  }
}

int64_t RankExecutor::Send(const ActorRuntime& actor, const Act& act, RegisterRuntime& r,
                           const Effect& effect) {
  transport::MessageHeader header;
  header.epoch = options_.epoch;
  header.role = options_.role;
  header.edge = r.edge_id;
  header.slot = effect.slot;
  header.micro_batch = act.micro_batch;
  header.sequence = effect.number;
  header.step = act.step;
  header.version = act.step;
  header.payload_bytes = actor.program == nullptr
                             ? r.bytes
                             : actor.program->PayloadBytes(effect.port, act.chunk, r.bytes);
  ++r.num_outstanding;
  ++num_sent_;
  absl::Status sent = endpoint_->Put(r.edge, header, r.addresses[effect.slot]);
  if (!sent.ok()) Fault(sent);
  return header.payload_bytes;
}

absl::Status RankExecutor::OnToken(EdgeHandle edge, const transport::MessageHeader& header) {
  now_ = Now();
  RegisterRuntime& r = registers_[register_of_edge_[edge]];
  if (r.side != RegisterSide::kInbound || header.edge != r.edge_id ||
      header.slot != r.expected_slot || header.sequence != r.expected_sequence ||
      header.payload_bytes < 0 || header.payload_bytes > r.bytes || header.codec_version != 0 ||
      header.epoch != options_.epoch || header.role != options_.role ||
      !r.ledger.is_free(header.slot)) {
    return ErrorOf(
        absl::StatusCode::kDataLoss,
        {"W0510",
         absl::StrCat("rank ", plan_->rank, ", register '",
                      plan_->registers[register_of_edge_[edge]].name, "'"),
         absl::StrCat("token ", r.expected_sequence, " in slot ", r.expected_slot, " of at most ",
                      r.bytes, " bytes, epoch ", options_.epoch, ", role ", options_.role),
         absl::StrCat("token ", header.sequence, " in slot ", header.slot, " of ",
                      header.payload_bytes, " bytes, epoch ", header.epoch, ", role ", header.role),
         ""});
  }
  ++num_received_;
  ++r.expected_sequence;
  r.expected_slot = r.expected_slot + 1 == r.slots ? 0 : r.expected_slot + 1;
  if (r.is_sized) r.token_bytes[header.slot] = header.payload_bytes;
  Deliver(r, header.slot);
  return absl::OkStatus();
}

absl::Status RankExecutor::OnCredit(EdgeHandle edge, int32_t slot) {
  now_ = Now();
  RegisterRuntime& r = registers_[register_of_edge_[edge]];
  if (r.side != RegisterSide::kOutbound || slot != r.expected_slot || r.num_outstanding == 0) {
    return ErrorOf(absl::StatusCode::kDataLoss,
                   {"W0511",
                    absl::StrCat("rank ", plan_->rank, ", register '",
                                 plan_->registers[register_of_edge_[edge]].name, "'"),
                    absl::StrCat("a credit of slot ", r.expected_slot, " with ", r.num_outstanding,
                                 " outstanding"),
                    absl::StrCat("slot ", slot), ""});
  }
  ++num_received_;
  --r.num_outstanding;
  r.expected_slot = r.expected_slot + 1 == r.slots ? 0 : r.expected_slot + 1;
  ActorRuntime& producer = actors_[r.producer_actor];
  if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
  return absl::OkStatus();
}

}  // namespace weir::actors
