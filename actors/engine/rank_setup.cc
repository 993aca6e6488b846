// A rank made ready to run: its memory, registers, actors and edges.
#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/engine/rank_executor.h"
#include "actors/plan/certificate.h"
#include "runtime/base/alignment.h"
#include "runtime/base/status.h"

namespace weir::actors {
namespace {

// Costs that are not measured on this machine count every act as at least 5 us.
constexpr int64_t kLongActNs = 20'000;

// Returns a bound for the effects of one act: the tokens of all ports of the largest actor, and
// one.
size_t MaxTokens(const Plan& plan) {
  size_t most = 0;
  for (const PlanActor& actor : plan.actors) {
    size_t tokens = 0;
    for (const PlanPort& port : actor.inputs) tokens += port.tokens;
    for (const PlanPort& port : actor.outputs) tokens += port.tokens;
    most = std::max(most, tokens);
  }
  return most;
}

// The number of the token that lies in slot 0 first. Remote registers are numbered anew in each
// session, so that the tokens that are there lie in the first slots.
int64_t FirstNumber(const PlanRegister& r, const RegisterCount& count) {
  return r.side == RegisterSide::kLocal ? 0 : count.released;
}

TimePart WorkOf(ActorPhase phase) {
  if (phase == ActorPhase::kBoxing) return TimePart::kCommunication;
  return phase == ActorPhase::kData ? TimePart::kData : TimePart::kCompute;
}

// Staging slots start on a cache line each.
int64_t StagingStride(const PlanRegister& r) { return AlignUp(r.bytes); }

// Returns the distance between the starts of two inbound registers that lie together.
int64_t LandingBytes(const PlanRegister& r) {
  return r.bytes == 0 ? 0 : (r.slots - 1) * r.stride + AlignUp(r.bytes);
}

// Lets the queue of an actor's acts keep their kernels as a graph, if the plan wants so.
void KeepAsGraph(const Plan& plan, const PlanActor& actor, device::DeviceQueue& queue,
                 BoundProgram* program) {
  using Chains = device::DeviceQueue::Chains;
  if (actor.kind == ActorKind::kCollective ||
      !IsGraph(plan.graphs, program->num_kernels(), actor.timing.time_ns))
    return;
  program->KeepIn(queue.MakeChain(plan.graphs == GraphUse::kOn ? Chains::kMust : Chains::kMay));
}

// Returns how many acts of collectives the device takes beside the plan's depth.
int NumJointMax(const Plan& plan, const RankExecutorOptions& options) {
  const CollectiveMeans* const means = options.collectives;
  return means == nullptr || means->library == nullptr ? 0 : NumCollectivesInFlight(plan);
}

}  // namespace

RankExecutor::RankExecutor(const Plan* plan, device::Device* device,
                           transport::TransportEndpoint* endpoint, RankExecutorOptions options)
    : plan_(plan),
      device_(device),
      endpoint_(endpoint),
      options_(std::move(options)),
      next_step_(options_.first_step),
      ready_(0),
      effects_(MaxTokens(*plan)),
      depth_(device->depth() - NumJointMax(*plan, options_)),
      num_queues_(device->num_queues()),
      has_joint_queue_(NumJointMax(*plan, options_) > 0),
      positions_(num_queues_, 0),
      awaited_(num_queues_),
      num_done_(num_queues_, 0),
      queue_clock_(num_queues_),
      account_(depth_ > 1 ? num_queues_ : 1,
               depth_ > 1 ? StepAccount::TakesAhead::kYes : StepAccount::TakesAhead::kNo),
      made_ns_(MonotonicClock().NowNs()),
      made_ticks_(TickClock::Now()),
      trace_(options_.trace_capacity),
      recorded_until_(num_queues_, 0) {
  flights_.reserve(num_queues_);
  for (int queue = 0; queue < num_queues_; ++queue)
    flights_.emplace_back(device->depth(), num_queues_, MaxTokens(*plan));
  counts_.reserve(plan->registers.size());
  for (const PlanRegister& r : plan->registers)
    counts_.push_back(CountAt(*plan, r, options_.first_step));
}

absl::StatusOr<std::unique_ptr<RankExecutor>> RankExecutor::Create(
    const Plan* plan, device::Device* device, transport::TransportEndpoint* endpoint,
    RankExecutorOptions options) {
  std::unique_ptr<RankExecutor> executor(
      new RankExecutor(plan, device, endpoint, std::move(options)));
  WEIR_RETURN_IF_ERROR(executor->CheckBegin());
  WEIR_RETURN_IF_ERROR(executor->MakeMemory());
  WEIR_RETURN_IF_ERROR(executor->MakeRegisters());
  WEIR_RETURN_IF_ERROR(executor->MakeActors());
  return executor;
}

absl::Status RankExecutor::MakeMemory() {
  if (options_.compute == RankExecutorOptions::Compute::kSkip) return absl::OkStatus();
  const int num_threads = device_->team() != nullptr ? device_->team()->num_threads() : 1;
  WEIR_ASSIGN_OR_RETURN(kernels_, KernelSet::Create(*plan_, device_->kind(), num_threads));
  device::DeviceMemory& memory = device_->memory();
  WEIR_ASSIGN_OR_RETURN(arena_,
                        memory.Allocate(plan_->arena_bytes, device::DeviceMemory::Reach::kDevice));
  WEIR_ASSIGN_OR_RETURN(workspace_, memory.Allocate(kernels_.workspace_bytes(),
                                                    device::DeviceMemory::Reach::kDevice));
  places_ = {arena_.base(), options_.shared, options_.owner_arena};
  char* workspace = workspace_.base();
  for (const QueueId queue : IdRange<QueueId>(plan_->num_queues)) {
    const int64_t bytes = kernels_.workspace_bytes(queue);
    launches_.push_back(
        {device_->team(), bytes == 0 ? nullptr : workspace, &device_->queue(QueueOfDevice(queue))});
    if (bytes > 0) workspace += bytes;
  }
  memory_.arena_bytes = plan_->arena_bytes;
  memory_.scratch_bytes = plan_->scratch_bytes;
  memory_.workspace_bytes = workspace_.bytes();
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
  if (landing == nullptr) {
    if (device_->memory().host_visible()) return nullptr;
    // The transport writes as the host does, so it cannot reach the arena.
    WEIR_ASSIGN_OR_RETURN(landing_,
                          device_->memory().Allocate(bytes, device::DeviceMemory::Reach::kShared));
    landing = landing_.base();
  } else {
    WEIR_ASSIGN_OR_RETURN(landing_, device_->memory().Adopt(landing, bytes));
  }
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
    if (spec.side == RegisterSide::kLocal && num_queues_ > 1) {
      r.written.assign(spec.slots, 0);
      r.read.assign(int64_t{spec.slots} * num_queues_, 0);
    }
    r.addresses.assign(spec.slots, nullptr);
    if (spec.side != RegisterSide::kOutbound && arena_.base() != nullptr) {
      const bool lands = spec.side == RegisterSide::kInbound && landing != nullptr;
      char* first = lands ? landing : arena_.base() + spec.arena_offset;
      for (int32_t k = 0; k < spec.slots; ++k) {
        // A register without bytes may lie anywhere, since it is never touched; a shared one is
        // read state by state.
        const bool is_elsewhere = options_.shared != nullptr && options_.shared->Has(spec.id);
        r.addresses[k] = spec.bytes == 0 || is_elsewhere ? arena_.base() : first + k * spec.stride;
        // The arena is zero from the start.
        if (lands && k < count.in_use()) device_->memory().Zero(r.addresses[k], spec.bytes);
      }
      if (lands) landing += LandingBytes(spec);
    }
    if (spec.side != RegisterSide::kLocal) WEIR_RETURN_IF_ERROR(AddEdge(spec, r));
  }
  return absl::OkStatus();
}

