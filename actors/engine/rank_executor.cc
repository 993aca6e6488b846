#include "actors/engine/rank_executor.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/certificate.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

// Of all ports of an actor together, and one.
size_t MaxTokens(const Plan& plan) {
  size_t most = 0;
  for (const PlanActor& actor : plan.actors) {
    size_t tokens = 0;
    for (const PlanPort& port : actor.inputs) tokens += port.tokens;
    for (const PlanPort& port : actor.outputs) tokens += port.tokens;
    most = std::max(most, tokens);
  }
  return most + 1;
}

// The number of the token that lies in slot 0 first. Remote registers are numbered anew in each session, so that the
// tokens that are there lie in the first slots.
int64_t FirstNumber(const PlanRegister& r, const RegisterCount& count) {
  return r.side == RegisterSide::kLocal ? 0 : count.released;
}

int64_t AlignUp(int64_t bytes) { return (bytes + kOperandAlignment - 1) / kOperandAlignment * kOperandAlignment; }

// The CPU time of the calling thread.
int64_t ThreadCpuNs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
}

// Staging slots start on a cache line each.
int64_t StagingStride(const PlanRegister& r) { return AlignUp(r.bytes); }

// From the start of an inbound register to that of the next, where they lie together.
int64_t LandingBytes(const PlanRegister& r) { return r.bytes == 0 ? 0 : (r.slots - 1) * r.stride + AlignUp(r.bytes); }

}  // namespace

RankExecutor::RankExecutor(const Plan* plan, Device* device, TransportEndpoint* endpoint, RankExecutorOptions options)
    : plan_(plan),
      device_(device),
      endpoint_(endpoint),
      options_(std::move(options)),
      next_step_(options_.first_step),
      ready_(0),
      effects_(MaxTokens(*plan)),
      running_(device->queue_depth()),
      made_ns_(MonotonicClock().NowNs()),
      made_ticks_(TickClock::Now()),
      trace_(options_.trace_capacity) {
  counts_.reserve(plan->registers.size());
  for (const PlanRegister& r : plan->registers) counts_.push_back(CountAt(*plan, r, options_.first_step));
}

absl::StatusOr<std::unique_ptr<RankExecutor>> RankExecutor::Create(const Plan* plan, Device* device,
                                                                   TransportEndpoint* endpoint,
                                                                   RankExecutorOptions options) {
  std::unique_ptr<RankExecutor> executor(new RankExecutor(plan, device, endpoint, std::move(options)));
  WEIR_RETURN_IF_ERROR(executor->CheckBegin());
  WEIR_RETURN_IF_ERROR(executor->MakeMemory());
  WEIR_RETURN_IF_ERROR(executor->MakeRegisters());
  WEIR_RETURN_IF_ERROR(executor->MakeActors());
  return executor;
}

absl::Status RankExecutor::MakeMemory() {
  if (options_.compute == RankExecutorOptions::Compute::kSkip) return absl::OkStatus();
  const int num_threads = device_->team() != nullptr ? device_->team()->num_threads() : 1;
  WEIR_ASSIGN_OR_RETURN(kernels_, KernelSet::Create(*plan_, "cpu", num_threads));
  WEIR_ASSIGN_OR_RETURN(arena_, Arena::Create(plan_->arena_bytes));
  WEIR_ASSIGN_OR_RETURN(workspace_, Arena::Create(kernels_.workspace_bytes()));
  memory_.arena_bytes = plan_->arena_bytes;
  memory_.scratch_bytes = plan_->scratch_bytes;
  memory_.workspace_bytes = kernels_.workspace_bytes();
  return absl::OkStatus();
}

// Memory that the transport wants inbound registers to lie in, one after another; null if
// the arena will do.
absl::StatusOr<char*> RankExecutor::AllocateLanding() {
  int64_t bytes = 0;
  for (const PlanRegister& spec : plan_->registers) {
    if (spec.side == RegisterSide::kInbound) bytes += LandingBytes(spec);
  }
  if (bytes == 0 || options_.compute == RankExecutorOptions::Compute::kSkip) return nullptr;
  bytes += kOperandAlignment;  // the memory may start anywhere
  WEIR_ASSIGN_OR_RETURN(char* landing, endpoint_->AllocateLanding(bytes));
  if (landing == nullptr) return nullptr;
  memory_.landing_bytes = bytes;
  return reinterpret_cast<char*>(AlignUp(reinterpret_cast<intptr_t>(landing)));
}

