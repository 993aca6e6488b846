#include "actors/plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "actors/plan_rates.h"
#include "runtime/base/status.h"

namespace weir {
namespace {

// Stated bounds, so that no size from a file is trusted before it is compared.
constexpr int64_t kBytesMax = int64_t{1} << 46;
constexpr int64_t kElementsMax = int64_t{1} << 46;
constexpr int kActorsMax = 1 << 20;
constexpr int kRegistersMax = 1 << 20;
constexpr int kStatesMax = 1 << 20;
constexpr int kProgramsMax = 1 << 20;
constexpr int kPortsMax = 1 << 16;
constexpr int kTensorRankMax = 16;
constexpr int kRanksMax = 1 << 20;
constexpr int64_t kSlotsMax = 1 << 16;
constexpr int64_t kSlotsTotalMax = 1 << 24;
constexpr int64_t kActsPerStepMax = 1 << 24;
constexpr int64_t kTurnMax = int64_t{1} << 32;   // with any number of acts no turn overflows
constexpr int64_t kTurnsMax = int64_t{1} << 22;  // of all actors together
constexpr int64_t kActsPerIterationMax = 1 << 26;
constexpr int64_t kStepsPerIterationMax = 1 << 10;
constexpr int64_t kTimeMax = int64_t{1} << 46;  // ns, 19 hours
constexpr int64_t kActTimesMax = 1 << 24;       // of all actors, one by one
constexpr int64_t kStreamActsMax = 1 << 24;

// Says where an error is; asked only if there is one, since there are many operands.
using Where = absl::FunctionRef<std::string()>;

// Builds one Plan; holds what is known about it so far.
class PlanReader {
 public:
  explicit PlanReader(const RankPlan& proto) : proto_(proto) {}

  absl::StatusOr<Plan> Read() {
    WEIR_RETURN_IF_ERROR(ReadHeader());
    for (int i = 0; i < proto_.program_size(); ++i) WEIR_RETURN_IF_ERROR(ReadProgram(i));
    for (int i = 0; i < proto_.state_size(); ++i) WEIR_RETURN_IF_ERROR(ReadState(i));
    for (int i = 0; i < proto_.registers_size(); ++i) WEIR_RETURN_IF_ERROR(ReadRegister(i));
    for (int i = 0; i < proto_.actor_size(); ++i) WEIR_RETURN_IF_ERROR(ReadActor(i));
    for (const PlanRegister& r : plan_.registers) {
      WEIR_RETURN_IF_ERROR(CheckEnds(r));
      WEIR_RETURN_IF_ERROR(CheckStepsEnd(r));
    }
    WEIR_RETURN_IF_ERROR(CheckTokenStates());
    for (int i = 0; i < proto_.stream_order_size(); ++i) WEIR_RETURN_IF_ERROR(ReadStream(proto_.stream_order(i)));
    for (const PlanActor& a : plan_.actors) WEIR_RETURN_IF_ERROR(CheckOperands(a));
    return std::move(plan_);
  }

 private:
  absl::Status Bad(const char* code, const std::string& where, const std::string& expected,
                   const std::string& found) const {
    return Rejected({code, absl::StrCat("plan of rank ", proto_.rank(), where.empty() ? "" : ", ", where), expected,
                     found, ""});
  }
  absl::Status Bad(const char* code, Where where, const std::string& expected, const std::string& found) const {
    return Bad(code, where(), expected, found);
  }
  absl::Status Count(const char* what, int64_t found, int64_t max) const {
    if (found <= max) return absl::OkStatus();
    return Bad("W0501", "", absl::StrCat("at most ", max, " ", what), absl::StrCat(found));
  }

  absl::Status ReadHeader();
  absl::Status ReadSlice(const TensorSliceProto& in, const char* code, Where where, TensorSlice* out);
  absl::Status ReadProgram(int index);
  absl::Status ReadCall(const KernelCall& in, const PlanProgram& program, PlanCall* out);
  absl::Status ReadOperand(const Operand& in, Where where, PlanOperand* out);
  absl::Status ReadState(int index);
  absl::Status ReadRegister(int index);
  absl::Status CheckMemory(const PlanRegister& r, const std::string& where);
  absl::Status ReadActor(int index);
  absl::Status ReadTurn(const ActorSpec& in, const std::string& where, PlanActor* out);
  absl::Status ReadRhythm();
  template <typename Spec>
  absl::Status ReadRate(const Spec& in, Where where, PlanRate* out) const;
  template <typename Spec>
  absl::Status ReadSpan(const Spec& in, const PlanRate& rate, const PlanRegister& r, Where where, PlanPort* out) const;
  absl::Status ReadTiming(const ActorTiming& in, const PlanRate& rate, Where where, PlanTiming* out);
  absl::Status ReadFar(const RegisterSpec& in, Where where, PlanRegister* out);
  absl::Status ReadStream(const StreamOrder& in);
  absl::Status CheckStepsEnd(const PlanRegister& r) const;
  absl::Status CheckTokenStates() const;
  absl::Status ReadPorts(const ActorSpec& in, const std::string& where, PlanActor* out);
  absl::Status CheckRegisterId(int64_t register_id, Where where) const;
  absl::Status CheckKind(const ActorSpec& in, const std::string& where, PlanActor* out);
  absl::Status CheckEnds(const PlanRegister& r) const;
  absl::Status CheckOperands(const PlanActor& actor) const;
  absl::Status CheckOperand(const PlanActor& actor, const PlanOperand& operand, const PlanProgram& program,
                            Where where) const;