absl::Status RankExecutor::AddEdge(const PlanRegister& spec, RegisterRuntime& r) {
  has_edges_ = true;
  transport::TransportEdge edge;
  const bool out = spec.side == RegisterSide::kOutbound;
  edge.direction = out ? transport::TransportEdge::Direction::kOutgoing
                       : transport::TransportEdge::Direction::kIncoming;
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
  register_of_edge_.resize(std::max<size_t>(register_of_edge_.size(), r.edge.value() + 1));
  register_of_edge_[r.edge] = spec.id;
  return absl::OkStatus();
}

// One fixed order of all that can be ready: by priority, precedence, id.
void RankExecutor::MakePlaces() {
  struct Entry {
    int32_t priority = 0;
    int64_t precedence = 0;
    ActorId actor;
    int32_t micro_batch = -1;  // -1: any
  };
  std::vector<Entry> order;
  for (const PlanActor& spec : plan_->actors) {
    if (spec.precedence.always_same()) {
      order.push_back({spec.priority, spec.precedence.first, spec.id, -1});
      continue;
    }
    for (int32_t k = 0; k < spec.micro_batches_per_step(); ++k)
      order.push_back({spec.priority, spec.precedence.At(k), spec.id, k});
  }
  std::sort(order.begin(), order.end(), [](const Entry& a, const Entry& b) {
    return std::tie(b.priority, a.precedence, a.actor, a.micro_batch) <
           std::tie(a.priority, b.precedence, b.actor, b.micro_batch);
  });
  IdVector<ActorId, size_t> first_place(plan_->actors.size(), 0);
  size_t num_places = 0;
  for (const PlanActor& spec : plan_->actors) {
    first_place[spec.id] = num_places;
    if (!spec.precedence.always_same()) num_places += spec.micro_batches_per_step();
  }
  micro_batch_places_.resize(num_places);
  actor_at_place_.resize(order.size());
  ready_ = ReadySet(static_cast<int>(order.size()));
  for (size_t place = 0; place < order.size(); ++place) {
    const Entry& entry = order[place];
    ActorRuntime& actor = actors_[entry.actor];
    actor_at_place_[place] = entry.actor;
    if (entry.micro_batch < 0) {
      actor.place = static_cast<int32_t>(place);
    } else {
      actor.places = &micro_batch_places_[first_place[entry.actor]];
      actor.in_order = true;
      micro_batch_places_[first_place[entry.actor] + entry.micro_batch] =
          static_cast<int32_t>(place);
    }
  }
}