absl::Status RankExecutor::MakeRegisters() {
  WEIR_ASSIGN_OR_RETURN(char* landing, AllocateLanding());
  registers_.reserve(plan_->registers.size());
  for (const PlanRegister& spec : plan_->registers) {
    const int num_consumers = static_cast<int>(spec.consumers.size());
    RegisterRuntime& r = registers_.emplace_back(SlotLedger(spec.slots, num_consumers));
    const RegisterCount& count = counts_[spec.id];
    for (int64_t token = count.released; token < count.published; ++token) {
      int32_t readers = 0;
      for (int k = 0; k < num_consumers; ++k) {
        readers += ConsumerAt(*plan_, spec, k, options_.first_step).given_up <= token;
      }
      r.ledger.Hold(static_cast<int32_t>((token - FirstNumber(spec, count)) % spec.slots), readers);
    }
    r.side = spec.side;
    r.producer_actor = spec.producer.actor;
    r.producer_port = spec.producer.port;
    if (!spec.consumers.empty()) {
      r.first_consumer = spec.consumers[0];
      r.other_consumers.assign(spec.consumers.begin() + 1, spec.consumers.end());
    }
    r.bytes = spec.bytes;
    r.slots = spec.slots;
    r.edge_id = spec.edge;
    r.addresses.assign(spec.slots, nullptr);
    if (spec.side != RegisterSide::kOutbound && arena_.base() != nullptr) {
      const bool lands = spec.side == RegisterSide::kInbound && landing != nullptr;
      char* first = lands ? landing : arena_.base() + spec.arena_offset;
      for (int32_t k = 0; k < spec.slots; ++k) {
        // A register without bytes may lie anywhere; it is never touched.
        r.addresses[k] = spec.bytes == 0 ? arena_.base() : first + k * spec.stride;
        // The arena is zero from the start.
        if (lands && k < count.in_use()) std::memset(r.addresses[k], 0, spec.bytes);
      }
      if (lands) landing += LandingBytes(spec);
    }
    if (spec.side != RegisterSide::kLocal) WEIR_RETURN_IF_ERROR(AddEdge(spec, r));
  }
  return absl::OkStatus();
}

absl::Status RankExecutor::AddEdge(const PlanRegister& spec, RegisterRuntime& r) {
  has_edges_ = true;
  TransportEdge edge;
  const bool out = spec.side == RegisterSide::kOutbound;
  edge.direction = out ? TransportEdge::Direction::kOutgoing : TransportEdge::Direction::kIncoming;
  edge.edge = spec.edge;
  edge.peer = spec.peer;
  edge.slots = spec.slots;
  const int32_t in_use = static_cast<int32_t>(counts_[spec.id].in_use());
  edge.initial_tokens = in_use;
  edge.bytes = spec.bytes;
  edge.statement = EdgeStatement(*plan_, spec);
  edge.landing = r.addresses[0];
  edge.stride = spec.stride;
  WEIR_ASSIGN_OR_RETURN(r.edge, endpoint_->AddEdge(edge));
  r.expected_slot = out ? 0 : in_use % spec.slots;
  r.expected_sequence = in_use;
  r.num_outstanding = out ? in_use : 0;
  register_of_edge_.resize(std::max<size_t>(register_of_edge_.size(), r.edge + 1), -1);
  register_of_edge_[r.edge] = spec.id;
  return absl::OkStatus();
}

// One fixed order of all that can be ready: by priority, turn, id.
void RankExecutor::MakePlaces() {
  struct Entry {
    int32_t priority = 0;
    int64_t turn = 0;
    int32_t actor = 0;
    int32_t micro_batch = -1;  // -1: any
  };
  std::vector<Entry> order;
  for (const PlanActor& spec : plan_->actors) {
    if (spec.turn.always_same()) {
      order.push_back({spec.priority, spec.turn.first, spec.id, -1});
      continue;
    }
    for (int32_t k = 0; k < spec.acts_per_step / spec.chunks; ++k) order.push_back({spec.priority, spec.turn.At(k), spec.id, k});
  }
  std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return std::tie(b.priority, a.turn, a.actor, a.micro_batch) < std::tie(a.priority, b.turn, b.actor, b.micro_batch);
  });
  std::vector<size_t> first_turn(plan_->actors.size(), 0);
  size_t num_turns = 0;
  for (const PlanActor& spec : plan_->actors) {
    first_turn[spec.id] = num_turns;
    if (!spec.turn.always_same()) num_turns += spec.acts_per_step / spec.chunks;
  }
  turn_places_.resize(num_turns);
  actor_at_place_.resize(order.size());
  ready_ = ReadySet(static_cast<int>(order.size()));
  for (size_t place = 0; place < order.size(); ++place) {
    const Entry& entry = order[place];
    ActorRuntime& actor = actors_[entry.actor];
    actor_at_place_[place] = entry.actor;
    if (entry.micro_batch < 0) {
      actor.place = static_cast<int32_t>(place);
    } else {
      actor.places = &turn_places_[first_turn[entry.actor]];
      actor.in_order = true;
      turn_places_[first_turn[entry.actor] + entry.micro_batch] = static_cast<int32_t>(place);
    }
  }
}

