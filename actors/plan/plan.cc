#include "actors/plan/plan.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "actors/plan/plan_reader.h"
#include "actors/plan/register_count.h"
#include "runtime/base/alignment.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer_codec.h"
#include "runtime/base/transfer/transfer_note_codec.h"

namespace weir::actors {

std::optional<StateClass> FromProto(proto::StateSpec::Class state_class) {
  switch (state_class) {
    case proto::StateSpec::WEIGHT: return StateClass::kWeight;
    case proto::StateSpec::OPTIMIZER_SLOT: return StateClass::kOptimizerSlot;
    case proto::StateSpec::DELAYED_GRADIENT: return StateClass::kDelayedGradient;
    case proto::StateSpec::FETCHED: return StateClass::kFetched;
    default: return std::nullopt;
  }
}

proto::StateSpec::Class ToProto(StateClass state_class) {
  switch (state_class) {
    case StateClass::kWeight: return proto::StateSpec::WEIGHT;
    case StateClass::kOptimizerSlot: return proto::StateSpec::OPTIMIZER_SLOT;
    case StateClass::kDelayedGradient: return proto::StateSpec::DELAYED_GRADIENT;
    case StateClass::kFetched: return proto::StateSpec::FETCHED;
  }
  return proto::StateSpec::WEIGHT;
}

namespace plan_reader {

using namespace plan_limits;

absl::Status PlanReader::ReadQueues() {
  if (proto_.num_queues() < 0 || proto_.num_queues() > kQueuesMax) {
    return Bad("W0501", "num_queues", absl::StrCat("1 to ", kQueuesMax),
               absl::StrCat(proto_.num_queues()));
  }
  if (proto_.depth() < 0 || proto_.depth() > kDepthMax) {
    return Bad("W0501", "depth", absl::StrCat("1 to ", kDepthMax), absl::StrCat(proto_.depth()));
  }
  plan_.num_queues = std::max(1, proto_.num_queues());
  plan_.depth = std::max(1, proto_.depth());
  plan_.graphs = proto_.graphs() == proto::RankPlan::GRAPHS_ON     ? GraphUse::kOn
                 : proto_.graphs() == proto::RankPlan::GRAPHS_AUTO ? GraphUse::kAuto
                                                                   : GraphUse::kOff;
  return absl::OkStatus();
}

absl::Status PlanReader::ReadHeader() {
  if (proto_.num_ranks() < 1 || proto_.num_ranks() > kRanksMax) {
    return Bad("W0501", "num_ranks", absl::StrCat("1 to ", kRanksMax),
               absl::StrCat(proto_.num_ranks()));
  }
  if (proto_.rank() < 0 || proto_.rank() >= proto_.num_ranks()) {
    return Bad("W0501", "rank", absl::StrCat("0 to ", proto_.num_ranks() - 1),
               absl::StrCat(proto_.rank()));
  }
  if (proto_.arena_bytes() < 0 || proto_.arena_bytes() > kBytesMax) {
    return Bad("W0501", "arena_bytes", absl::StrCat("0 to ", kBytesMax),
               absl::StrCat(proto_.arena_bytes()));
  }
  if (proto_.scratch_bytes() < 0 || proto_.scratch_bytes() > proto_.arena_bytes()) {
    return Bad("W0501", "scratch_bytes", absl::StrCat("0 to arena_bytes = ", proto_.arena_bytes()),
               absl::StrCat(proto_.scratch_bytes()));
  }
  WEIR_RETURN_IF_ERROR(ReadQueues());
  if (proto_.micro_batches() < 0 || proto_.micro_batches() > kActsPerStepMax) {
    return Bad("W0501", "micro_batches", absl::StrCat("1 to ", kActsPerStepMax),
               absl::StrCat(proto_.micro_batches()));
  }
  if (proto_.num_stages() < 0 || proto_.stage() < 0) {
    return Bad("W0501", "stage", "a stage in range",
               absl::StrCat(proto_.stage(), " of ", proto_.num_stages()));
  }
  WEIR_RETURN_IF_ERROR(Count("actors", proto_.actor_size(), kActorsMax));
  WEIR_RETURN_IF_ERROR(Count("registers", proto_.registers_size(), kRegistersMax));
  WEIR_RETURN_IF_ERROR(Count("states", proto_.state_size(), kStatesMax));
  WEIR_RETURN_IF_ERROR(Count("programs", proto_.program_size(), kProgramsMax));
  WEIR_RETURN_IF_ERROR(Count("notes", proto_.note_size(), kActorsMax));
  for (const proto::TransferNote& note : proto_.note())
    notes_.push_back(std::make_shared<const TransferNote>(weir::FromProto(note)));
  plan_.rank = RankId(proto_.rank());
  plan_.num_ranks = proto_.num_ranks();
  plan_.plan_id = proto_.plan_id();
  plan_.seed = proto_.seed();
  plan_.micro_batches = proto_.micro_batches() > 0 ? proto_.micro_batches() : 1;
  plan_.arena_bytes = proto_.arena_bytes();
  plan_.scratch_bytes = proto_.scratch_bytes();
  plan_.device = proto_.device();
  plan_.device_kind = proto_.device_kind().empty() ? "cpu" : proto_.device_kind();
  plan_.stage = proto_.stage();
  plan_.num_stages = proto_.num_stages() > 0 ? proto_.num_stages() : 1;
  plan_.schedule = proto_.schedule();
  // People read the predicted bubble; nothing depends on it.
  plan_.predicted_bubble = proto_.predicted_bubble() > 0 && proto_.predicted_bubble() < 1
                               ? proto_.predicted_bubble()
                               : 0;
  plan_.virtual_stages = std::max(1, proto_.virtual_stages());
  plan_.stages_in_a_row =
      proto_.stages_in_a_row() > 0 ? proto_.stages_in_a_row() : plan_.num_stages;
  return ReadRhythm();
}

absl::Status PlanReader::ReadRhythm() {
  const proto::PlanCertificate& in = proto_.certificate();
  const auto time = [&](const char* what, int64_t ns) {
    return ns >= 0 && ns <= kTimeMax
               ? absl::OkStatus()
               : Bad("W0508", "certificate", absl::StrCat(what, " from 0 to ", kTimeMax),
                     absl::StrCat(ns));
  };
  const int64_t steps = std::max<int64_t>(in.steps_per_iteration(), 1);
  if (in.steps_per_iteration() < 0 || steps > kStepsPerIterationMax) {
    return Bad("W0508", "certificate",
               absl::StrCat("steps_per_iteration from 1 to ", kStepsPerIterationMax),
               absl::StrCat(in.steps_per_iteration()));
  }
  WEIR_RETURN_IF_ERROR(time("iteration_ns", in.iteration_ns()));
  WEIR_RETURN_IF_ERROR(time("step_ns", in.step_ns()));
  WEIR_RETURN_IF_ERROR(time("micro_batch_ns", in.micro_batch_ns()));
  plan_.rhythm = {static_cast<int32_t>(steps), in.iteration_ns(), in.step_ns(),
                  in.micro_batch_ns()};
  return absl::OkStatus();
}

absl::Status PlanReader::PlaceScratch() {
  IdVector<QueueId, int64_t> bytes(plan_.num_queues, 0);
  for (const PlanActor& actor : plan_.actors) {
    if (!actor.program.has_value()) continue;
    int64_t& most = bytes[actor.queue];
    most = std::max(most, plan_.programs[actor.program].scratch_bytes);
  }
  int64_t end = 0;
  for (const int64_t part : bytes) {
    plan_.scratch_offsets.push_back(AlignUp(end));
    end = AlignUp(end) + part;
  }
  if (end <= plan_.scratch_bytes) return absl::OkStatus();
  return Bad("W0501", "scratch_bytes",
             absl::StrCat("at least ", end, ", for the largest program of each of ",
                          plan_.num_queues, " queues"),
             absl::StrCat(plan_.scratch_bytes));
}

absl::Status PlanReader::ReadSlice(const proto::TensorSliceProto& in, const char* code, Where where,
                                   TensorSlice* out) {
  std::optional<DType> dtype = DTypeFromName(in.dtype());
  if (!dtype.has_value())
    return Bad(code, where, "a dtype of f32, bf16, i32, bool", absl::StrCat("'", in.dtype(), "'"));
  const int rank = in.shape_size();
  if (rank > kTensorRankMax || (in.offset_size() != 0 && in.offset_size() != rank) ||
      (in.global_shape_size() != 0 && in.global_shape_size() != rank)) {
    return Bad(code, where,
               absl::StrCat("shape, offset and global_shape of one rank, at most ", kTensorRankMax),
               absl::StrCat("ranks ", rank, ", ", in.offset_size(), ", ", in.global_shape_size()));
  }
  out->dtype = *dtype;
  out->shape.assign(in.shape().begin(), in.shape().end());
  out->global_shape = out->shape;
  if (in.global_shape_size() > 0)
    out->global_shape.assign(in.global_shape().begin(), in.global_shape().end());
  out->offset.assign(rank, 0);
  if (in.offset_size() > 0) out->offset.assign(in.offset().begin(), in.offset().end());
  for (int i = 0; i < rank; ++i) {
    const int64_t size = out->shape[i], offset = out->offset[i], whole = out->global_shape[i];
    if (size < 0 || offset < 0 || whole < 0 || whole > kElementsMax || size > whole ||
        offset > whole - size) {
      return Bad(code, where, absl::StrCat("axis ", i, " of the shard inside the tensor"),
                 absl::StrCat("size ", size, " at ", offset, " of ", whole));
    }
  }
  const int64_t elements = out->num_elements();
  if (elements < 0 || elements > kElementsMax) {
    return Bad(code, where, absl::StrCat("at most ", kElementsMax, " elements"),
               ToText(out->shape));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadProgram(int index) {
  const proto::Program& in = proto_.program(index);
  PlanProgram program;
  program.name = in.name();
  program.scratch_bytes = in.scratch_bytes();
  if (in.scratch_bytes() < 0 || in.scratch_bytes() > plan_.scratch_bytes) {
    return Bad("W0502", absl::StrCat("program ", index, " '", in.name(), "'"),
               absl::StrCat("scratch_bytes from 0 to the plan's ", plan_.scratch_bytes),
               absl::StrCat(in.scratch_bytes()));
  }
  program.calls.resize(in.call_size());
  for (int i = 0; i < in.call_size(); ++i) {
    WEIR_RETURN_IF_ERROR(ReadCall(in.call(i), program, &program.calls[i]));
  }
  plan_.programs.push_back(std::move(program));
  return absl::OkStatus();
}

absl::Status PlanReader::ReadCall(const proto::KernelCall& in, const PlanProgram& program,
                                  PlanCall* out) {
  const auto where = [&] {
    return absl::StrCat("program '", program.name, "', call '", in.name(), "' of ", in.op());
  };
  out->op = in.op();
  out->name = in.name();
  out->rng_key = in.rng_key();
  for (const proto::NamedAttr& attr : in.attr()) {
    if (out->attrs.Has(attr.name())) return Bad("W0502", where, "each attribute once", attr.name());
    switch (attr.value().value_case()) {
      case proto::Attr::kI: out->attrs.Set(attr.name(), int64_t{attr.value().i()}); break;
      case proto::Attr::kF: out->attrs.Set(attr.name(), attr.value().f()); break;
      case proto::Attr::kB: out->attrs.Set(attr.name(), attr.value().b()); break;
      case proto::Attr::kS: out->attrs.Set(attr.name(), attr.value().s()); break;
      case proto::Attr::kInts:
        out->attrs.Set(attr.name(), std::vector<int64_t>(attr.value().ints().values().begin(),
                                                         attr.value().ints().values().end()));
        break;
      case proto::Attr::VALUE_NOT_SET:
        return Bad("W0502", where, absl::StrCat("a value of '", attr.name(), "'"), "none");
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
  if (const auto flaw = DecodeTransfer(in, &out->transfer)) {
    return Bad("W0502", where, absl::StrCat(flaw->expected, " in the transfer"), flaw->found);
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadOperand(const proto::Operand& in, Where where, PlanOperand* out) {
  switch (in.place()) {
    case proto::Operand::INPUT: out->place = PlanOperand::Place::kInput; break;
    case proto::Operand::OUTPUT: out->place = PlanOperand::Place::kOutput; break;
    case proto::Operand::SCRATCH: out->place = PlanOperand::Place::kScratch; break;
    case proto::Operand::STATE: out->place = PlanOperand::Place::kState; break;
    case proto::Operand::NONE: return absl::OkStatus();
    default:
      return Bad("W0502", where, "a known place", absl::StrCat(static_cast<int>(in.place())));
  }
  out->index = in.index();
  out->token = in.token();
  out->byte_offset = in.byte_offset();
  if (in.byte_offset() < 0 || in.byte_offset() > kBytesMax ||
      in.byte_offset() % kOperandAlignment != 0) {
    return Bad("W0502", where,
               absl::StrCat("a byte_offset that is a multiple of ", kOperandAlignment),
               absl::StrCat(in.byte_offset()));
  }
  return ReadSlice(in.slice(), "W0502", where, &out->slice);
}

absl::Status PlanReader::ReadState(int index) {
  const proto::StateSpec& in = proto_.state(index);
  const std::string where = absl::StrCat("state ", index, " '", in.name(), "'");
  PlanState state;
  state.name = in.name();
  const std::optional<StateClass> state_class = FromProto(in.state_class());
  if (!state_class.has_value()) {
    return Bad("W0505", where, "a weight, or what belongs to one, or a fetched result",
               absl::StrCat("class ", in.state_class()));
  }
  state.state_class = *state_class;
  state.weight = in.weight();
  const bool has_weight = state.state_class == StateClass::kOptimizerSlot ||
                          state.state_class == StateClass::kDelayedGradient;
  if (has_weight == state.weight.empty()) {
    return Bad("W0505", where,
               has_weight ? "the weight that it belongs to" : "a state that belongs to no weight",
               absl::StrCat("weight '", in.weight(), "'"));
  }
  state.layout = in.layout();
  state.owner = in.owner();
  WEIR_RETURN_IF_ERROR(ReadSlice(
      in.slice(), "W0505", [&] { return where; }, &state.slice));
  const int64_t bytes = state.slice.bytes();
  if (in.arena_offset() < plan_.scratch_bytes || in.arena_offset() > plan_.arena_bytes ||
      bytes > plan_.arena_bytes - in.arena_offset() || in.arena_offset() % kOperandAlignment != 0) {
    return Bad("W0505", where,
               absl::StrCat(bytes, " bytes at a multiple of ", kOperandAlignment,
                            " between the scratch space (", plan_.scratch_bytes,
                            ") and the end of the arena (", plan_.arena_bytes, ")"),
               absl::StrCat("arena_offset ", in.arena_offset()));
  }
  state.arena_offset = in.arena_offset();
  switch (in.init().kind_case()) {
    case proto::Initializer::kOnes: state.init.kind = PlanInitializer::Kind::kOnes; break;
    case proto::Initializer::kNormal:
      state.init = {PlanInitializer::Kind::kNormal, in.init().normal().std(),
                    in.init().normal().mean()};
      break;
    case proto::Initializer::kUniform:
      state.init = {PlanInitializer::Kind::kUniform, in.init().uniform().low(),
                    in.init().uniform().high()};
      break;
    case proto::Initializer::kZeros:
    case proto::Initializer::KIND_NOT_SET: break;
  }
  if (in.has_token()) {
    state.register_id = RegisterId(in.token().register_id());
    state.token = in.token().token();
  }
  plan_.states.push_back(std::move(state));
  return absl::OkStatus();
}

// States that go round with the tokens of a register lie in its slots.
absl::Status PlanReader::CheckTokenStates() const {
  for (const StateId id : plan_.states.ids()) {
    if (!proto_.state(id.value()).has_token()) continue;
    const PlanState& state = plan_.states[id];
    const std::string where = absl::StrCat("state ", id, " '", state.name, "'");
    WEIR_RETURN_IF_ERROR(CheckRegisterId(state.register_id, [&] { return where; }));
    const PlanRegister& r = plan_.registers[state.register_id];
    if (r.side != RegisterSide::kLocal || state.token < 0 || state.token >= r.initial_tokens) {
      return Bad("W0505", where, "one of the initial tokens of a local register",
                 absl::StrCat("token ", state.token, " of ", r.initial_tokens, " of the ",
                              Name(r.side), " ", RegisterText(r)));
    }
    const int64_t offset = state.arena_offset - r.arena_offset;
    if (offset < 0 || offset > r.bytes || state.slice.bytes() > r.bytes - offset) {
      return Bad("W0505", where,
                 absl::StrCat("to lie in slot 0 of ", RegisterText(r), ", ", r.bytes, " bytes at ",
                              r.arena_offset),
                 absl::StrCat(state.slice.bytes(), " bytes at ", state.arena_offset));
    }
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadRegister(int index) {
  const proto::RegisterSpec& in = proto_.registers(index);
  PlanRegister r;
  r.id = RegisterId(index);
  r.name = in.name();
  const std::string where = RegisterText(r);
  if (in.id() != index)
    return Bad("W0504", where, absl::StrCat("dense ids: ", index), absl::StrCat(in.id()));
  if (in.bytes() < 0 || in.bytes() > kBytesMax) {
    return Bad("W0504", where, absl::StrCat("bytes from 0 to ", kBytesMax),
               absl::StrCat(in.bytes()));
  }
  if (in.slots() < 1 || in.slots() > kSlotsMax) {
    return Bad("W0504", where, absl::StrCat("slots from 1 to ", kSlotsMax),
               absl::StrCat(in.slots()));
  }
  slots_total_ += in.slots();
  if (slots_total_ > kSlotsTotalMax) {
    return Bad("W0504", where, absl::StrCat("at most ", kSlotsTotalMax, " slots in all"),
               absl::StrCat(slots_total_));
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
    case proto::RegisterSpec::LOCAL: r.side = RegisterSide::kLocal; break;
    case proto::RegisterSpec::INBOUND: r.side = RegisterSide::kInbound; break;
    case proto::RegisterSpec::OUTBOUND: r.side = RegisterSide::kOutbound; break;
    default: return Bad("W0504", where, "a known side", absl::StrCat(static_cast<int>(in.side())));
  }
  if (r.side != RegisterSide::kLocal) {
    if (in.peer() < 0 || in.peer() >= plan_.num_ranks || in.peer() == plan_.rank.value()) {
      return Bad("W0504", where, absl::StrCat("a peer among the other ranks of ", plan_.num_ranks),
                 absl::StrCat(in.peer()));
    }
    r.peer = RankId(in.peer());
    r.edge = EdgeId(in.edge());
  }
  r.bytes = in.bytes();
  r.slots = in.slots();
  r.initial_tokens = in.initial_tokens();
  r.arena_offset = in.arena_offset();
  r.stride = in.stride();
  r.tokens_per_step = in.tokens_per_step();
  const int64_t every = in.every() == 0 ? 1 : in.every(), steps = plan_.rhythm.steps_per_iteration;
  if (every < 1 || every > steps || steps % every != 0) {
    return Bad("W0504", where,
               absl::StrCat("an `every` that divides the ", steps, " steps of an iteration"),
               absl::StrCat(in.every()));
  }
  r.every = static_cast<int32_t>(every);
  if (in.latency_ns() < 0 || in.latency_ns() > kTimeMax) {
    return Bad("W0508", where, absl::StrCat("latency_ns from 0 to ", kTimeMax),
               absl::StrCat(in.latency_ns()));
  }
  r.latency_ns = in.latency_ns();
  WEIR_RETURN_IF_ERROR(ReadFar(
      in, [&] { return where; }, &r));
  if (r.side != RegisterSide::kOutbound) WEIR_RETURN_IF_ERROR(CheckMemory(r, where));
  plan_.registers.push_back(std::move(r));
  return absl::OkStatus();
}

absl::Status PlanReader::CheckMemory(const PlanRegister& r, const std::string& where) {
  if (r.bytes == 0) return absl::OkStatus();
  if (r.arena_offset % kOperandAlignment != 0 || r.arena_offset < plan_.scratch_bytes ||
      r.arena_offset > plan_.arena_bytes) {
    return Bad("W0504", where,
               absl::StrCat("an arena_offset that is a multiple of ", kOperandAlignment, " from ",
                            plan_.scratch_bytes, " to ", plan_.arena_bytes),
               absl::StrCat(r.arena_offset));
  }
  if (r.slots > 1 &&
      (r.stride < r.bytes || r.stride % kOperandAlignment != 0 || r.stride > kBytesMax)) {
    return Bad("W0504", where,
               absl::StrCat("a stride of at least ", r.bytes, ", multiple of ", kOperandAlignment),
               absl::StrCat(r.stride));
  }
  const int64_t steps_left = plan_.arena_bytes - r.arena_offset - r.bytes;
  if (steps_left < 0 || (r.slots > 1 && steps_left / (r.slots - 1) < r.stride)) {
    return Bad(
        "W0504", where, absl::StrCat("all slots inside the arena of ", plan_.arena_bytes, " bytes"),
        absl::StrCat(r.slots, " slots of ", r.bytes, " at ", r.arena_offset, " + k * ", r.stride));
  }
  return absl::OkStatus();
}

}  // namespace plan_reader

absl::StatusOr<Plan> PlanFromProto(const proto::RankPlan& proto) {
  return plan_reader::PlanReader(proto).Read();
}

}  // namespace weir::actors