QueueId RankExecutor::QueueOfDevice(QueueId of_plan) const {
  return QueueId(of_plan.value() % (num_queues_ - (has_joint_queue_ ? 1 : 0)));
}

absl::Status RankExecutor::MakeActors() {
  actors_.reserve(plan_->actors.size());
  const bool compute = options_.compute == RankExecutorOptions::Compute::kRun;
  for (const PlanActor& spec : plan_->actors) {
    ActorRuntime& actor =
        actors_.emplace_back(ActorMachine(spec.id, InputSpecs(spec), OutputSpecs(spec)));
    actor.owner = this;
    actor.plan = &spec;
    actor.acts_per_step = spec.acts_per_step;
    actor.chunks = spec.chunks;
    actor.kind = spec.kind;
    actor.work = WorkOf(spec.phase);
    actor.every = spec.every;
    actor.queue = has_joint_queue_ && spec.kind == ActorKind::kCollective
                      ? QueueId(num_queues_ - 1)
                      : QueueOfDevice(spec.queue);
    actor.act.actor = spec.id;
    actor.act.step = spec.StepOf(spec.ActsBefore(options_.first_step));
    actor.is_long = spec.timing.time_ns >= kLongActNs;
    if (options_.cost_ns) actor.cost_ns = options_.cost_ns(*plan_, spec);
    if (spec.kind == ActorKind::kSource && compute && options_.feed == nullptr) {
      return Rejected({"W0513", absl::StrCat("rank ", plan_->rank, ", actor '", spec.name, "'"),
                       "a data feed", "none", "give the session one"});
    }
    const bool has_program = spec.program.has_value() &&
                             (spec.kind == ActorKind::kCompute || spec.kind == ActorKind::kSend ||
                              spec.kind == ActorKind::kCollective);
    if (has_program && compute) {
      programs_.push_back(std::make_unique<BoundProgram>(*plan_, spec, kernels_, places_));
      actor.program = programs_.back().get();
      KeepAsGraph(*plan_, spec, *launches_[spec.queue].queue, actor.program);
    }
  }
  MakePlaces();
  MakeStreams();
  return MakeCollectives();
}