absl::Status RankExecutor::MakeActors() {
  actors_.reserve(plan_->actors.size());
  const bool compute = options_.compute == RankExecutorOptions::Compute::kRun;
  for (const PlanActor& spec : plan_->actors) {
    ActorRuntime& actor = actors_.emplace_back(
        ActorMachine(ActorId(spec.id), InputSpecs(spec), OutputSpecs(spec)));
    actor.owner = this;
    actor.plan = &spec;
    actor.acts_per_step = spec.acts_per_step;
    actor.chunks = spec.chunks;
    actor.kind = spec.kind;
    actor.every = spec.every;
    actor.step = FloorDiv(options_.first_step - spec.every_phase + spec.every - 1, spec.every) * spec.every + spec.every_phase;
    if (options_.cost_ns) actor.cost_ns = options_.cost_ns(*plan_, spec);
    if (spec.kind == ActorKind::kSource && compute && options_.feed == nullptr) {
      return Rejected({"W0513", absl::StrCat("rank ", plan_->rank, ", actor '", spec.name, "'"), "a data feed", "none",
                       "give the session one"});
    }
    const bool has_program = spec.program >= 0 && (spec.kind == ActorKind::kCompute || spec.kind == ActorKind::kSend);
    if (has_program && compute) {
      BoundProgram::Memory memory{arena_.base(), workspace_.base(), device_->team()};
      programs_.push_back(std::make_unique<BoundProgram>(*plan_, spec, kernels_, memory));
      actor.program = programs_.back().get();
    }
  }
  MakePlaces();
  MakeStreams();
  return absl::OkStatus();
}

// Where ports stand when all steps before the first are done.
std::vector<PortSpec> RankExecutor::InputSpecs(const PlanActor& actor) const {
  const int64_t acts = ActsBefore(actor, options_.first_step);
  std::vector<PortSpec> specs;
  for (const PlanPort& port : actor.inputs) {
    const RegisterCount& count = counts_[port.register_id];
    PortSpec& spec = specs.emplace_back(SpanSpec(port, acts));
    spec.available = static_cast<int32_t>(count.published - TokensTaken(port, acts));
    spec.next_token = TokensTaken(port, acts) - FirstNumber(plan_->registers[port.register_id], count);
  }
  return specs;
}

std::vector<PortSpec> RankExecutor::OutputSpecs(const PlanActor& actor) const {
  const int64_t acts = ActsBefore(actor, options_.first_step);
  std::vector<PortSpec> specs;
  for (const PlanPort& port : actor.outputs) {
    const PlanRegister& r = plan_->registers[port.register_id];
    const RegisterCount& count = counts_[port.register_id];
    PortSpec& spec = specs.emplace_back(SpanSpec(port, acts));
    spec.available = static_cast<int32_t>(r.slots - r.initial_tokens + count.released - count.taken);
    spec.next_token = r.initial_tokens + count.taken - FirstNumber(r, count);
  }
  return specs;
}

PortSpec RankExecutor::SpanSpec(const PlanPort& port, int64_t acts) const {
  PortSpec spec;
  spec.register_id = port.register_id;
  spec.period = port.period;
  spec.slots = plan_->registers[port.register_id].slots;
  spec.tokens = port.tokens;
  spec.position = static_cast<int32_t>((acts + port.phase) % port.period);
  if (Planted(PlantedBug::kPhaseForgotten)) spec.position = static_cast<int32_t>(acts % port.period);
  if (SpansBegun(port, acts) > SpansEnded(port, acts)) spec.span = PortSpec::Span::kBegun;
  return spec;
}

void RankExecutor::MakeStreams() {
  streams_.reserve(plan_->streams.size());
  for (const PlanStream& plan : plan_->streams) {
    Stream& stream = streams_.emplace_back();
    stream.plan = &plan;
    stream.acts_per_step = plan_->actors[plan.entries[0].actor].acts_per_step;
    for (const PlanStream::Entry& entry : plan.entries) {
      stream.lead = std::max(stream.lead, entry.ahead);
      actors_[entry.actor].stream = static_cast<int32_t>(streams_.size()) - 1;
      actors_[entry.actor].in_order = true;
    }
    stream.round = -stream.lead;
    stream.Seek();
  }
}

void RankExecutor::Stream::Seek() {
  for (;; ++entry) {
    if (entry == static_cast<int32_t>(plan->entries.size())) {
      entry = 0;
      if (++round == acts_per_step) round = -lead;
    }
    const int32_t act = round + plan->entries[entry].ahead;
    if (act >= 0 && act < acts_per_step) return;
  }
}