  const RankPlan& proto_;
  Plan plan_;
  int64_t num_turns_ = 0;  // of actors so far
  int64_t slots_total_ = 0;
  int64_t act_times_total_ = 0;
  std::vector<bool> streamed_;  // actors that have a stream
};

std::string RegisterText(const PlanRegister& r) { return absl::StrCat("register ", r.id, " '", r.name, "'"); }
std::string ActorText(const PlanActor& a) { return absl::StrCat("actor ", a.id, " '", a.name, "'"); }

absl::Status PlanReader::ReadHeader() {
  if (proto_.num_ranks() < 1 || proto_.num_ranks() > kRanksMax) {
    return Bad("W0501", "num_ranks", absl::StrCat("1 to ", kRanksMax), absl::StrCat(proto_.num_ranks()));
  }
  if (proto_.rank() < 0 || proto_.rank() >= proto_.num_ranks()) {
    return Bad("W0501", "rank", absl::StrCat("0 to ", proto_.num_ranks() - 1), absl::StrCat(proto_.rank()));
  }
  if (proto_.arena_bytes() < 0 || proto_.arena_bytes() > kBytesMax) {
    return Bad("W0501", "arena_bytes", absl::StrCat("0 to ", kBytesMax), absl::StrCat(proto_.arena_bytes()));
  }
  if (proto_.scratch_bytes() < 0 || proto_.scratch_bytes() > proto_.arena_bytes()) {
    return Bad("W0501", "scratch_bytes", absl::StrCat("0 to arena_bytes = ", proto_.arena_bytes()),
               absl::StrCat(proto_.scratch_bytes()));
  }
  if (proto_.micro_batches() < 0 || proto_.micro_batches() > kActsPerStepMax) {
    return Bad("W0501", "micro_batches", absl::StrCat("1 to ", kActsPerStepMax), absl::StrCat(proto_.micro_batches()));
  }
  if (proto_.num_stages() < 0 || proto_.stage() < 0) {
    return Bad("W0501", "stage", "a stage in range", absl::StrCat(proto_.stage(), " of ", proto_.num_stages()));
  }
  WEIR_RETURN_IF_ERROR(Count("actors", proto_.actor_size(), kActorsMax));
  WEIR_RETURN_IF_ERROR(Count("registers", proto_.registers_size(), kRegistersMax));
  WEIR_RETURN_IF_ERROR(Count("states", proto_.state_size(), kStatesMax));
  WEIR_RETURN_IF_ERROR(Count("programs", proto_.program_size(), kProgramsMax));
  plan_.rank = proto_.rank();
  plan_.num_ranks = proto_.num_ranks();
  plan_.plan_id = proto_.plan_id();
  plan_.seed = proto_.seed();
  plan_.micro_batches = proto_.micro_batches() > 0 ? proto_.micro_batches() : 1;
  plan_.arena_bytes = proto_.arena_bytes();
  plan_.scratch_bytes = proto_.scratch_bytes();
  plan_.device = proto_.device();
  plan_.stage = proto_.stage();
  plan_.num_stages = proto_.num_stages() > 0 ? proto_.num_stages() : 1;
  plan_.schedule = proto_.schedule();
  // For people: nothing hangs on it.
  plan_.predicted_bubble = proto_.predicted_bubble() > 0 && proto_.predicted_bubble() < 1 ? proto_.predicted_bubble() : 0;
  return ReadRhythm();
}

absl::Status PlanReader::ReadRhythm() {
  const PlanCertificate& in = proto_.certificate();
  const auto time = [&](const char* what, int64_t ns) {
    return ns >= 0 && ns <= kTimeMax ? absl::OkStatus()
                                     : Bad("W0508", "certificate", absl::StrCat(what, " from 0 to ", kTimeMax),
                                           absl::StrCat(ns));
  };
  const int64_t steps = std::max<int64_t>(in.steps_per_iteration(), 1);
  if (in.steps_per_iteration() < 0 || steps > kStepsPerIterationMax) {
    return Bad("W0508", "certificate", absl::StrCat("steps_per_iteration from 1 to ", kStepsPerIterationMax),
               absl::StrCat(in.steps_per_iteration()));
  }
  WEIR_RETURN_IF_ERROR(time("iteration_ns", in.iteration_ns()));
  WEIR_RETURN_IF_ERROR(time("step_ns", in.step_ns()));
  WEIR_RETURN_IF_ERROR(time("micro_batch_ns", in.micro_batch_ns()));
  plan_.rhythm = {static_cast<int32_t>(steps), in.iteration_ns(), in.step_ns(), in.micro_batch_ns()};
  return absl::OkStatus();
}

absl::Status PlanReader::ReadSlice(const TensorSliceProto& in, const char* code, Where where, TensorSlice* out) {
  std::optional<DType> dtype = DTypeFromName(in.dtype());
  if (!dtype.has_value()) return Bad(code, where, "a dtype of f32, bf16, i32", absl::StrCat("'", in.dtype(), "'"));
  const int rank = in.shape_size();
  if (rank > kTensorRankMax || (in.offset_size() != 0 && in.offset_size() != rank) ||
      (in.global_shape_size() != 0 && in.global_shape_size() != rank)) {
    return Bad(code, where, absl::StrCat("shape, offset and global_shape of one rank, at most ", kTensorRankMax),
               absl::StrCat("ranks ", rank, ", ", in.offset_size(), ", ", in.global_shape_size()));
  }
  out->dtype = *dtype;
  out->shape.assign(in.shape().begin(), in.shape().end());
  out->global_shape = out->shape;
  if (in.global_shape_size() > 0) out->global_shape.assign(in.global_shape().begin(), in.global_shape().end());
  out->offset.assign(rank, 0);
  if (in.offset_size() > 0) out->offset.assign(in.offset().begin(), in.offset().end());
  for (int i = 0; i < rank; ++i) {
    const int64_t size = out->shape[i], offset = out->offset[i], whole = out->global_shape[i];
    if (size < 0 || offset < 0 || whole < 0 || whole > kElementsMax || size > whole || offset > whole - size) {
      return Bad(code, where, absl::StrCat("axis ", i, " of the shard inside the tensor"),
                 absl::StrCat("size ", size, " at ", offset, " of ", whole));
    }
  }
  const int64_t elements = out->num_elements();
  if (elements < 0 || elements > kElementsMax) {
    return Bad(code, where, absl::StrCat("at most ", kElementsMax, " elements"), ToText(out->shape));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadProgram(int index) {
  const Program& in = proto_.program(index);
  PlanProgram program;
  program.name = in.name();
  program.scratch_bytes = in.scratch_bytes();
  if (in.scratch_bytes() < 0 || in.scratch_bytes() > plan_.scratch_bytes) {
    return Bad("W0502", absl::StrCat("program ", index, " '", in.name(), "'"), absl::StrCat("scratch_bytes from 0 to the plan's ", plan_.scratch_bytes),
               absl::StrCat(in.scratch_bytes()));
  }
  program.calls.resize(in.call_size());
  for (int i = 0; i < in.call_size(); ++i) {
    WEIR_RETURN_IF_ERROR(ReadCall(in.call(i), program, &program.calls[i]));
  }
  plan_.programs.push_back(std::move(program));
  return absl::OkStatus();
}

absl::Status PlanReader::ReadCall(const KernelCall& in, const PlanProgram& program, PlanCall* out) {
  const auto where = [&] {
    return absl::StrCat("program '", program.name, "', call '", in.name(), "' of ", in.op());
  };
  out->op = in.op();
  out->name = in.name();
  out->rng_key = in.rng_key();
  for (const NamedAttr& attr : in.attr()) {
    if (out->attrs.Has(attr.name())) return Bad("W0502", where, "each attribute once", attr.name());
    switch (attr.value().value_case()) {
      case Attr::kI: out->attrs.Set(attr.name(), int64_t{attr.value().i()}); break;
      case Attr::kF: out->attrs.Set(attr.name(), attr.value().f()); break;
      case Attr::kB: out->attrs.Set(attr.name(), attr.value().b()); break;
      case Attr::kS: out->attrs.Set(attr.name(), attr.value().s()); break;
      case Attr::kInts:
        out->attrs.Set(attr.name(), std::vector<int64_t>(attr.value().ints().values().begin(),
                                                         attr.value().ints().values().end()));
        break;
      case Attr::VALUE_NOT_SET: return Bad("W0502", where, absl::StrCat("a value of '", attr.name(), "'"), "none");
    }
  }
  out->inputs.resize(in.input_size());
  out->outputs.resize(in.output_size());
  for (int i = 0; i < in.input_size(); ++i) {
    const auto at = [&] { return absl::StrCat(where(), ", input ", i); };
    WEIR_RETURN_IF_ERROR(ReadOperand(in.input(i), at, &out->inputs[i]));
  }
  for (int i = 0; i < in.output_size(); ++i) {
    const auto at = [&] { return absl::StrCat(where(), ", output ", i); };
    WEIR_RETURN_IF_ERROR(ReadOperand(in.output(i), at, &out->outputs[i]));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadOperand(const Operand& in, Where where, PlanOperand* out) {
  switch (in.place()) {
    case Operand::INPUT: out->place = PlanOperand::Place::kInput; break;
    case Operand::OUTPUT: out->place = PlanOperand::Place::kOutput; break;
    case Operand::SCRATCH: out->place = PlanOperand::Place::kScratch; break;
    case Operand::STATE: out->place = PlanOperand::Place::kState; break;
    case Operand::NONE: return absl::OkStatus();
    default: return Bad("W0502", where, "a known place", absl::StrCat(static_cast<int>(in.place())));
  }
  out->index = in.index();
  out->token = in.token();
  out->byte_offset = in.byte_offset();
  if (in.byte_offset() < 0 || in.byte_offset() > kBytesMax || in.byte_offset() % kOperandAlignment != 0) {
    return Bad("W0502", where, absl::StrCat("a byte_offset that is a multiple of ", kOperandAlignment),
               absl::StrCat(in.byte_offset()));
  }
  return ReadSlice(in.slice(), "W0502", where, &out->slice);
}

absl::Status PlanReader::ReadState(int index) {
  const StateSpec& in = proto_.state(index);
  const std::string where = absl::StrCat("state ", index, " '", in.name(), "'");
  PlanState state;
  state.name = in.name();
  state.layout = in.layout();
  state.owner = in.owner();
  WEIR_RETURN_IF_ERROR(ReadSlice(in.slice(), "W0505", [&] { return where; }, &state.slice));
  const int64_t bytes = state.slice.bytes();
  if (in.arena_offset() < plan_.scratch_bytes || in.arena_offset() > plan_.arena_bytes ||
      bytes > plan_.arena_bytes - in.arena_offset() || in.arena_offset() % kOperandAlignment != 0) {
    return Bad("W0505", where,
               absl::StrCat(bytes, " bytes at a multiple of ", kOperandAlignment, " between the scratch space (",
                            plan_.scratch_bytes, ") and the end of the arena (", plan_.arena_bytes, ")"),
               absl::StrCat("arena_offset ", in.arena_offset()));
  }
  state.arena_offset = in.arena_offset();
  switch (in.init().kind_case()) {
    case Initializer::kOnes: state.init.kind = PlanInitializer::Kind::kOnes; break;
    case Initializer::kNormal:
      state.init = {PlanInitializer::Kind::kNormal, in.init().normal().std(), in.init().normal().mean()};
      break;
    case Initializer::kUniform:
      state.init = {PlanInitializer::Kind::kUniform, in.init().uniform().low(), in.init().uniform().high()};
      break;
    case Initializer::kZeros:
    case Initializer::KIND_NOT_SET: break;
  }
  if (in.has_token()) {
    state.register_id = in.token().register_id();
    state.token = in.token().token();
  }
  plan_.states.push_back(std::move(state));
  return absl::OkStatus();
}

// States that go round with the tokens of a register lie in its slots.
absl::Status PlanReader::CheckTokenStates() const {
  for (int i = 0; i < proto_.state_size(); ++i) {
    if (!proto_.state(i).has_token()) continue;
    const PlanState& state = plan_.states[i];
    const std::string where = absl::StrCat("state ", i, " '", state.name, "'");
    WEIR_RETURN_IF_ERROR(CheckRegisterId(state.register_id, [&] { return where; }));
    const PlanRegister& r = plan_.registers[state.register_id];
    if (r.side != RegisterSide::kLocal || state.token < 0 || state.token >= r.initial_tokens) {
      return Bad("W0505", where, "one of the initial tokens of a local register",
                 absl::StrCat("token ", state.token, " of ", r.initial_tokens, " of the ", Name(r.side), " ", RegisterText(r)));
    }
    const int64_t offset = state.arena_offset - r.arena_offset;
    if (offset < 0 || offset > r.bytes || state.slice.bytes() > r.bytes - offset) {
      return Bad("W0505", where, absl::StrCat("to lie in slot 0 of ", RegisterText(r), ", ", r.bytes, " bytes at ", r.arena_offset),
                 absl::StrCat(state.slice.bytes(), " bytes at ", state.arena_offset));
    }
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadRegister(int index) {
  const RegisterSpec& in = proto_.registers(index);
  PlanRegister r;
  r.id = index;
  r.name = in.name();
  const std::string where = RegisterText(r);
  if (in.id() != index) return Bad("W0504", where, absl::StrCat("dense ids: ", index), absl::StrCat(in.id()));
  if (in.bytes() < 0 || in.bytes() > kBytesMax) {
    return Bad("W0504", where, absl::StrCat("bytes from 0 to ", kBytesMax), absl::StrCat(in.bytes()));
  }
  if (in.slots() < 1 || in.slots() > kSlotsMax) {
    return Bad("W0504", where, absl::StrCat("slots from 1 to ", kSlotsMax), absl::StrCat(in.slots()));
  }
  slots_total_ += in.slots();
  if (slots_total_ > kSlotsTotalMax) {
    return Bad("W0504", where, absl::StrCat("at most ", kSlotsTotalMax, " slots in all"), absl::StrCat(slots_total_));
  }
  if (in.initial_tokens() < 0 || in.initial_tokens() > in.slots()) {
    return Bad("W0504", where, absl::StrCat("initial_tokens from 0 to slots = ", in.slots()),
               absl::StrCat(in.initial_tokens()));
  }
  if (in.tokens_per_step() < 1 || in.tokens_per_step() > kActsPerStepMax) {
    return Bad("W0504", where, absl::StrCat("tokens_per_step from 1 to ", kActsPerStepMax),
               absl::StrCat(in.tokens_per_step()));
  }
  switch (in.side()) {
    case RegisterSpec::LOCAL: r.side = RegisterSide::kLocal; break;
    case RegisterSpec::INBOUND: r.side = RegisterSide::kInbound; break;
    case RegisterSpec::OUTBOUND: r.side = RegisterSide::kOutbound; break;
    default: return Bad("W0504", where, "a known side", absl::StrCat(static_cast<int>(in.side())));
  }
  if (r.side != RegisterSide::kLocal) {
    if (in.peer() < 0 || in.peer() >= plan_.num_ranks || in.peer() == plan_.rank) {
      return Bad("W0504", where, absl::StrCat("a peer among the other ranks of ", plan_.num_ranks),
                 absl::StrCat(in.peer()));
    }
    r.peer = in.peer();
    r.edge = in.edge();
  }
  r.bytes = in.bytes();
  r.slots = in.slots();
  r.initial_tokens = in.initial_tokens();
  r.arena_offset = in.arena_offset();
  r.stride = in.stride();
  r.tokens_per_step = in.tokens_per_step();
  const int64_t every = in.every() == 0 ? 1 : in.every(), steps = plan_.rhythm.steps_per_iteration;
  if (every < 1 || every > steps || steps % every != 0) {
    return Bad("W0504", where, absl::StrCat("an `every` that divides the ", steps, " steps of an iteration"),
               absl::StrCat(in.every()));
  }
  r.every = static_cast<int32_t>(every);
  if (in.latency_ns() < 0 || in.latency_ns() > kTimeMax) {
    return Bad("W0508", where, absl::StrCat("latency_ns from 0 to ", kTimeMax), absl::StrCat(in.latency_ns()));
  }
  r.latency_ns = in.latency_ns();
  WEIR_RETURN_IF_ERROR(ReadFar(in, [&] { return where; }, &r));
  if (r.side != RegisterSide::kOutbound) WEIR_RETURN_IF_ERROR(CheckMemory(r, where));
  plan_.registers.push_back(std::move(r));
  return absl::OkStatus();
}

absl::Status PlanReader::CheckMemory(const PlanRegister& r, const std::string& where) {
  if (r.bytes == 0) return absl::OkStatus();
  if (r.arena_offset % kOperandAlignment != 0 || r.arena_offset < plan_.scratch_bytes ||
      r.arena_offset > plan_.arena_bytes) {
    return Bad("W0504", where,
               absl::StrCat("an arena_offset that is a multiple of ", kOperandAlignment, " from ", plan_.scratch_bytes,
                            " to ", plan_.arena_bytes),
               absl::StrCat(r.arena_offset));
  }
  if (r.slots > 1 && (r.stride < r.bytes || r.stride % kOperandAlignment != 0 || r.stride > kBytesMax)) {
    return Bad("W0504", where, absl::StrCat("a stride of at least ", r.bytes, ", multiple of ", kOperandAlignment),
               absl::StrCat(r.stride));
  }
  const int64_t steps_left = plan_.arena_bytes - r.arena_offset - r.bytes;
  if (steps_left < 0 || (r.slots > 1 && steps_left / (r.slots - 1) < r.stride)) {
    return Bad("W0504", where, absl::StrCat("all slots inside the arena of ", plan_.arena_bytes, " bytes"),
               absl::StrCat(r.slots, " slots of ", r.bytes, " at ", r.arena_offset, " + k * ", r.stride));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadActor(int index) {
  const ActorSpec& in = proto_.actor(index);
  PlanActor actor;
  actor.id = index;
  actor.name = in.name();
  const std::string where = ActorText(actor);
  if (in.id() != index) return Bad("W0503", where, absl::StrCat("dense ids: ", index), absl::StrCat(in.id()));
  if (in.program() < -1 || in.program() >= static_cast<int>(plan_.programs.size())) {
    return Bad("W0503", where, absl::StrCat("a program from -1 to ", static_cast<int64_t>(plan_.programs.size()) - 1),
               absl::StrCat(in.program()));
  }
  actor.program = in.program();
  actor.priority = in.priority();
  actor.instance = in.instance();
  actor.feed = in.feed();
  actor.function = in.function();
  if (in.phase() >= ActorSpec::NO_PHASE && in.phase() <= ActorSpec::WEIGHT_GRADIENT) {
    actor.phase = static_cast<ActorPhase>(in.phase());
  }
  WEIR_RETURN_IF_ERROR(ReadRate(in, [&] { return where; }, &actor));
  WEIR_RETURN_IF_ERROR(ReadTurn(in, where, &actor));
  WEIR_RETURN_IF_ERROR(ReadTiming(in.timing(), actor, [&] { return where; }, &actor.timing));
  WEIR_RETURN_IF_ERROR(ReadPorts(in, where, &actor));
  for (int32_t state : in.state()) {
    if (state < 0 || state >= static_cast<int>(plan_.states.size())) {
      return Bad("W0503", where, absl::StrCat("states of this rank (", plan_.states.size(), ")"), absl::StrCat(state));
    }
    actor.states.push_back(state);
  }
  WEIR_RETURN_IF_ERROR(CheckKind(in, where, &actor));
  plan_.actors.push_back(std::move(actor));
  return absl::OkStatus();
}

// Of an actor here or at the far end of a register: both messages name these fields alike.
template <typename Spec>
absl::Status PlanReader::ReadRate(const Spec& in, Where where, PlanRate* out) const {
  if (in.acts_per_step() < 1 || in.acts_per_step() > kActsPerStepMax) {
    return Bad("W0503", where, absl::StrCat("acts_per_step from 1 to ", kActsPerStepMax),
               absl::StrCat(in.acts_per_step()));
  }
  const int64_t chunks = in.chunks() == 0 ? 1 : in.chunks();
  if (chunks < 1 || in.acts_per_step() % chunks != 0) {
    return Bad("W0503", where, absl::StrCat("chunks that divide acts_per_step = ", in.acts_per_step()),
               absl::StrCat(in.chunks()));
  }
  const int64_t every = in.every() == 0 ? 1 : in.every(), steps = plan_.rhythm.steps_per_iteration;
  if (every < 1 || every > steps || steps % every != 0) {
    return Bad("W0503", where, absl::StrCat("an `every` that divides the ", steps, " steps of an iteration"),
               absl::StrCat(in.every()));
  }
  if (in.every_phase() < 0 || in.every_phase() >= every) {
    return Bad("W0503", where, absl::StrCat("an every_phase from 0 to ", every - 1), absl::StrCat(in.every_phase()));
  }
  if (in.acts_per_step() * (steps / every) > kActsPerIterationMax) {
    return Bad("W0503", where, absl::StrCat("at most ", kActsPerIterationMax, " acts in the ", steps, " steps of an iteration"),
               absl::StrCat(in.acts_per_step() * (steps / every)));
  }
  out->acts_per_step = static_cast<int32_t>(in.acts_per_step());
  out->chunks = static_cast<int32_t>(chunks);
  out->every = static_cast<int32_t>(every);
  out->every_phase = static_cast<int32_t>(in.every_phase());
  return absl::OkStatus();
}

absl::Status PlanReader::ReadTurn(const ActorSpec& in, const std::string& where, PlanActor* out) {
  if (!in.has_turn()) return absl::OkStatus();
  const ActorSpec::Turn& turn = in.turn();
  auto in_range = [](int64_t value) { return value >= 0 && value <= kTurnMax; };
  if (std::abs(static_cast<double>(turn.first())) > static_cast<double>(kTurnMax) || !in_range(turn.group_stride()) ||
      !in_range(turn.stride()) || !in_range(turn.group()) || turn.group() == 0) {
    return Bad("W0503", where, absl::StrCat("a turn with a group from 1 and numbers up to ", kTurnMax),
               absl::StrCat(turn.first(), ", ", turn.group(), ", ", turn.group_stride(), ", ", turn.stride()));
  }
  out->turn = {turn.first(), turn.group(), turn.group_stride(), turn.stride()};
  if (out->turn.always_same()) return absl::OkStatus();
  num_turns_ += out->acts_per_step / out->chunks;
  if (num_turns_ > kTurnsMax) {
    return Bad("W0503", where, absl::StrCat("at most ", kTurnsMax, " micro-batches of actors with turns together"), absl::StrCat(num_turns_));
  }
  return absl::OkStatus();
}

// The spans of a port of register `r`; out->register_id stays.
template <typename Spec>
absl::Status PlanReader::ReadSpan(const Spec& in, const PlanRate& rate, const PlanRegister& r, Where where,
                                  PlanPort* out) const {
  const int64_t acts = ActsPerIteration(rate, plan_.rhythm), period = in.period();
  if (period < 1 || period > acts || acts % period != 0) {
    return Bad("W0503", where,
               plan_.rhythm.steps_per_iteration == 1
                   ? absl::StrCat("a period that divides acts_per_step = ", acts)
                   : absl::StrCat("a period that divides the ", acts, " acts of an iteration of ",
                                  plan_.rhythm.steps_per_iteration, " steps"),
               absl::StrCat(period));
  }
  if (in.phase() < 0 || in.phase() >= period) {
    return Bad("W0503", where, absl::StrCat("a phase from 0 to ", period - 1), absl::StrCat(in.phase()));
  }
  const int64_t tokens = in.tokens() == 0 ? 1 : in.tokens();
  if (tokens < 1 || tokens > r.slots) {
    return Bad("W0503", where, absl::StrCat("tokens from 1 to the ", r.slots, " slots of ", RegisterText(r)),
               absl::StrCat(in.tokens()));
  }
  const int64_t of_port = acts / period * tokens;
  const int64_t of_register = r.tokens_per_step * (plan_.rhythm.steps_per_iteration / r.every);
  if (of_port != of_register) {
    if (plan_.rhythm.steps_per_iteration == 1) {
      return Bad("W0503", where, absl::StrCat(of_register, " tokens per step, as ", RegisterText(r), " says"),
                 absl::StrCat(of_port));
    }
    return Bad("W0503", where,
               absl::StrCat(of_register, " tokens in ", plan_.rhythm.steps_per_iteration, " steps, as ", RegisterText(r),
                            " says"),
               absl::StrCat(of_port));
  }
  out->period = static_cast<int32_t>(period);
  out->phase = static_cast<int32_t>(in.phase());
  out->tokens = static_cast<int32_t>(tokens);
  return absl::OkStatus();
}

absl::Status PlanReader::ReadTiming(const ActorTiming& in, const PlanRate& rate, Where where, PlanTiming* out) {
  const auto in_range = [](int64_t ns) { return ns >= 0 && ns <= kTimeMax; };
  if (in.start_ns() < -kTimeMax || in.start_ns() > kTimeMax || !in_range(in.turn_ns()) || !in_range(in.chunk_ns()) || !in_range(in.time_ns())) {
    return Bad("W0508", where, absl::StrCat("times of at most ", kTimeMax, " ns, negative only for a start"),
               absl::StrCat("start ", in.start_ns(), ", turn ", in.turn_ns(), ", chunk ", in.chunk_ns(), ", time ", in.time_ns()));
  }
  const int64_t acts = ActsPerIteration(rate, plan_.rhythm);
  if (in.act_start_ns_size() != 0 && in.act_start_ns_size() != acts) {
    return Bad("W0508", where, absl::StrCat("a start of each of the ", acts, " acts of an iteration, or none"),
               absl::StrCat(in.act_start_ns_size()));
  }
  act_times_total_ += in.act_start_ns_size();
  WEIR_RETURN_IF_ERROR(Count("act_start_ns in all", act_times_total_, kActTimesMax));
  for (int64_t ns : in.act_start_ns()) {
    if (!in_range(ns)) return Bad("W0508", where, absl::StrCat("act_start_ns from 0 to ", kTimeMax), absl::StrCat(ns));
  }
  out->start_ns = in.start_ns();
  out->turn_ns = in.turn_ns();
  out->chunk_ns = in.chunk_ns();
  out->time_ns = std::max<int64_t>(in.time_ns(), 1);
  out->act_start_ns.assign(in.act_start_ns().begin(), in.act_start_ns().end());
  return absl::OkStatus();
}

// What the plan says of the other end of a remote register. Nothing is allowed: then it has no certificate.
absl::Status PlanReader::ReadFar(const RegisterSpec& in, Where where, PlanRegister* out) {
  if (out->side == RegisterSide::kLocal ? in.far_size() > 0 : (out->side == RegisterSide::kInbound && in.far_size() > 1)) {
    return Bad("W0504", where, out->side == RegisterSide::kLocal ? "far ends of remote registers only" : "one producer",
               absl::StrCat(in.far_size()));
  }
  WEIR_RETURN_IF_ERROR(Count("far actors", in.far_size(), kPortsMax));
  for (const FarActor& spec : in.far()) {
    PlanFarActor& far = out->far.emplace_back();
    far.name = spec.name();
    const auto at = [&] { return absl::StrCat(where(), ", far actor '", spec.name(), "'"); };
    WEIR_RETURN_IF_ERROR(ReadRate(spec, at, &far));
    WEIR_RETURN_IF_ERROR(ReadSpan(spec, far, *out, at, &far.port));
    WEIR_RETURN_IF_ERROR(ReadTiming(spec.timing(), far, at, &far.timing));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadStream(const StreamOrder& in) {
  PlanStream stream;
  stream.name = in.name();
  streamed_.resize(plan_.actors.size(), false);
  const std::string where = absl::StrCat("stream order '", in.name(), "'");
  const PlanActor* first = nullptr;
  for (const StreamOrder::Entry& entry : in.entry()) {
    if (entry.actor() < 0 || entry.actor() >= static_cast<int>(plan_.actors.size())) {
      return Bad("W0503", where, absl::StrCat("actors of this rank (", plan_.actors.size(), ")"), absl::StrCat(entry.actor()));
    }
    const PlanActor& actor = plan_.actors[entry.actor()];
    if (streamed_[actor.id]) return Bad("W0503", where, "each actor once, in one stream", ActorText(actor));
    streamed_[actor.id] = true;
    if (first == nullptr) first = &actor;
    if (actor.acts_per_step != first->acts_per_step || actor.every != first->every ||
        actor.every_phase != first->every_phase) {
      return Bad("W0503", where, absl::StrCat("actors that act as often as ", ActorText(*first)), ActorText(actor));
    }
    if (entry.ahead() < 0 || entry.ahead() >= actor.acts_per_step) {
      return Bad("W0503", where, absl::StrCat("an `ahead` from 0 to ", actor.acts_per_step - 1), absl::StrCat(entry.ahead()));
    }
    stream.entries.push_back({entry.actor(), entry.ahead()});
  }
  if (first == nullptr) return Bad("W0503", where, "an actor at least", "none");
  WEIR_RETURN_IF_ERROR(Count("acts in a stream", int64_t{first->acts_per_step} * in.entry_size(), kStreamActsMax));
  plan_.streams.push_back(std::move(stream));
  return absl::OkStatus();
}

// The acts of a step never need those of a later one: a run of any number of steps comes to rest.
absl::Status PlanReader::CheckStepsEnd(const PlanRegister& r) const {
  const auto bad = [&](int64_t step, const char* what, int64_t wanted, int64_t there) {
    return Bad("W0504", RegisterText(r),
               absl::StrCat(what, " for all acts of the first ", step, " steps: ", wanted), absl::StrCat(there));
  };
  for (int64_t step = 1; step <= plan_.rhythm.steps_per_iteration; ++step) {
    const RegisterCount count = CountAt(plan_, r, step);
    for (int k = 0; k < NumConsumers(r); ++k) {
      const int64_t taken = ConsumerAt(plan_, r, k, step).taken;
      if (taken > count.published) return bad(step, "tokens enough", taken, count.published);
    }
    const int64_t room = r.slots - r.initial_tokens + count.released;
    if (count.taken > room) return bad(step, "free slots enough", count.taken, room);
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckRegisterId(int64_t register_id, Where where) const {
  if (register_id >= 0 && register_id < static_cast<int64_t>(plan_.registers.size())) return absl::OkStatus();
  return Bad("W0503", where, absl::StrCat("a register of this rank (", plan_.registers.size(), ")"),
             absl::StrCat(register_id));
}

absl::Status PlanReader::ReadPorts(const ActorSpec& in, const std::string& where, PlanActor* out) {
  if (in.input_size() > kPortsMax || in.output_size() > kPortsMax) {
    return Bad("W0503", where, absl::StrCat("at most ", kPortsMax, " ports"),
               absl::StrCat(in.input_size(), " and ", in.output_size()));
  }
  for (int i = 0; i < in.input_size(); ++i) {
    const InputPort& port = in.input(i);
    const auto at = [&] { return absl::StrCat(where, ", input port ", i); };
    WEIR_RETURN_IF_ERROR(CheckRegisterId(port.register_id(), at));
    PlanRegister& r = plan_.registers[port.register_id()];
    PlanPort& span = out->inputs.emplace_back();
    span.register_id = port.register_id();
    WEIR_RETURN_IF_ERROR(ReadSpan(port, *out, r, at, &span));
    if (r.side == RegisterSide::kOutbound) return Bad("W0503", at, "a local or inbound register", RegisterText(r));
    r.consumers.push_back({out->id, i});
  }
  for (int i = 0; i < in.output_size(); ++i) {
    const OutputPort& port = in.output(i);
    const auto at = [&] { return absl::StrCat(where, ", output port ", i); };
    WEIR_RETURN_IF_ERROR(CheckRegisterId(port.register_id(), at));
    PlanRegister& r = plan_.registers[port.register_id()];
    PlanPort& span = out->outputs.emplace_back();
    span.register_id = port.register_id();
    WEIR_RETURN_IF_ERROR(ReadSpan(port, *out, r, at, &span));
    if (r.side == RegisterSide::kInbound) return Bad("W0503", at, "a local or outbound register", RegisterText(r));
    if (r.producer.actor >= 0) {
      return Bad("W0504", RegisterText(r), "one producer", absl::StrCat("actors ", r.producer.actor, " and ", out->id));
    }
    r.producer = {out->id, i};
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckKind(const ActorSpec& in, const std::string& where, PlanActor* out) {
  bool outbound = false, local = false;
  for (const PlanPort& port : out->outputs) {
    const PlanRegister& r = plan_.registers[port.register_id];
    if (r.side == RegisterSide::kOutbound) outbound = true;
    // Whoever acts may say so: a token without bytes is an order.
    if (r.side != RegisterSide::kOutbound && r.bytes > 0) local = true;
  }
  switch (in.kind()) {
    case ActorSpec::COMPUTE: out->kind = ActorKind::kCompute; break;
    case ActorSpec::SOURCE: out->kind = ActorKind::kSource; break;
    case ActorSpec::SINK: out->kind = ActorKind::kSink; break;
    case ActorSpec::SEND: out->kind = ActorKind::kSend; break;
    default: return Bad("W0503", where, "a known kind", absl::StrCat(static_cast<int>(in.kind())));
  }
  if (out->kind == ActorKind::kSend ? (local || !outbound) : outbound) {
    return Bad("W0503", where, "outbound outputs on SEND actors and only there", Name(out->kind));
  }
  if (out->kind == ActorKind::kSend && out->program < 0) {  // forwards its input as it is
    const int64_t bytes = plan_.registers[out->outputs[0].register_id].bytes;
    if (bytes > 0 && (out->outputs.size() != 1 || out->inputs.empty() || out->outputs[0].tokens != 1 ||
                      plan_.registers[out->inputs[0].register_id].bytes < bytes)) {
      return Bad("W0503", where, absl::StrCat("one output and an input of at least ", bytes, " bytes on a SEND without program"),
                 absl::StrCat(out->inputs.size(), " inputs, ", out->outputs.size(), " outputs"));
    }
  }
  if (out->kind == ActorKind::kSource) {
    if (out->outputs.size() != 1 || out->outputs[0].tokens != 1) {
      return Bad("W0503", where, "one output port of one token on a SOURCE", absl::StrCat(out->outputs.size()));
    }
    WEIR_RETURN_IF_ERROR(ReadSlice(in.feed_slice(), "W0503", [&] { return where + ", feed_slice"; }, &out->feed_slice));
    const PlanRegister& r = plan_.registers[out->outputs[0].register_id];
    if (out->feed_slice.bytes() > r.bytes) {
      return Bad("W0503", where, absl::StrCat("a feed_slice of at most ", r.bytes, " bytes, those of ", RegisterText(r)),
                 absl::StrCat(out->feed_slice.bytes()));
    }
  }
  if (in.has_feed_range()) {
    out->feed_below = in.feed_range().below();
    out->feed_reader = in.feed_range().reader();
    const bool integers = out->kind == ActorKind::kSource && out->feed_slice.dtype == DType::kI32;
    if (out->feed_below < 0 || (out->feed_below > 0 && !integers)) {
      return Bad("W0503", where, "a feed_range of 0 or more, and of a SOURCE of i32 only", absl::StrCat(out->feed_below));
    }
  }
  if (out->kind == ActorKind::kSink) {
    if (out->inputs.empty() || plan_.registers[out->inputs[0].register_id].bytes < SizeOf(DType::kF32)) {
      return Bad("W0503", where, "an input port with an f32 scalar on a SINK", "none");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckEnds(const PlanRegister& r) const {
  const std::string where = RegisterText(r);
  if (r.side != RegisterSide::kInbound && r.producer.actor < 0) return Bad("W0504", where, "a producer", "none");
  if ((r.side == RegisterSide::kInbound || (r.side == RegisterSide::kLocal && r.initial_tokens > 0)) &&
      r.consumers.empty()) {
    return Bad("W0504", where, "a consumer", "none");
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckOperands(const PlanActor& actor) const {
  if (actor.program < 0 || actor.kind == ActorKind::kSource || actor.kind == ActorKind::kSink) return absl::OkStatus();
  const PlanProgram& program = plan_.programs[actor.program];
  for (const PlanCall& call : program.calls) {
    const auto where = [&] {
      return absl::StrCat(ActorText(actor), ", program '", program.name, "', call '", call.name, "' of ", call.op);
    };
    for (const PlanOperand& operand : call.inputs) {
      WEIR_RETURN_IF_ERROR(CheckOperand(actor, operand, program, where));
    }
    for (const PlanOperand& operand : call.outputs) {
      WEIR_RETURN_IF_ERROR(CheckOperand(actor, operand, program, where));
      if (operand.place != PlanOperand::Place::kInput) continue;
      const PlanRegister& r = plan_.registers[actor.inputs[operand.index].register_id];
      if (r.consumers.size() != 1) {
        return Bad("W0502", where, absl::StrCat("one consumer of ", RegisterText(r), ", which is written in place"),
                   absl::StrCat(r.consumers.size()));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckOperand(const PlanActor& actor, const PlanOperand& operand, const PlanProgram& program,
                                      Where where) const {
  int64_t limit = 0, count = 0;
  const int64_t index = operand.index;
  switch (operand.place) {
    case PlanOperand::Place::kNone: return absl::OkStatus();
    case PlanOperand::Place::kScratch:
      count = index + 1;
      limit = program.scratch_bytes;
      break;
    case PlanOperand::Place::kInput:
    case PlanOperand::Place::kOutput: {
      const auto& ports = operand.place == PlanOperand::Place::kInput ? actor.inputs : actor.outputs;
      count = ports.size();
      if (index < 0 || index >= count) break;
      limit = plan_.registers[ports[index].register_id].bytes;
      if (operand.token < 0 || operand.token >= ports[index].tokens) {
        return Bad("W0502", where, absl::StrCat("a token from 0 to ", ports[index].tokens - 1, " of port ", index),
                   absl::StrCat(operand.token));
      }
      break;
    }
    case PlanOperand::Place::kState:
      count = actor.states.size();
      if (index >= 0 && index < count) limit = plan_.states[actor.states[index]].slice.bytes();
      break;
  }
  if (index < 0 || index >= count) {
    return Bad("W0502", where, absl::StrCat("an operand index below ", count), absl::StrCat(index));
  }
  const int64_t bytes = operand.slice.bytes();
  if (operand.byte_offset > limit || bytes > limit - operand.byte_offset) {
    return Bad("W0502", where, absl::StrCat("operand ", index, " inside the ", limit, " bytes of its place"),
               absl::StrCat(bytes, " bytes at ", operand.byte_offset, " (", ToText(operand.slice), ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Plan> PlanFromProto(const RankPlan& proto) { return PlanReader(proto).Read(); }

}  // namespace weir