absl::Status RankExecutor::MakeCollectives() {
  collective_order_ = StartOrder(plan_, options_.first_step);
  for (ActorRuntime& actor : actors_) actor.in_order |= actor.kind == ActorKind::kCollective;
  const CollectiveMeans* const means = options_.collectives;
  if (collective_order_.num_actors() == 0 || means == nullptr) return absl::OkStatus();
  const std::string where = absl::StrCat("rank ", plan_->rank);
  if (means->library != nullptr) {
    absl::StatusOr<std::unique_ptr<StreamCollectives>> made =
        StreamCollectives::Create(plan_, device_,
                                  {.library = means->library,
                                   .exchange = means->exchange,
                                   .epoch = options_.epoch,
                                   .role = options_.role,
                                   .queue = QueueId(num_queues_ - 1)});
    if (!made.ok()) return At(where, made.status());
    groups_ = *std::move(made);
    return absl::OkStatus();
  }
  meetings_.reserve(collective_order_.num_actors());
  absl::StatusOr<std::unique_ptr<RankCollectives>> made =
      RankCollectives::Create(plan_, means->polled, [this] {
        if (meeting_hook_) meeting_hook_();
      });
  if (!made.ok()) return At(where, made.status());
  collectives_ = *std::move(made);
  return absl::OkStatus();
}

// Returns the ports as they are when all steps before the first step are done.
std::vector<PortSpec> RankExecutor::InputSpecs(const PlanActor& actor) const {
  const int64_t acts = actor.ActsBefore(options_.first_step);
  std::vector<PortSpec> specs;
  for (const PlanPort& port : actor.inputs) {
    const RegisterCount& count = counts_[port.register_id];
    PortSpec& spec = specs.emplace_back(SpanSpec(port, acts));
    spec.available = static_cast<int32_t>(count.published - port.TokensTaken(acts));
    spec.next_token =
        port.TokensTaken(acts) - FirstNumber(plan_->registers[port.register_id], count);
  }
  return specs;
}