int32_t RankExecutor::TurnBefore(int actor) const {
  const ActorRuntime& a = actors_[actor];
  if (a.stream < 0 || !a.machine.ready() || streams_[a.stream].actor() == actor) return -1;
  return streams_[a.stream].actor();
}

// What earlier steps of the job left in registers is here only if a state keeps it.
absl::Status RankExecutor::CheckBegin() const {
  if (options_.first_step == 0) return absl::OkStatus();
  for (const PlanRegister& r : plan_->registers) {
    if (r.producer.actor < 0 || r.side != RegisterSide::kLocal) continue;
    const PlanActor& actor = plan_->actors[r.producer.actor];
    const PlanPort& port = actor.outputs[r.producer.port];
    const int64_t acts = ActsBefore(actor, options_.first_step);
    if (SpansBegun(port, acts) == SpansEnded(port, acts)) continue;
    return Rejected({"W0540", absl::StrCat("rank ", plan_->rank, ", register '", r.name, "'"),
                     absl::StrCat("to begin at a step before which '", actor.name, "' has ended what it collects"),
                     absl::StrCat("step ", options_.first_step, ", in the midst of ", port.period, " acts"),
                     absl::StrCat("begin at a step that a cycle of ", plan_->rhythm.steps_per_iteration, " steps begins with")});
  }
  return absl::OkStatus();
}

absl::Status RankExecutor::Connect() {
  WEIR_RETURN_IF_ERROR(endpoint_->Connect());
  if (options_.compute == RankExecutorOptions::Compute::kSkip) return absl::OkStatus();
  std::vector<std::pair<RegisterRuntime*, int64_t>> staged;  // and its stride
  for (const PlanRegister& spec : plan_->registers) {
    if (spec.side != RegisterSide::kOutbound || spec.bytes == 0) continue;
    RegisterRuntime& r = registers_[spec.id];
    for (int32_t k = 0; k < spec.slots; ++k) r.addresses[k] = static_cast<char*>(endpoint_->TryMap(r.edge, k));
    if (r.addresses[0] == nullptr) {
      staged.emplace_back(&r, StagingStride(spec));
      memory_.staging_bytes += StagingStride(spec) * spec.slots;
    }
  }
  WEIR_ASSIGN_OR_RETURN(staging_, Arena::Create(memory_.staging_bytes));
  char* next = staging_.base();
  for (auto& [r, stride] : staged) {
    for (char*& address : r->addresses) {
      address = next;
      next += stride;
    }
  }
  BindConstantSlots();
  if (!options_.state_init) return absl::OkStatus();
  for (size_t i = 0; i < plan_->states.size(); ++i) {
    const PlanState& state = plan_->states[i];
    WEIR_RETURN_IF_ERROR(options_.state_init(state.name, state.slice, state.init, StateMemory(static_cast<int>(i)).data()));
  }
  return absl::OkStatus();
}

// Ports that take all slots of their register each time are bound once and for all.
void RankExecutor::BindConstantSlots() {
  for (ActorRuntime& actor : actors_) {
    if (actor.program == nullptr) continue;
    const ActorMachine& machine = actor.machine;
    actor.rebinds = kPlantsBugs;
    for (int i = 0; i < machine.num_inputs(); ++i) {
      BindPort(actor, machine.input(i), i, &BoundProgram::BindInput);
      const ActorMachine::Port& port = machine.input(i);
      actor.rebinds |= port.slots > port.tokens && actor.program->ReadsInput(i, port.tokens);
    }
    for (int i = 0; i < machine.num_outputs(); ++i) {
      BindPort(actor, machine.output(i), i, &BoundProgram::BindOutput);
      const ActorMachine::Port& port = machine.output(i);
      actor.rebinds |= (port.slots > port.tokens && actor.program->WritesOutput(i, port.tokens)) || actor.program->Collects(i);
    }
  }
}

void RankExecutor::BindPort(ActorRuntime& actor, const ActorMachine::Port& port, int index,
                            void (BoundProgram::*bind)(int, int, char*)) {
  const std::vector<char*>& addresses = registers_[port.register_id].addresses;
  int32_t slot = port.held_slot >= 0 ? port.held_slot : port.next_slot;
  for (int32_t k = 0; k < port.tokens; ++k) {
    (actor.program->*bind)(index, k, addresses[slot]);
    slot = slot + 1 == port.slots ? 0 : slot + 1;
  }
}

