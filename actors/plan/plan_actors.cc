// The part of a plan that acts: actors with their rates, ports and times, the far ends of their
// edges, and streams.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/plan/plan_reader.h"
#include "actors/plan/register_count.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/rate_codec.h"
#include "runtime/base/status.h"

namespace weir::actors::plan_reader {

using namespace plan_limits;

absl::Status PlanReader::ReadActor(int index) {
  const proto::ActorSpec& in = proto_.actor(index);
  PlanActor actor;
  actor.id = ActorId(index);
  actor.name = in.name();
  const std::string where = ActorText(actor);
  if (in.id() != index)
    return Bad("W0503", where, absl::StrCat("dense ids: ", index), absl::StrCat(in.id()));
  if (in.program() < -1 || in.program() >= static_cast<int>(plan_.programs.size())) {
    return Bad(
        "W0503", where,
        absl::StrCat("a program from -1 to ", static_cast<int64_t>(plan_.programs.size()) - 1),
        absl::StrCat(in.program()));
  }
  actor.program = ProgramId(in.program());
  actor.priority = in.priority();
  if (in.queue() < 0 || in.queue() >= plan_.num_queues) {
    return Bad("W0503", where, absl::StrCat("a queue from 0 to ", plan_.num_queues - 1),
               absl::StrCat(in.queue()));
  }
  actor.queue = QueueId(in.queue());
  if (in.has_note()) {
    if (in.note() < 0 || static_cast<size_t>(in.note()) >= notes_.size()) {
      return Bad("W0503", where,
                 absl::StrCat("a note of the plan, of which there are ", notes_.size()),
                 absl::StrCat(in.note()));
    }
    actor.note = notes_[in.note()];
  }
  actor.instance = in.instance();
  actor.feed = in.feed();
  actor.function = in.function();
  if (in.phase() >= proto::ActorSpec::NO_PHASE && in.phase() <= proto::ActorSpec::WEIGHT_GRADIENT) {
    actor.phase = static_cast<ActorPhase>(in.phase());
  }
  WEIR_RETURN_IF_ERROR(ReadRate(
      in.rate(), [&] { return where; }, &actor));
  WEIR_RETURN_IF_ERROR(ReadPrecedence(in, where, &actor));
  WEIR_RETURN_IF_ERROR(ReadTiming(
      in, actor, [&] { return where; }, &actor.timing));
  WEIR_RETURN_IF_ERROR(ReadPorts(in, where, &actor));
  for (int32_t number : in.state()) {
    const StateId state(number);
    if (!plan_.states.Has(state)) {
      return Bad("W0503", where, absl::StrCat("states of this rank (", plan_.states.size(), ")"),
                 absl::StrCat(state));
    }
    const QueueId queue = queue_of_state_.emplace(state, actor.queue).first->second;
    if (queue != actor.queue) {
      return Bad("W0503", where,
                 absl::StrCat("queue ", queue, ", which another actor of state '",
                              plan_.states[state].name, "' has"),
                 absl::StrCat(actor.queue));
    }
    actor.states.push_back(state);
  }
  WEIR_RETURN_IF_ERROR(CheckKind(in, where, &actor));
  plan_.actors.push_back(std::move(actor));
  return absl::OkStatus();
}

absl::Status PlanReader::ReadRate(const proto::Rate& in, Where where, Rate* out) const {
  const Rate rate = weir::FromProto(in);
  if (rate.acts_per_step < 1 || rate.acts_per_step > kActsPerStepMax) {
    return Bad("W0503", where, absl::StrCat("acts_per_step from 1 to ", kActsPerStepMax),
               absl::StrCat(rate.acts_per_step));
  }
  if (rate.chunks < 1 || rate.acts_per_step % rate.chunks != 0) {
    return Bad("W0503", where,
               absl::StrCat("chunks that divide acts_per_step = ", rate.acts_per_step),
               absl::StrCat(rate.chunks));
  }
  const int64_t steps = plan_.rhythm.steps_per_iteration;
  if (rate.every < 1 || rate.every > steps || steps % rate.every != 0) {
    return Bad("W0503", where,
               absl::StrCat("an `every` that divides the ", steps, " steps of an iteration"),
               absl::StrCat(rate.every));
  }
  if (rate.every_phase < 0 || rate.every_phase >= rate.every) {
    return Bad("W0503", where, absl::StrCat("an every_phase from 0 to ", rate.every - 1),
               absl::StrCat(rate.every_phase));
  }
  if (rate.ActsIn(steps) > kActsPerIterationMax) {
    return Bad("W0503", where,
               absl::StrCat("at most ", kActsPerIterationMax, " acts in the ", steps,
                            " steps of an iteration"),
               absl::StrCat(rate.ActsIn(steps)));
  }
  *out = rate;
  return absl::OkStatus();
}

absl::Status PlanReader::ReadPrecedence(const proto::ActorSpec& in, const std::string& where,
                                        PlanActor* out) {
  const Precedence precedence = weir::FromProto(in.precedence());
  auto in_range = [](int64_t value) { return value >= 0 && value <= kPrecedenceMax; };
  if (std::abs(static_cast<double>(precedence.first)) > static_cast<double>(kPrecedenceMax) ||
      !in_range(precedence.group_stride) || !in_range(precedence.stride) ||
      !in_range(precedence.group)) {
    return Bad("W0503", where,
               absl::StrCat("a precedence with a group from 1 and numbers up to ", kPrecedenceMax),
               absl::StrCat(precedence.first, ", ", precedence.group, ", ", precedence.group_stride,
                            ", ", precedence.stride));
  }
  out->precedence = precedence;
  if (precedence.always_same()) return absl::OkStatus();
  num_precedences_ += out->micro_batches_per_step();
  if (num_precedences_ > kPrecedencesMax) {
    return Bad("W0503", where,
               absl::StrCat("at most ", kPrecedencesMax,
                            " micro-batches of actors with precedences together"),
               absl::StrCat(num_precedences_));
  }
  return absl::OkStatus();
}

// The spans of a port of register `r`.
absl::Status PlanReader::ReadSpan(const proto::Span& in, const Rate& rate, const PlanRegister& r,
                                  Where where, Span* out) const {
  const Span span = weir::FromProto(in);
  const int64_t acts = rate.ActsIn(plan_.rhythm.steps_per_iteration);
  if (span.period < 1 || span.period > acts || acts % span.period != 0) {
    return Bad("W0503", where,
               plan_.rhythm.steps_per_iteration == 1
                   ? absl::StrCat("a period that divides acts_per_step = ", acts)
                   : absl::StrCat("a period that divides the ", acts, " acts of an iteration of ",
                                  plan_.rhythm.steps_per_iteration, " steps"),
               absl::StrCat(span.period));
  }
  if (span.phase < 0 || span.phase >= span.period) {
    return Bad("W0503", where, absl::StrCat("a phase from 0 to ", span.period - 1),
               absl::StrCat(span.phase));
  }
  if (span.tokens < 1 || span.tokens > r.slots) {
    return Bad("W0503", where,
               absl::StrCat("tokens from 1 to the ", r.slots, " slots of ", RegisterText(r)),
               absl::StrCat(span.tokens));
  }
  const int64_t of_port = acts / span.period * span.tokens;
  const int64_t of_register = r.tokens_per_step * (plan_.rhythm.steps_per_iteration / r.every);
  if (of_port != of_register) {
    if (plan_.rhythm.steps_per_iteration == 1) {
      return Bad("W0503", where,
                 absl::StrCat(of_register, " tokens per step, as ", RegisterText(r), " says"),
                 absl::StrCat(of_port));
    }
    return Bad("W0503", where,
               absl::StrCat(of_register, " tokens in ", plan_.rhythm.steps_per_iteration,
                            " steps, as ", RegisterText(r), " says"),
               absl::StrCat(of_port));
  }
  *out = span;
  return absl::OkStatus();
}

// Reads the times of an actor of this rank or of one at the far end of a register: both messages
// have the same names for these fields.
template <typename Spec>
absl::Status PlanReader::ReadTiming(const Spec& in, const Rate& rate, Where where,
                                    PlanTiming* out) {
  Timing timing = weir::FromProto(in.timing());
  const auto in_range = [](int64_t ns) { return ns >= 0 && ns <= kTimeMax; };
  if (timing.start_ns < -kTimeMax || timing.start_ns > kTimeMax ||
      !in_range(timing.micro_batch_stride_ns) || !in_range(timing.chunk_stride_ns) ||
      !in_range(timing.time_ns)) {
    return Bad("W0508", where,
               absl::StrCat("times of at most ", kTimeMax, " ns, negative only for a start"),
               absl::StrCat("start ", timing.start_ns, ", micro-batch stride ",
                            timing.micro_batch_stride_ns, ", chunk stride ", timing.chunk_stride_ns,
                            ", time ", timing.time_ns));
  }
  const int64_t acts = rate.ActsIn(plan_.rhythm.steps_per_iteration);
  if (in.act_start_ns_size() != 0 && in.act_start_ns_size() != acts) {
    return Bad("W0508", where,
               absl::StrCat("a start of each of the ", acts, " acts of an iteration, or none"),
               absl::StrCat(in.act_start_ns_size()));
  }
  act_times_total_ += in.act_start_ns_size();
  WEIR_RETURN_IF_ERROR(Count("act_start_ns in all", act_times_total_, kActTimesMax));
  for (int64_t ns : in.act_start_ns()) {
    if (!in_range(ns))
      return Bad("W0508", where, absl::StrCat("act_start_ns from 0 to ", kTimeMax),
                 absl::StrCat(ns));
  }
  timing.time_ns = std::max<int64_t>(timing.time_ns, 1);
  static_cast<Timing&>(*out) = timing;
  out->act_start_ns.assign(in.act_start_ns().begin(), in.act_start_ns().end());
  return absl::OkStatus();
}

// Reads the plan's statement about the far end of a remote register. The statement may be absent;
// the edge then has no certificate.
absl::Status PlanReader::ReadFar(const proto::RegisterSpec& in, Where where, PlanRegister* out) {
  if (out->side == RegisterSide::kLocal
          ? in.far_size() > 0
          : (out->side == RegisterSide::kInbound && in.far_size() > 1)) {
    return Bad(
        "W0504", where,
        out->side == RegisterSide::kLocal ? "far ends of remote registers only" : "one producer",
        absl::StrCat(in.far_size()));
  }
  WEIR_RETURN_IF_ERROR(Count("far actors", in.far_size(), kPortsMax));
  for (const proto::FarActor& spec : in.far()) {
    PlanFarActor& far = out->far.emplace_back();
    far.name = spec.name();
    const auto at = [&] { return absl::StrCat(where(), ", far actor '", spec.name(), "'"); };
    WEIR_RETURN_IF_ERROR(ReadRate(spec.rate(), at, &far));
    WEIR_RETURN_IF_ERROR(ReadSpan(spec.span(), far, *out, at, &far.port));
    WEIR_RETURN_IF_ERROR(ReadTiming(spec, far, at, &far.timing));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::ReadStream(const proto::StreamOrder& in) {
  PlanStream stream;
  stream.name = in.name();
  streamed_.resize(plan_.actors.size(), false);
  const std::string where = absl::StrCat("stream order '", in.name(), "'");
  const PlanActor* first = nullptr;
  for (const proto::StreamOrder::Entry& entry : in.entry()) {
    const ActorId id(entry.actor());
    if (!plan_.actors.Has(id)) {
      return Bad("W0503", where, absl::StrCat("actors of this rank (", plan_.actors.size(), ")"),
                 absl::StrCat(id));
    }
    const PlanActor& actor = plan_.actors[id];
    if (streamed_[id])
      return Bad("W0503", where, "each actor once, in one stream", ActorText(actor));
    streamed_[id] = true;
    if (first == nullptr) first = &actor;
    if (actor.acts_per_step != first->acts_per_step || actor.every != first->every ||
        actor.every_phase != first->every_phase) {
      return Bad("W0503", where, absl::StrCat("actors that act as often as ", ActorText(*first)),
                 ActorText(actor));
    }
    if (actor.queue != first->queue) {
      return Bad("W0503", where, absl::StrCat("actors on the queue of ", ActorText(*first)),
                 ActorText(actor));
    }
    if (entry.ahead() < 0 || entry.ahead() >= actor.acts_per_step) {
      return Bad("W0503", where, absl::StrCat("an `ahead` from 0 to ", actor.acts_per_step - 1),
                 absl::StrCat(entry.ahead()));
    }
    stream.entries.push_back({id, entry.ahead()});
  }
  if (first == nullptr) return Bad("W0503", where, "an actor at least", "none");
  WEIR_RETURN_IF_ERROR(
      Count("acts in a stream", first->acts_per_step * in.entry_size(), kStreamActsMax));
  plan_.streams.push_back(std::move(stream));
  return absl::OkStatus();
}

// The acts of a step never need those of a later one: a run of any number of steps comes to rest.
absl::Status PlanReader::CheckStepsEnd(const PlanRegister& r) const {
  const auto bad = [&](int64_t step, const char* what, int64_t wanted, int64_t there) {
    return Bad("W0504", RegisterText(r),
               absl::StrCat(what, " for all acts of the first ", step, " steps: ", wanted),
               absl::StrCat(there));
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

absl::Status PlanReader::CheckRegisterId(RegisterId id, Where where) const {
  if (plan_.registers.Has(id)) return absl::OkStatus();
  return Bad("W0503", where, absl::StrCat("a register of this rank (", plan_.registers.size(), ")"),
             absl::StrCat(id));
}

absl::Status PlanReader::ReadPorts(const proto::ActorSpec& in, const std::string& where,
                                   PlanActor* out) {
  if (in.input_size() > kPortsMax || in.output_size() > kPortsMax) {
    return Bad("W0503", where, absl::StrCat("at most ", kPortsMax, " ports"),
               absl::StrCat(in.input_size(), " and ", in.output_size()));
  }
  for (int i = 0; i < in.input_size(); ++i) {
    const proto::InputPort& port = in.input(i);
    const auto at = [&] { return absl::StrCat(where, ", input port ", i); };
    const RegisterId id(port.register_id());
    WEIR_RETURN_IF_ERROR(CheckRegisterId(id, at));
    PlanRegister& r = plan_.registers[id];
    PlanPort& span = out->inputs.emplace_back();
    span.register_id = id;
    WEIR_RETURN_IF_ERROR(ReadSpan(port.span(), *out, r, at, &span));
    if (r.side == RegisterSide::kOutbound)
      return Bad("W0503", at, "a local or inbound register", RegisterText(r));
    r.consumers.push_back({out->id, i});
  }
  for (int i = 0; i < in.output_size(); ++i) {
    const proto::OutputPort& port = in.output(i);
    const auto at = [&] { return absl::StrCat(where, ", output port ", i); };
    const RegisterId id(port.register_id());
    WEIR_RETURN_IF_ERROR(CheckRegisterId(id, at));
    PlanRegister& r = plan_.registers[id];
    PlanPort& span = out->outputs.emplace_back();
    span.register_id = id;
    WEIR_RETURN_IF_ERROR(ReadSpan(port.span(), *out, r, at, &span));
    if (r.side == RegisterSide::kInbound)
      return Bad("W0503", at, "a local or outbound register", RegisterText(r));
    if (r.producer.actor.has_value()) {
      return Bad("W0504", RegisterText(r), "one producer",
                 absl::StrCat("actors ", r.producer.actor, " and ", out->id));
    }
    r.producer = {out->id, i};
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckKind(const proto::ActorSpec& in, const std::string& where,
                                   PlanActor* out) {
  bool outbound = false, local = false;
  for (const PlanPort& port : out->outputs) {
    const PlanRegister& r = plan_.registers[port.register_id];
    if (r.side == RegisterSide::kOutbound) outbound = true;
    // Whoever acts may say so: a token without bytes is an order.
    if (r.side != RegisterSide::kOutbound && r.bytes > 0) local = true;
  }
  switch (in.kind()) {
    case proto::ActorSpec::COMPUTE: out->kind = ActorKind::kCompute; break;
    case proto::ActorSpec::SOURCE: out->kind = ActorKind::kSource; break;
    case proto::ActorSpec::SINK: out->kind = ActorKind::kSink; break;
    case proto::ActorSpec::SEND: out->kind = ActorKind::kSend; break;
    case proto::ActorSpec::COLLECTIVE: out->kind = ActorKind::kCollective; break;
    default: return Bad("W0503", where, "a known kind", absl::StrCat(static_cast<int>(in.kind())));
  }
  if (out->kind == ActorKind::kSend ? (local || !outbound) : outbound) {
    return Bad("W0503", where, "outbound outputs on SEND actors and only there", Name(out->kind));
  }
  if (out->kind == ActorKind::kSend && !out->program.has_value()) {  // forwards its input as it is
    const int64_t bytes = plan_.registers[out->outputs[0].register_id].bytes;
    if (bytes > 0 &&
        (out->outputs.size() != 1 || out->inputs.empty() || out->outputs[0].tokens != 1 ||
         plan_.registers[out->inputs[0].register_id].bytes < bytes)) {
      return Bad("W0503", where,
                 absl::StrCat("one output and an input of at least ", bytes,
                              " bytes on a SEND without program"),
                 absl::StrCat(out->inputs.size(), " inputs, ", out->outputs.size(), " outputs"));
    }
  }
  if (out->kind == ActorKind::kCollective && !out->program.has_value())
    return Bad("W0503", where, "a program with the operations of a COLLECTIVE", "none");
  if (out->kind == ActorKind::kSource) {
    if (out->outputs.size() != 1 || out->outputs[0].tokens != 1) {
      return Bad("W0503", where, "one output port of one token on a SOURCE",
                 absl::StrCat(out->outputs.size()));
    }
    WEIR_RETURN_IF_ERROR(ReadSlice(
        in.feed_slice(), "W0503", [&] { return where + ", feed_slice"; }, &out->feed_slice));
    const PlanRegister& r = plan_.registers[out->outputs[0].register_id];
    if (out->feed_slice.bytes() > r.bytes) {
      return Bad(
          "W0503", where,
          absl::StrCat("a feed_slice of at most ", r.bytes, " bytes, those of ", RegisterText(r)),
          absl::StrCat(out->feed_slice.bytes()));
    }
  }
  if (in.has_feed_range()) {
    out->feed_below = in.feed_range().below();
    out->feed_reader = in.feed_range().reader();
    if (in.feed_range().has_ignored()) out->feed_ignored = in.feed_range().ignored();
    const bool integers = out->kind == ActorKind::kSource && out->feed_slice.dtype == DType::kI32;
    if (out->feed_below < 0 || (out->feed_below > 0 && !integers)) {
      return Bad("W0503", where, "a feed_range of 0 or more, and of a SOURCE of i32 only",
                 absl::StrCat(out->feed_below));
    }
  }
  if (out->kind == ActorKind::kSink) {
    if (out->inputs.empty() ||
        plan_.registers[out->inputs[0].register_id].bytes < SizeOf(DType::kF32)) {
      return Bad("W0503", where, "an input port with an f32 scalar on a SINK", "none");
    }
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckEnds(const PlanRegister& r) const {
  const std::string where = RegisterText(r);
  if (r.side != RegisterSide::kInbound && !r.producer.actor.has_value())
    return Bad("W0504", where, "a producer", "none");
  if ((r.side == RegisterSide::kInbound ||
       (r.side == RegisterSide::kLocal && r.initial_tokens > 0)) &&
      r.consumers.empty()) {
    return Bad("W0504", where, "a consumer", "none");
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckOperands(const PlanActor& actor) const {
  if (!actor.program.has_value() || actor.kind == ActorKind::kSource ||
      actor.kind == ActorKind::kSink)
    return absl::OkStatus();
  const PlanProgram& program = plan_.programs[actor.program];
  for (const PlanCall& call : program.calls) {
    const auto where = [&] {
      return absl::StrCat(ActorText(actor), ", program '", program.name, "', call '", call.name,
                          "' of ", call.op);
    };
    for (const PlanOperand& operand : call.inputs) {
      WEIR_RETURN_IF_ERROR(CheckOperand(actor, operand, program, where));
    }
    WEIR_RETURN_IF_ERROR(CheckCollective(actor, call, program, where));
    for (const PlanOperand& operand : call.outputs) {
      WEIR_RETURN_IF_ERROR(CheckOperand(actor, operand, program, where));
      if (operand.place != PlanOperand::Place::kInput) continue;
      const PlanRegister& r = plan_.registers[actor.inputs[operand.index].register_id];
      if (r.consumers.size() != 1) {
        return Bad("W0502", where,
                   absl::StrCat("one consumer of ", RegisterText(r), ", which is written in place"),
                   absl::StrCat(r.consumers.size()));
      }
    }
  }
  return absl::OkStatus();
}

// A COLLECTIVE has collectives alone, all of one group that has this rank, and no other actor has
// collectives.
absl::Status PlanReader::CheckCollective(const PlanActor& actor, const PlanCall& call,
                                         const PlanProgram& program, Where where) const {
  const auto* collective = std::get_if<Collective>(&call.transfer);
  if (actor.kind != ActorKind::kCollective || collective == nullptr) {
    if (actor.kind != ActorKind::kCollective && collective == nullptr) return absl::OkStatus();
    return Bad("W0502", where, "collectives in COLLECTIVE actors, and nothing else there",
               Name(actor.kind));
  }
  if (call.inputs.size() != 1 || call.outputs.size() != 1 ||
      call.inputs[0].place == PlanOperand::Place::kNone ||
      call.outputs[0].place == PlanOperand::Place::kNone ||
      call.inputs[0].slice.dtype != call.outputs[0].slice.dtype) {
    return Bad("W0502", where, "one input and one output, of one element type",
               absl::StrCat(call.inputs.size(), " and ", call.outputs.size()));
  }
  if (const auto flaw = FindFlawWith(*collective, call.inputs[0].slice.num_elements(),
                                     call.outputs[0].slice.num_elements())) {
    return Bad("W0502", where, flaw->expected, flaw->found);
  }
  const auto* first = std::get_if<Collective>(&program.calls[0].transfer);
  if (first == nullptr || first->ranks != collective->ranks)
    return Bad("W0502", where, "one group of ranks for all operations of an act", "two");
  bool has_own = false, all_known = true;
  for (const RankId rank : collective->ranks) {
    has_own |= rank == plan_.rank;
    all_known &= rank < RankId(plan_.num_ranks);
  }
  if (!has_own || !all_known) {
    return Bad("W0502", where,
               absl::StrCat("a group of ranks below ", plan_.num_ranks, " with rank ", plan_.rank),
               absl::StrCat("ranks ", absl::StrJoin(collective->ranks, " ")));
  }
  return absl::OkStatus();
}

absl::Status PlanReader::CheckOperand(const PlanActor& actor, const PlanOperand& operand,
                                      const PlanProgram& program, Where where) const {
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
      const auto& ports =
          operand.place == PlanOperand::Place::kInput ? actor.inputs : actor.outputs;
      count = ports.size();
      if (index < 0 || index >= count) break;
      limit = plan_.registers[ports[index].register_id].bytes;
      if (operand.token < 0 || operand.token >= ports[index].tokens) {
        return Bad("W0502", where,
                   absl::StrCat("a token from 0 to ", ports[index].tokens - 1, " of port ", index),
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
    return Bad(
        "W0502", where,
        absl::StrCat("operand ", index, " inside the ", limit, " bytes of its place"),
        absl::StrCat(bytes, " bytes at ", operand.byte_offset, " (", ToText(operand.slice), ")"));
  }
  return absl::OkStatus();
}

}  // namespace weir::actors::plan_reader