std::vector<PortSpec> RankExecutor::OutputSpecs(const PlanActor& actor) const {
  const int64_t acts = actor.ActsBefore(options_.first_step);
  std::vector<PortSpec> specs;
  for (const PlanPort& port : actor.outputs) {
    const PlanRegister& r = plan_->registers[port.register_id];
    const RegisterCount& count = counts_[port.register_id];
    PortSpec& spec = specs.emplace_back(SpanSpec(port, acts));
    spec.available =
        static_cast<int32_t>(r.slots - r.initial_tokens + count.released - count.taken);
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
  if (port.Begun(acts) > port.Ended(acts)) spec.span = PortSpec::Span::kBegun;
  return spec;
}

void RankExecutor::MakeStreams() {
  streams_.reserve(plan_->streams.size());
  for (const PlanStream& plan : plan_->streams) {
    const StreamId id = streams_.next_id();
    TurnOrder& stream = streams_.emplace_back();
    stream.plan = &plan;
    stream.acts_per_step = plan_->actors[plan.entries[0].actor].acts_per_step;
    for (const PlanStream::Entry& entry : plan.entries) {
      stream.lead = std::max(stream.lead, entry.ahead);
      actors_[entry.actor].stream = id;
      actors_[entry.actor].in_order = true;
    }
    stream.round = -stream.lead;
    stream.Seek();
  }
}

// Refuses a first step in the middle of a span: tokens that earlier steps left in registers are
// lost unless a state keeps them.
absl::Status RankExecutor::CheckBegin() const {
  if (options_.first_step == 0) return absl::OkStatus();
  for (const PlanRegister& r : plan_->registers) {
    if (!r.producer.actor.has_value() || r.side != RegisterSide::kLocal) continue;
    const PlanActor& actor = plan_->actors[r.producer.actor];
    const PlanPort& port = actor.outputs[r.producer.port];
    const int64_t acts = actor.ActsBefore(options_.first_step);
    if (port.Begun(acts) == port.Ended(acts)) continue;
    return Rejected(
        {"W0540", absl::StrCat("rank ", plan_->rank, ", register '", r.name, "'"),
         absl::StrCat("to begin at a step before which '", actor.name,
                      "' has ended what it collects"),
         absl::StrCat("step ", options_.first_step + 1, ", in the midst of ", port.period, " acts"),
         absl::StrCat("begin at a step that a cycle of ", plan_->rhythm.steps_per_iteration,
                      " steps begins with")});
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
    for (int32_t k = 0; k < spec.slots; ++k)
      r.addresses[k] = static_cast<char*>(endpoint_->TryMap(r.edge, k));
    if (r.addresses[0] == nullptr) {
      staged.emplace_back(&r, StagingStride(spec));
      memory_.staging_bytes += StagingStride(spec) * spec.slots;
      continue;
    }
    for (char* slot : r.addresses) {
      WEIR_ASSIGN_OR_RETURN(mapped_.emplace_back(), device_->memory().Adopt(slot, spec.bytes));
    }
  }
  WEIR_ASSIGN_OR_RETURN(staging_, device_->memory().Allocate(memory_.staging_bytes,
                                                             device::DeviceMemory::Reach::kShared));
  char* next = staging_.base();
  for (auto& [r, stride] : staged) {
    for (char*& address : r->addresses) {
      address = next;
      next += stride;
    }
  }
  BindConstantSlots();
  if (!options_.state_init) return absl::OkStatus();
  for (const StateId id : plan_->states.ids()) {
    const PlanState& state = plan_->states[id];
    if (options_.shared != nullptr && options_.shared->Has(id)) continue;  // its owner has done so
    if (state.init.kind == PlanInitializer::Kind::kZeros)
      continue;  // as the arena is from the start
    WEIR_RETURN_IF_ERROR(
        FillState(id, [&](char* host) { return options_.state_init(state, host); }));
  }
  return absl::OkStatus();
}

// Finds the registers whose tokens may be shorter than their slots: those that other ranks write,
// and those of kernels that pack. Tokens that exist before the first step are whole.
void RankExecutor::FindSizedTokens() {
  for (RegisterRuntime& r : registers_) {
    const BoundProgram* maker =
        r.producer_actor.has_value() ? actors_[r.producer_actor].program : nullptr;
    r.is_sized =
        r.side == RegisterSide::kInbound || (r.side == RegisterSide::kLocal && maker != nullptr &&
                                             maker->MakesShortTokens(r.producer_port));
    if (r.is_sized) r.token_bytes.assign(r.slots, r.bytes);
  }
}

// Ports that take all slots of their register each time are bound once and for all.
void RankExecutor::BindConstantSlots() {
  FindSizedTokens();
  for (ActorRuntime& actor : actors_) {
    if (actor.program == nullptr) continue;
    const ActorMachine& machine = actor.machine;
    SizedPorts sized;
    for (int i = 0; i < machine.num_inputs(); ++i) {
      BindPort(actor, machine.input(i), i, &BoundProgram::BindInput);
      const ActorMachine::Port& port = machine.input(i);
      const bool reads = actor.program->ReadsInput(i, port.tokens);
      actor.rebinds |= port.slots > port.tokens && reads;
      if (registers_[port.register_id].is_sized && reads) sized.inputs.push_back(i);
    }
    for (int i = 0; i < machine.num_outputs(); ++i) {
      BindPort(actor, machine.output(i), i, &BoundProgram::BindOutput);
      const ActorMachine::Port& port = machine.output(i);
      actor.rebinds |= (port.slots > port.tokens && actor.program->WritesOutput(i, port.tokens)) ||
                       actor.program->Collects(i);
      if (registers_[port.register_id].is_sized) sized.outputs.push_back(i);
    }
    if (sized.inputs.empty() && sized.outputs.empty()) continue;
    actor.sized_ports = std::make_shared<const SizedPorts>(std::move(sized));
    actor.rebinds = true;
  }
}

}  // namespace weir::actors