absl::Span<char> RankExecutor::StateMemory(int state) const {
  const PlanState& spec = plan_->states[state];
  if (arena_.base() == nullptr) return {};
  int64_t offset = spec.arena_offset;
  if (spec.register_id >= 0) {
    const PlanRegister& r = plan_->registers[spec.register_id];
    offset += (CountAt(*plan_, r, next_step_).released + spec.token) % r.slots * r.stride;
  }
  return absl::MakeSpan(arena_.base() + offset, spec.slice.bytes());
}

void RankExecutor::RaiseLimits(int64_t steps) {
  now_ = Now();
  // Virtual time has no threads to measure. The length of a tick is known well enough after a while.
  if (const int64_t ns = MonotonicClock().NowNs() - made_ns_; options_.clock == nullptr && ns > kCpuReadMinNs) {
    const double ticks_per_ns = static_cast<double>(TickClock::Now() - made_ticks_) / static_cast<double>(ns);
    long_act_ticks_ = std::max<int64_t>(1, static_cast<int64_t>(kCpuReadMinNs * ticks_per_ns));
  }
  ActRecord& record = trace_.Add();  // no actor: a run begins
  record = {};
  record.ready = record.start = record.end = now_;
  num_unfinished_ = static_cast<int64_t>(actors_.size());
  for (ActorRuntime& actor : actors_) {
    const int64_t acts = ActsBefore(*actor.plan, next_step_ + steps) - ActsBefore(*actor.plan, next_step_);
    if (actor.machine.RaiseLimit(acts)) AddReady(actor);
    if (actor.machine.done()) --num_unfinished_;
  }
  next_step_ += steps;
}

