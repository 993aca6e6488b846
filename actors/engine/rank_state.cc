// The state of a rank as a whole, at rest or as others see it: its states, its progress, its slots.
// The simulator keeps it, brings it back and tells it apart from others.
#include "absl/strings/str_cat.h"
#include "actors/engine/rank_executor.h"
#include "runtime/base/problem.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::actors {

struct RankExecutor::Beginning {
  IdVector<ActorId, ActorRuntime> actors;
  IdVector<RegisterId, RegisterRuntime> registers;
  IdVector<StreamId, TurnOrder> streams;
  StartOrder collective_order;
  int64_t next_step = 0;
  ReadySet ready;
  int64_t num_unfinished = 0;
  std::string arena;
  std::string staging;
};

std::string RankExecutor::Contents(const device::DeviceBlock& block) const {
  const device::HostView view = device_->memory().View(block.base(), block.bytes());
  return std::string(view.data(), view.size());
}

void RankExecutor::MarkBeginning() {
  beginning_ = std::make_shared<Beginning>(
      Beginning{actors_, registers_, streams_, collective_order_, next_step_, ready_,
                num_unfinished_, Contents(arena_), Contents(staging_)});
}

void RankExecutor::Rewind() {
  const Beginning& b = *beginning_;
  actors_ = b.actors;  // element by element, so nothing is allocated
  registers_ = b.registers;
  streams_ = b.streams;
  collective_order_ = b.collective_order;
  meetings_.clear();
  next_step_ = b.next_step;
  ready_ = b.ready;
  for (FlightRing& flights : flights_) flights.Clear();
  positions_.assign(positions_.size(), 0);
  num_done_.assign(num_done_.size(), 0);
  recorded_until_.assign(recorded_until_.size(), 0);
  queue_clock_.Reset();
  num_running_ = 0;
  num_unfinished_ = b.num_unfinished;
  device_->memory().CopyIn(arena_.base(), b.arena.data(), arena_.bytes());
  device_->memory().CopyIn(staging_.base(), b.staging.data(), staging_.bytes());
  num_sent_ = num_received_ = 0;
  now_ = 0;
  account_.BeginRun(now_);
  if (!fault_.ok()) fault_ = absl::OkStatus();
  if (collectives_ != nullptr) {
    if (absl::Status joined = collectives_->Rejoin(); !joined.ok()) Fault(joined);
  }
  shown_.acts.store(0, std::memory_order_relaxed);
  shown_.actor.store(ActorId(), std::memory_order_relaxed);
}

uint64_t RankExecutor::HashState() const {
  uint64_t hash = 1;
  const auto add = [&hash](uint64_t value) { hash = MixKey(hash, value); };
  const auto add_port = [&add](const ActorMachine::Port& port) {
    add(port.position);
    add(port.available);
    add(port.held_slot);
    add(port.next_slot);
    add(port.next_token * 2 + port.wanted);
  };
  for (const ActorRuntime& actor : actors_) {
    add(actor.machine.acts_done() * 2 + actor.machine.running());
    add(actor.machine.limit());
    for (int i = 0; i < actor.machine.num_inputs(); ++i) add_port(actor.machine.input(i));
    for (int i = 0; i < actor.machine.num_outputs(); ++i) add_port(actor.machine.output(i));
  }
  for (const RegisterRuntime& r : registers_) {
    for (int32_t slot = 0; slot < r.slots; ++slot) add(r.ledger.readers(slot));
    add(r.expected_sequence);
    add(r.expected_slot * 64 + r.num_outstanding);
  }
  for (const TurnOrder& stream : streams_) {
    add(static_cast<uint64_t>(stream.round));
    add(static_cast<uint64_t>(stream.entry));
  }
  add(collective_order_.num_passed());
  for (const Meeting& meeting : meetings_) add(meeting.act.actor.value());
  for (const FlightRing& flights : flights_) {
    for (int k = 0; k < flights.size(); ++k) add(flights[k].act.actor.value());
  }
  for (int k = 0; k < ready_.size(); ++k) add(ready_.Nth(k));
  for (const device::DeviceBlock* block : {&arena_, &staging_}) {
    const device::HostView view = device_->memory().View(block->base(), block->bytes());
    add(KeyOf(view.data(), view.size()));
  }
  return hash;
}

char* RankExecutor::StateAddress(StateId state) const {
  const PlanState& spec = plan_->states[state];
  char* address = places_.AddressOf(*plan_, state);
  if (spec.register_id.has_value()) {
    const PlanRegister& r = plan_->registers[spec.register_id];
    address += (CountAt(*plan_, r, next_step_).released + spec.token) % r.slots * r.stride;
  }
  return address;
}

device::HostView RankExecutor::ReadState(StateId state) const {
  if (arena_.base() == nullptr) return device::HostView(nullptr, 0);
  return device_->memory().View(StateAddress(state), plan_->states[state].slice.bytes());
}

absl::Status RankExecutor::FillState(StateId state,
                                     absl::FunctionRef<absl::Status(char* host)> fill) {
  const int64_t bytes = plan_->states[state].slice.bytes();
  return device_->memory().Fill(StateAddress(state), bytes, fill);
}

RankWork RankExecutor::work() const {
  RankWork work{account_.busy_ticks(), 0, measured_ticks_, cpu_ns_, account_.parts()};
  for (const ActorRuntime& actor : actors_)
    work.planned_ns += actor.machine.acts_done() * actor.plan->timing.time_ns;
  return work;
}

RankExecutor::Progress RankExecutor::progress() const {
  Progress progress;
  for (int look = 0; look < 3; ++look) {  // again if an act ended meanwhile
    progress.acts = shown_.acts.load(std::memory_order_relaxed);
    progress.actor = shown_.actor.load(std::memory_order_relaxed);
    progress.act = shown_.act.load(std::memory_order_relaxed);
    progress.since = shown_.since.load(std::memory_order_relaxed);
    progress.sleep = shown_.sleep.load(std::memory_order_relaxed);
    if (shown_.acts.load(std::memory_order_relaxed) == progress.acts) break;
  }
  return progress;
}

absl::Status RankExecutor::CheckAtRest() const {
  for (const PlanRegister& spec : plan_->registers) {
    const RegisterRuntime& r = registers_[spec.id];
    const int32_t in_use =
        spec.side == RegisterSide::kOutbound ? r.num_outstanding : r.ledger.num_in_use();
    const bool steady = plan_->rhythm.steps_per_iteration == 1;  // each step leaves what it found
    const int64_t expected =
        (steady ? counts_[spec.id] : CountAt(*plan_, spec, next_step_)).in_use();
    if (in_use == expected || (spec.side == RegisterSide::kLocal && spec.consumers.empty()))
      continue;
    return ErrorOf(absl::StatusCode::kInternal,
                   {"W0515", absl::StrCat("rank ", plan_->rank, ", register '", spec.name, "'"),
                    absl::StrCat(expected, " slots in use at rest"), absl::StrCat(in_use), ""});
  }
  return absl::OkStatus();
}

}  // namespace weir::actors