absl::Status RankExecutor::RunUntilIdle(const std::atomic<bool>& stop) {
  while (fault_.ok() && !stop.load(std::memory_order_relaxed)) {
    if (has_edges_) {
      absl::StatusOr<int64_t> num_messages = endpoint_->Poll(this);
      if (!num_messages.ok()) {
        Fault(num_messages.status());
        break;
      }
      if (*num_messages == 0 && ready_.empty() && num_running_ == 0) break;
    }
    if (num_running_ > 0) CollectCompletions();
    if (!ready_.empty() && device_has_room()) {
      Start(actors_[actor_at_place_[ready_.First()]]);
    } else if (!has_edges_ && num_running_ == 0) {
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

// Finds the place of the next act of an actor with turns; whether it is its turn in its stream.
bool RankExecutor::TakesPlace(ActorRuntime& actor) const {
  if (actor.stream >= 0 && streams_[actor.stream].actor() != actor.machine.id().value()) return false;
  if (actor.places != nullptr) actor.place = actor.places[actor.micro_batch];
  return true;
}

void RankExecutor::CollectCompletions() {
  while (num_running_ > 0 && device_->TakeCompletion()) {
    ActorRuntime& actor = actors_[running_[running_head_]];
    running_head_ = running_head_ + 1 == static_cast<int>(running_.size()) ? 0 : running_head_ + 1;
    --num_running_;
    Finish(actor);
  }
}

void RankExecutor::Start(ActorRuntime& actor) {
  ready_.Remove(actor.place);
  effects_.clear();
  actor.machine.Start(&effects_);
  if (actor.stream >= 0) PassTurn(streams_[actor.stream]);
  if (actor.rebinds) BindSlots(actor);
  if (kPlantsBugs) PerformTooEarly(actor);
  if (options_.clock != nullptr) now_ = Now();
  actor.start_ticks = now_;
  if (num_running_ == 0) ShowAct(actor);
  if (actor.measured) actor.start_cpu_ns = ThreadCpuNs();
  if (device_->Launch({&RunBody, &actor, actor.cost_ns}) == Device::Launched::kCompleted) {
    Finish(actor);
    return;
  }
  const int at = running_head_ + num_running_++;
  running_[at % running_.size()] = actor.machine.id().value();
}

// For planted bugs only: some effects of the act that begins, before it has ended.
void RankExecutor::PerformTooEarly(const ActorRuntime& actor) {
  if (!Planted(PlantedBug::kCreditBeforeReadDone) && !Planted(PlantedBug::kTokenBeforeActEnds)) return;
  ActorMachine ahead = actor.machine;
  effects_.clear();
  ahead.OnActDone(&effects_);
  Perform(actor);
}

// The device runs what it is given in that order, so the next may be given to it at once.
void RankExecutor::PassTurn(Stream& stream) {
  stream.Advance();
  ActorRuntime& next = actors_[stream.actor()];
  if (next.machine.ready()) AddReady(next);
}

void RankExecutor::BindSlots(ActorRuntime& actor) {
  const ActorMachine& machine = actor.machine;
  const bool first = machine.acts_done() == 0;  // perhaps in the midst of a span
  // Nearly all ports have one token, which is bound without calls and loops: that is much of what a hop costs.
  for (int i = 0; i < machine.num_inputs(); ++i) {
    const ActorMachine::Port& port = machine.input(i);
    if ((port.position != 0 && !first) || port.slots == port.tokens) continue;
    if (port.tokens == 1) {
      actor.program->BindInput(i, 0, registers_[port.register_id].addresses[port.held_slot]);
    } else {
      BindPort(actor, port, i, &BoundProgram::BindInput);
    }
  }
  for (int i = 0; i < machine.num_outputs(); ++i) {
    const ActorMachine::Port& port = machine.output(i);
    if (port.period > 1) actor.program->SetPosition(i, port.position);
    if ((port.position != 0 && !first) || port.slots == port.tokens) continue;
    if (port.tokens == 1) {
      actor.program->BindOutput(i, 0, registers_[port.register_id].addresses[port.held_slot]);
    } else {
      BindPort(actor, port, i, &BoundProgram::BindOutput);
    }
    if (Planted(PlantedBug::kBindsFirstSlot)) {
      actor.program->BindOutput(i, 0, registers_[port.register_id].addresses[0]);
    }
  }
  if (Planted(PlantedBug::kArrivalOrder) && machine.num_inputs() > 1) {
    const ActorMachine::Port& a = machine.input(0);
    const ActorMachine::Port& b = machine.input(1);
    if (registers_[a.register_id].bytes != registers_[b.register_id].bytes) return;
    const bool b_came_last = machine.last_cause().register_id == b.register_id;
    actor.program->BindInput(b_came_last ? 0 : 1, 0, registers_[a.register_id].addresses[a.held_slot]);
    actor.program->BindInput(b_came_last ? 1 : 0, 0, registers_[b.register_id].addresses[b.held_slot]);
  }
}

void RankExecutor::Watch(FiniteWatch* watch, int64_t step_shift) {
  watch_ = watch;
  step_shift_ = step_shift;
  for (ActorRuntime& actor : actors_) actor.step += step_shift;
  for (size_t i = 0; i < plan_->states.size(); ++i) watch->LookAtState(plan_->states[i], StateMemory(static_cast<int>(i)).data());
}

void RankExecutor::Unwatch() {
  for (ActorRuntime& actor : actors_) actor.step -= step_shift_;
  watch_ = nullptr;
  step_shift_ = 0;
}

void RankExecutor::RunBody(void* context) {
  ActorRuntime& actor = *static_cast<ActorRuntime*>(context);
  RankExecutor& self = *actor.owner;
  if (self.watch_ != nullptr) self.watch_->BeginAct(*actor.plan, actor.machine.acts_done(), actor.micro_batch, actor.chunk);
  if (actor.program != nullptr) {
    if (self.watch_ != nullptr) {
      actor.program->RunWatched(actor.step, actor.micro_batch, actor.chunk, self.watch_);
    } else if (self.options_.on_kernels) {
      actor.program->RunTimed(actor.step, actor.micro_batch, actor.chunk, &self.kernel_ns_);
      self.options_.on_kernels(*actor.plan, self.kernel_ns_);
    } else {
      actor.program->Run(actor.step, actor.micro_batch, actor.chunk);
    }
    return;
  }
  if (self.options_.compute == RankExecutorOptions::Compute::kSkip) return;
  if (actor.kind == ActorKind::kSource) {
    const ActorMachine::Port& port = actor.machine.output(0);
    void* const memory = self.registers_[port.register_id].addresses[port.held_slot];
    absl::Status filled = self.options_.feed->Fill(actor.plan->feed, actor.step, actor.micro_batch, actor.plan->feed_slice, memory);
    if (!filled.ok()) {
      self.Fault(absl::Status(filled.code(), absl::StrCat("W0514 rank ", self.plan_->rank, ", actor '", actor.plan->name,
                                                          "', feed '", actor.plan->feed, "': ", filled.message())));
      return;
    }
    if (self.watch_ != nullptr) self.watch_->AfterFeed(memory);
    absl::Status in_range = CheckFed(*self.options_.feed, *actor.plan, actor.step, actor.micro_batch, memory);
    if (!in_range.ok()) self.Fault(At(absl::StrCat("rank ", self.plan_->rank), in_range));
  } else if (actor.kind == ActorKind::kSend && actor.machine.num_inputs() > 0) {
    const ActorMachine::Port& from = actor.machine.input(0);
    const ActorMachine::Port& to = actor.machine.output(0);
    const RegisterRuntime& out = self.registers_[to.register_id];
    if (out.bytes == 0) return;
    std::memcpy(out.addresses[to.held_slot], self.registers_[from.register_id].addresses[from.held_slot], out.bytes);
  } else if (actor.kind == ActorKind::kSink && self.options_.sink != nullptr) {
    const ActorMachine::Port& port = actor.machine.input(0);
    float value = 0;
    std::memcpy(&value, self.registers_[port.register_id].addresses[port.held_slot], sizeof(value));
    self.options_.sink->Report(actor.plan->feed, actor.step, actor.micro_batch, value);
  }
}

void RankExecutor::Finish(ActorRuntime& actor) {
  now_ = Now();
  const WaitCause cause = actor.machine.last_cause();
  effects_.clear();
  const bool ready = actor.machine.OnActDone(&effects_);
  const int64_t bytes_sent = Perform(actor);

  ActRecord& record = trace_.Add();
  record.actor = actor.machine.id().value();
  record.waited_register = cause.register_id;
  record.wait = static_cast<ActRecord::Wait>(cause.kind);
  record.step = actor.step;
  record.micro_batch = actor.micro_batch;
  record.chunk = actor.chunk;
  record.ready = actor.ready_ticks;
  record.start = actor.start_ticks;
  record.end = now_;
  record.bytes_sent = bytes_sent;
  MeasureAct(actor, record);

  shown_.acts.store(shown_.acts.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (num_running_ == 0) {
    shown_.actor.store(-1, std::memory_order_relaxed);
  } else {
    ShowAct(actors_[running_[running_head_]]);
  }

  if (++actor.act_in_step == actor.acts_per_step) {
    actor.act_in_step = actor.micro_batch = actor.chunk = 0;
    actor.step += actor.every;
  } else if (++actor.chunk == actor.chunks || Planted(PlantedBug::kChunkForgotten)) {
    actor.chunk = 0;
    ++actor.micro_batch;
  }
  if (ready) {
    AddReady(actor);
  } else if (actor.machine.done()) {
    --num_unfinished_;
  }
}

// Records how long the act took, and for how much of that time the thread had a core.
void RankExecutor::MeasureAct(ActorRuntime& actor, ActRecord& record) {
  const int64_t ticks = record.end - record.start;
  busy_ticks_ += ticks;
  record.cpu_us = ActRecord::kCpuUnknown;
  if (actor.measured) {
    const int64_t cpu_ns = std::max<int64_t>(0, ThreadCpuNs() - actor.start_cpu_ns);
    measured_ticks_ += ticks;
    cpu_ns_ += cpu_ns;
    record.cpu_us = static_cast<uint32_t>(std::min<int64_t>(cpu_ns / 1000, ActRecord::kCpuUnknown - 1));
  }
  actor.measured = long_act_ticks_ > 0 && ticks >= long_act_ticks_;
}

RankWork RankExecutor::work() const {
  RankWork work{busy_ticks_, 0, measured_ticks_, cpu_ns_};
  for (const ActorRuntime& actor : actors_) work.planned_ns += actor.machine.acts_done() * actor.plan->timing.time_ns;
  return work;
}

// Tokens and credits of the act that has just ended; returns payload bytes sent.
int64_t RankExecutor::Perform(const ActorRuntime& actor) {
  int64_t bytes_sent = 0;
  for (const Effect& effect : effects_) {
    RegisterRuntime& r = registers_[effect.register_id];
    const bool credit = effect.kind == Effect::Kind::kReturnCredit;
    if (kPlantsBugs && actor.machine.running() != Planted(credit ? PlantedBug::kCreditBeforeReadDone
                                                                 : PlantedBug::kTokenBeforeActEnds)) {
      continue;
    }
    if (credit) {
      Release(r, effect.slot);
    } else if (r.side == RegisterSide::kOutbound) {
      bytes_sent += Send(actor, r, effect);
    } else {
      Deliver(r, effect.slot);
    }
  }
  return bytes_sent;
}

void RankExecutor::Deliver(RegisterRuntime& r, int32_t slot) {
  if (r.ledger.Publish(slot) == SlotLedger::Use::kFree) {  // nobody reads it
    ActorRuntime& producer = actors_[r.producer_actor];
    if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
    return;
  }
  ActorRuntime& first = actors_[r.first_consumer.actor];
  if (Planted(PlantedBug::kTokenToldTwice) && first.machine.OnToken(r.first_consumer.port)) AddReady(first);
  if (first.machine.OnToken(r.first_consumer.port)) AddReady(first);
  for (const PortRef& consumer : r.other_consumers) {
    ActorRuntime& actor = actors_[consumer.actor];
    if (actor.machine.OnToken(consumer.port)) AddReady(actor);
  }
}

int64_t RankExecutor::Send(const ActorRuntime& actor, RegisterRuntime& r, const Effect& effect) {
  MessageHeader header;
  header.epoch = options_.epoch;
  header.role = options_.role;
  header.edge = r.edge_id;
  header.slot = effect.slot;
  header.micro_batch = actor.micro_batch;
  header.sequence = effect.number;
  header.step = actor.step;
  header.version = actor.step;
  header.payload_bytes =
      actor.program == nullptr ? r.bytes : actor.program->PayloadBytes(effect.port, actor.chunk, r.bytes);
  ++r.num_outstanding;
  ++num_sent_;
  absl::Status sent = endpoint_->Put(r.edge, header, r.addresses[effect.slot]);
  if (!sent.ok()) Fault(sent);
  return header.payload_bytes;
}

void RankExecutor::Release(RegisterRuntime& r, int32_t slot) {
  if (r.ledger.Release(slot) == SlotLedger::Use::kInUse) return;
  if (Planted(PlantedBug::kCreditNeverSent) && r.slots > 1 && slot == r.slots - 1) return;
  if (r.side == RegisterSide::kLocal) {
    ActorRuntime& producer = actors_[r.producer_actor];
    if (Planted(PlantedBug::kCreditTwice)) producer.machine.OnCredit(r.producer_port);
    if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
    return;
  }
  ++num_sent_;
  const EdgeHandle wrong_edge = static_cast<EdgeHandle>((r.edge + 1) % register_of_edge_.size());
  absl::Status sent = endpoint_->ReturnCredit(Planted(PlantedBug::kCreditToWrongEdge) ? wrong_edge : r.edge, slot);
  if (!sent.ok()) Fault(sent);
}

absl::Status RankExecutor::OnToken(EdgeHandle edge, const MessageHeader& header) {
  now_ = Now();
  RegisterRuntime& r = registers_[register_of_edge_[edge]];
  if (r.side != RegisterSide::kInbound || header.edge != r.edge_id || header.slot != r.expected_slot ||
      header.sequence != r.expected_sequence || header.payload_bytes < 0 || header.payload_bytes > r.bytes ||
      header.codec_version != 0 || header.epoch != options_.epoch || header.role != options_.role ||
      !r.ledger.is_free(header.slot)) {
    return absl::DataLossError(Format(
        {"W0510", absl::StrCat("rank ", plan_->rank, ", register '", plan_->registers[register_of_edge_[edge]].name, "'"),
         absl::StrCat("token ", r.expected_sequence, " in slot ", r.expected_slot, " of at most ", r.bytes,
                      " bytes, epoch ", options_.epoch, ", role ", options_.role),
         absl::StrCat("token ", header.sequence, " in slot ", header.slot, " of ", header.payload_bytes,
                      " bytes, epoch ", header.epoch, ", role ", header.role), ""}));
  }
  ++num_received_;
  ++r.expected_sequence;
  r.expected_slot = r.expected_slot + 1 == r.slots ? 0 : r.expected_slot + 1;
  Deliver(r, header.slot);
  return absl::OkStatus();
}

absl::Status RankExecutor::OnCredit(EdgeHandle edge, int32_t slot) {
  now_ = Now();
  RegisterRuntime& r = registers_[register_of_edge_[edge]];
  if (r.side != RegisterSide::kOutbound || slot != r.expected_slot || r.num_outstanding == 0) {
    return absl::DataLossError(Format(
        {"W0511", absl::StrCat("rank ", plan_->rank, ", register '", plan_->registers[register_of_edge_[edge]].name, "'"),
         absl::StrCat("a credit of slot ", r.expected_slot, " with ", r.num_outstanding, " outstanding"),
         absl::StrCat("slot ", slot), ""}));
  }
  ++num_received_;
  --r.num_outstanding;
  r.expected_slot = r.expected_slot + 1 == r.slots ? 0 : r.expected_slot + 1;
  ActorRuntime& producer = actors_[r.producer_actor];
  if (producer.machine.OnCredit(r.producer_port)) AddReady(producer);
  return absl::OkStatus();
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
    const int32_t in_use = spec.side == RegisterSide::kOutbound ? r.num_outstanding : r.ledger.num_in_use();
    const bool steady = plan_->rhythm.steps_per_iteration == 1;  // each step leaves what it found
    const int64_t expected = (steady ? counts_[spec.id] : CountAt(*plan_, spec, next_step_)).in_use();
    if (in_use == expected || (spec.side == RegisterSide::kLocal && spec.consumers.empty())) continue;
    return absl::InternalError(Format({"W0515", absl::StrCat("rank ", plan_->rank, ", register '", spec.name, "'"),
                                       absl::StrCat(expected, " slots in use at rest"), absl::StrCat(in_use),
                                       ""}));
  }
  return absl::OkStatus();
}

}  // namespace weir
