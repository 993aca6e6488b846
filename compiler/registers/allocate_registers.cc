#include "compiler/registers/allocate_registers.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "compiler/lower/check_sizes.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/lower/schedule_slots.h"
#include "compiler/lower/slot_policy.h"
#include "compiler/registers/place_memory.h"
#include "compiler/registers/scratch_plan.h"
#include "compiler/rhythm/rank_rhythm.h"
#include "ops/defs/product_class.h"
#include "runtime/base/alignment.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/product.h"
#include "runtime/base/rate_codec.h"
#include "runtime/base/status.h"
#include "runtime/base/transfer/transfer_codec.h"
#include "runtime/base/transfer/transfer_note_codec.h"

namespace weir::compiler {
namespace {

void SetSlice(const TensorSlice& slice, proto::TensorSliceProto* out) {
  out->set_dtype(Name(slice.dtype));
  out->mutable_shape()->Assign(slice.shape.begin(), slice.shape.end());
  if (slice.is_whole()) return;
  out->mutable_offset()->Assign(slice.offset.begin(), slice.offset.end());
  out->mutable_global_shape()->Assign(slice.global_shape.begin(), slice.global_shape.end());
}

void SetAttrs(const Attributes& attrs, google::protobuf::RepeatedPtrField<proto::NamedAttr>* out) {
  for (const auto& [name, value] : attrs.map()) {
    proto::NamedAttr* attr = out->Add();
    attr->set_name(name);
    if (const auto* i = std::get_if<int64_t>(&value)) attr->mutable_value()->set_i(*i);
    if (const auto* f = std::get_if<double>(&value)) attr->mutable_value()->set_f(*f);
    if (const auto* b = std::get_if<bool>(&value)) attr->mutable_value()->set_b(*b);
    if (const auto* s = std::get_if<std::string>(&value)) attr->mutable_value()->set_s(*s);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      attr->mutable_value()->mutable_ints()->mutable_values()->Assign(list->begin(), list->end());
    }
  }
}

proto::ActorSpec::Phase ToProto(PhaseKind phase) {
  switch (phase) {
    case PhaseKind::kForward: return proto::ActorSpec::FORWARD;
    case PhaseKind::kBackward: return proto::ActorSpec::BACKWARD;
    case PhaseKind::kWeightGradient: return proto::ActorSpec::WEIGHT_GRADIENT;
    case PhaseKind::kUpdate: return proto::ActorSpec::UPDATE;
    case PhaseKind::kBoxing: return proto::ActorSpec::BOXING;
    case PhaseKind::kData: return proto::ActorSpec::DATA;
    case PhaseKind::kMetric: return proto::ActorSpec::METRIC;
  }
  return proto::ActorSpec::NO_PHASE;
}

class RegisterAllocator {
 public:
  RegisterAllocator(const LogicalPlan& plan, const RankGraph& graph,
                    const std::vector<StageTwin>& twins)
      : plan_(plan), graph_(graph), twins_(twins) {}

  absl::StatusOr<PlanAndArenas> Run() {
    out_.set_rank(graph_.rank.value());
    out_.set_num_ranks(static_cast<int>(plan_.places.num_ranks()));
    out_.set_plan_id(plan_.plan_id);
    out_.set_seed(plan_.settings.training.seed);
    out_.set_micro_batches(plan_.micro_batches);
    out_.set_stage(static_cast<int>(graph_.stage));
    out_.set_num_stages(static_cast<int>(plan_.places.size()));
    out_.set_device(DeviceText());
    out_.set_device_kind(plan_.settings.runtime.device);
    out_.set_num_queues(plan_.settings.runtime.device_queues);
    out_.set_depth(plan_.settings.runtime.device_depth);
    out_.set_graphs(GraphUseInPlan());
    WEIR_RETURN_IF_ERROR(CheckSizes(graph_));
    if (plan_.schedule.num_stages > 1) out_.set_schedule(Name(plan_.schedule.kind));
    out_.set_predicted_bubble(plan_.predicted_bubble);
    if (plan_.schedule.virtual_stages > 1)
      out_.set_virtual_stages(static_cast<int>(plan_.schedule.virtual_stages));
    if (!plan_.schedule.is_chain())
      out_.set_stages_in_a_row(static_cast<int>(plan_.schedule.stages_in_a_row()));
    for (const TransferNote& note : graph_.notes) *out_.add_note() = weir::ToProto(note);
    GroupTensors();
    for (ActorId a : graph_.actors.ids()) AddActor(a);
    MoveScratchOfCollectives();
    WEIR_RETURN_IF_ERROR(ApplyRhythm(plan_.rhythm, plan_.updates.every, graph_, readers_, &out_));
    WEIR_RETURN_IF_ERROR(CheckMemory());
    std::vector<StateHome> homes = AddStates();
    MemoryPlacer placer(std::move(homes), LandingOrders(), &out_);
    PlanAndArenas made;
    if (!twins_.empty()) made.arena_bytes = ArenasOfTwins(&placer);
    placer.Place();
    made.plan = std::move(out_);
    return made;
  }

 private:
  // Leaves the slots as they are.
  std::vector<std::optional<int64_t>> ArenasOfTwins(MemoryPlacer* placer) {
    std::vector<std::optional<int64_t>> arenas(twins_.size());
    const std::vector<int> own = Slots();
    if (!slots_are_of_stage_ || !AreWithinLimits()) return arenas;
    for (size_t i = 0; i < twins_.size(); ++i) {
      const std::optional<std::vector<int>> slots = SlotsOn(twins_[i], own);
      if (!slots.has_value()) continue;
      SetSlots(*slots);
      if (!AreWithinLimits()) continue;
      placer->Place();
      arenas[i] = out_.arena_bytes();
    }
    SetSlots(own);
    return arenas;
  }

  std::vector<int> Slots() const {
    std::vector<int> slots;
    for (const proto::RegisterSpec& spec : out_.registers()) slots.push_back(spec.slots());
    return slots;
  }
  void SetSlots(const std::vector<int>& slots) {
    for (int r = 0; r < out_.registers_size(); ++r) out_.mutable_registers(r)->set_slots(slots[r]);
  }

  // Returns the slots on the rank in this position of a twin; none if the times decide about them.
  std::optional<std::vector<int>> SlotsOn(const StageTwin& twin, std::vector<int> slots) const {
    const auto& tensors = plan_.stages[twin.stage].tensors;
    for (RegisterId r : shape_tensors_.ids()) {
      if (!shape_tensors_[r].has_value()) continue;
      const auto& [station, output] = *shape_tensors_[r];
      const auto found = tensors.find({twin.Of(station), output});
      if (found == tensors.end() || found->second.slots == 0) return std::nullopt;
      slots[r.value()] = static_cast<int>(found->second.slots);
    }
    return slots;
  }

  // Returns whether the plan may have these slots. The reader of a plan has the same limits.
  bool AreWithinLimits() const {
    int64_t total = 0;
    for (const proto::RegisterSpec& spec : out_.registers()) {
      if (spec.slots() > plan_limits::kSlotsMax) return false;
      total += spec.slots();
    }
    return total <= plan_limits::kSlotsTotalMax && CheckMemory().ok();
  }

  proto::RankPlan::GraphUse GraphUseInPlan() const {
    switch (plan_.settings.runtime.graphs) {
      case GraphUse::kOn: return proto::RankPlan::GRAPHS_ON;
      case GraphUse::kAuto: return proto::RankPlan::GRAPHS_AUTO;
      case GraphUse::kOff: break;
    }
    return proto::RankPlan::GRAPHS_OFF;
  }

  struct Place {
    RegisterId register_id;  // none: nobody reads it: scratch
    int64_t offset = 0;
  };

  // With the slots that every register has.
  absl::Status CheckMemory() const {
    double registers = 0;
    for (const proto::RegisterSpec& spec : out_.registers())
      registers += static_cast<double>(spec.bytes()) * spec.slots();
    return CheckBytes(graph_, registers);
  }

  std::string DeviceText() const {
    std::string text = absl::StrCat("stage ", graph_.stage);
    sbp::Coords coords = plan_.places.CoordsOf(graph_.rank);
    for (size_t i = 0; i < coords.size(); ++i) {
      absl::StrAppend(&text, ", ", plan_.stage_mesh.axes()[i].name, "=", coords[i]);
    }
    return text;
  }

  // Outputs of one actor with the same readers share a register: fewer messages.
  void GroupTensors() {
    places_.resize(graph_.tensors.size());
    std::map<std::string, RegisterId> groups;
    for (TensorId t : graph_.tensors.ids()) {
      const RankTensor& tensor = graph_.tensors[t];
      bool outbound = tensor.side == proto::RegisterSpec::OUTBOUND;
      if (!tensor.producer.has_value() && tensor.side == proto::RegisterSpec::LOCAL)
        continue;  // of another stage
      if (tensor.consumers.empty() && !outbound && tensor.variable < 0) continue;
      std::string key =
          absl::StrCat(tensor.producer, "|", tensor.tokens_per_step, "|", tensor.every, "|",
                       tensor.variable >= 0, "|", tensor.delay, "|");
      for (ActorId consumer : tensor.consumers) absl::StrAppend(&key, consumer, ",");
      for (const Station& reader : tensor.readers)
        absl::StrAppend(&key, "|", reader.item, ".", reader.index);
      if (tensor.side != proto::RegisterSpec::LOCAL) absl::StrAppend(&key, "edge ", tensor.edge);
      auto known = groups.emplace(key, readers_.next_id());
      if (known.second) AddRegister(tensor);
      const RegisterId id = known.first->second;
      proto::RegisterSpec* spec = out_.mutable_registers(id.value());
      if (!known.second)
        spec->set_name(absl::StrCat(
            spec->name(), spec->name().size() < 60 ? absl::StrCat(", ", tensor.name) : ""));
      places_[t] = {id, spec->bytes()};
      // Wire messages have their exact size; local tensors start on a cache line.
      spec->set_bytes(tensor.side == proto::RegisterSpec::LOCAL
                          ? spec->bytes() + AlignUp(tensor.bytes)
                          : tensor.bytes);
    }
  }

  void AddRegister(const RankTensor& tensor) {
    proto::RegisterSpec* spec = out_.add_registers();
    spec->set_id(out_.registers_size() - 1);
    spec->set_name(tensor.name);
    spec->set_slots(static_cast<int>(GivenSlots(plan_, graph_, tensor)));
    spec->set_tokens_per_step(tensor.tokens_per_step);
    if (tensor.every > 1) spec->set_every(tensor.every);
    spec->set_side(tensor.side);
    if (tensor.side != proto::RegisterSpec::LOCAL) {
      spec->set_peer(tensor.peer.value());
      spec->set_edge(tensor.edge.value());
    }
    spec->set_initial_tokens(static_cast<int>(InitialTokens(tensor)));
    readers_.push_back(tensor.readers);
    if (!twins_.empty()) AddShapeTensor(tensor);
  }

  // Notes where the shape of a stage has the slots of the last register. All other slots are the
  // same in all stages.
  void AddShapeTensor(const RankTensor& tensor) {
    shape_tensors_.emplace_back();
    if (out_.registers(out_.registers_size() - 1).slots() == 0) slots_are_of_stage_ = false;
    if (tensor.side != proto::RegisterSpec::LOCAL || !tensor.producer.has_value()) return;
    if (tensor.output >= 0) {
      const std::pair<Station, int> key(graph_.actors[tensor.producer].station, tensor.output);
      const auto& tensors = plan_.stages[graph_.stage].tensors;
      const auto found = tensors.find(key);
      if (found != tensors.end() && found->second.slots == tensor.slots) {
        shape_tensors_.back() = key;
        return;
      }
    }
    if (tensor.slots == 0 && tensor.tokens_per_step > 1 && !tensor.paces)
      slots_are_of_stage_ = false;
  }

  // Returns the spans of a port of the actor, each of one token of the tensor. Spans over several
  // steps end with a step that updates.
  Span SpanOf(const RankActor& actor, const RankTensor& tensor) const {
    Span span;
    span.period = actor.acts_per_step * tensor.every / (tensor.tokens_per_step * actor.every);
    if (tensor.every > actor.every)
      span.phase = (plan_.updates.every - 1 - plan_.updates.phase) * actor.acts_per_step;
    return span;
  }
  template <typename Port>
  static void SetSpan(const Span& span, Port* port) {
    if (span != Span()) *port->mutable_span() = weir::ToProto(span);
  }

  // Computing, transfers, feeds and metrics have a queue each, as far as there are queues.
  int QueueOf(const RankActor& actor) const {
    int role = actor.phase == PhaseKind::kBoxing || actor.kind == proto::ActorSpec::SEND ? 1 : 0;
    if (actor.kind == proto::ActorSpec::SOURCE) role = 2;
    if (actor.kind == proto::ActorSpec::SINK) role = 3;
    return role % std::max(1, out_.num_queues());
  }

  void AddActor(ActorId a) {
    const RankActor& actor = graph_.actors[a];
    proto::ActorSpec* spec = out_.add_actor();
    spec->set_id(a.value());
    spec->set_name(actor.name);
    spec->set_kind(actor.kind);
    spec->set_priority(SchedulePriority(plan_, graph_, actor));
    const Precedence precedence = SchedulePrecedence(plan_, actor);
    if (!precedence.always_zero()) *spec->mutable_precedence() = weir::ToProto(precedence);
    spec->set_queue(QueueOf(actor));
    *spec->mutable_rate() = weir::ToProto(Rate(actor));
    spec->set_instance(actor.instance);
    spec->set_feed(actor.feed);
    spec->set_function(actor.function);
    spec->set_phase(ToProto(actor.phase));
    if (actor.note >= 0) spec->set_note(actor.note);
    if (actor.kind == proto::ActorSpec::SOURCE)
      SetSlice(actor.feed_slice, spec->mutable_feed_slice());
    if (actor.feed_range.has_value()) {
      spec->mutable_feed_range()->set_below(actor.feed_range->below);
      spec->mutable_feed_range()->set_reader(actor.feed_range->reader);
      if (actor.feed_range->ignored.has_value())
        spec->mutable_feed_range()->set_ignored(*actor.feed_range->ignored);
    }
    std::map<RegisterId, int> in_ports, out_ports;
    for (TensorId input : actor.inputs) {
      const RegisterId id = places_[input].register_id;
      if (!id.has_value() || !in_ports.emplace(id, spec->input_size()).second) continue;
      proto::InputPort* port = spec->add_input();
      port->set_register_id(id.value());
      SetSpan(SpanOf(actor, graph_.tensors[input]), port);
    }
    for (TensorId output : actor.outputs) {
      const RegisterId id = places_[output].register_id;
      if (!id.has_value() || !out_ports.emplace(id, spec->output_size()).second) continue;
      proto::OutputPort* port = spec->add_output();
      port->set_register_id(id.value());
      SetSpan(SpanOf(actor, graph_.tensors[output]), port);
    }
    spec->set_program(actor.chain == nullptr || actor.chain->kernels.empty()
                          ? ProgramId().value()
                          : AddProgram(actor, in_ports, out_ports, spec).value());
  }

  // The ports of the actor by the registers at them.
  ProgramId AddProgram(const RankActor& actor, const std::map<RegisterId, int>& in_ports,
                       const std::map<RegisterId, int>& out_ports, proto::ActorSpec* spec) {
    proto::Program& program = *out_.add_program();
    program.set_name(actor.program);
    const KernelChain& chain = *actor.chain;
    std::vector<ScratchBlock> blocks(chain.scratch.size());
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = {chain.scratch[i], -1, -1, 0};
    std::map<TensorId, int> unread;  // outputs nobody reads, as scratch blocks
    std::map<StateId, int> states;
    auto block_of = [&](const RankOperand& operand) {
      if (operand.kind == RankOperand::kScratch) return operand.index;
      if (operand.kind != RankOperand::kTensor) return -1;
      const TensorId tensor = actor.operands[operand.index];
      if (places_[tensor].register_id.has_value()) return -1;
      auto known = unread.emplace(tensor, static_cast<int>(blocks.size()));
      if (known.second) blocks.push_back({graph_.tensors[tensor].bytes, -1, -1, 0});
      return known.first->second;
    };
    for (size_t k = 0; k < chain.kernels.size(); ++k) {
      for (const auto* list : {&chain.kernels[k].inputs, &chain.kernels[k].outputs}) {
        for (const RankOperand& operand : *list) {
          int block = block_of(operand);
          if (block < 0) continue;
          if (blocks[block].first < 0) blocks[block].first = static_cast<int>(k);
          blocks[block].last = static_cast<int>(k);
        }
      }
    }
    program.set_scratch_bytes(PlanScratch(&blocks));
    auto set_operand = [&](const RankOperand& operand, proto::Operand* out) {
      if (operand.kind == RankOperand::kNone) {
        out->set_place(proto::Operand::NONE);
        return;
      }
      SetSlice(operand.slice, out->mutable_slice());
      int block = block_of(operand);
      if (block >= 0) {
        out->set_place(proto::Operand::SCRATCH);
        out->set_byte_offset(blocks[block].offset);
      } else if (operand.kind == RankOperand::kState) {
        const StateId state = actor.states[operand.index];
        auto known = states.emplace(state, spec->state_size());
        if (known.second) spec->add_state(state.value());
        out->set_place(proto::Operand::STATE);
        out->set_index(known.first->second);
      } else {
        const Place& place = places_[actor.operands[operand.index]];
        auto produced = out_ports.find(place.register_id);
        bool is_output = produced != out_ports.end();
        out->set_place(is_output ? proto::Operand::OUTPUT : proto::Operand::INPUT);
        out->set_index(is_output ? produced->second : in_ports.at(place.register_id));
        out->set_byte_offset(place.offset);
      }
    };
    for (const RankKernel& kernel : chain.kernels) {
      proto::KernelCall* call = program.add_call();
      call->set_op(kernel.op);
      call->set_name(kernel.name.empty() ? actor.name : kernel.name);
      call->set_rng_key(kernel.rng_key);
      SetAttrs(kernel.attrs, call->mutable_attr());
      SetProductWay(kernel, call);
      EncodeTransfer(kernel.transfer, call);
      for (const RankOperand& input : kernel.inputs) set_operand(input, call->add_input());
      for (const RankOperand& output : kernel.outputs) set_operand(output, call->add_output());
    }
    return KnownProgram();
  }

  // Names the way of a product, if the job has one for its class. Kernels do not choose by
  // themselves where a choice may differ from rank to rank.
  void SetProductWay(const RankKernel& kernel, proto::KernelCall* call) const {
    const ProductChoices& products = plan_.products;
    if (products.empty()) return;
    const auto slices_of = [](const std::vector<RankOperand>& operands) {
      std::vector<const TensorSlice*> slices;
      for (const RankOperand& operand : operands)
        slices.push_back(operand.kind == RankOperand::kNone ? nullptr : &operand.slice);
      return slices;
    };
    const std::optional<ProductClass> product = ops::ProductClassOf(
        kernel.op, kernel.attrs, slices_of(kernel.inputs), slices_of(kernel.outputs));
    if (!product.has_value()) return;
    const ProductWay way = products.WayOf(*product);
    if (way != ProductWay::kAutomatic)
      SetAttrs({{kProductWayAttr, Name(way)}}, call->mutable_attr());
  }

  // Other ranks write the results of a collective while this rank acts on. What nobody reads of
  // them lies in scratch, but not where other acts have theirs.
  void MoveScratchOfCollectives() {
    std::set<int> of_collectives;
    for (const proto::ActorSpec& actor : out_.actor()) {
      if (actor.kind() == proto::ActorSpec::COLLECTIVE) of_collectives.insert(actor.program());
    }
    int64_t others = 0;
    for (int p = 0; p < out_.program_size(); ++p) {
      if (of_collectives.count(p) == 0)
        others = std::max(others, AlignUp(out_.program(p).scratch_bytes()));
    }
    for (int p : of_collectives) {
      proto::Program* const program = out_.mutable_program(p);
      if (program->scratch_bytes() == 0) continue;
      program->set_scratch_bytes(program->scratch_bytes() + others);
      for (proto::KernelCall& call : *program->mutable_call()) {
        for (proto::Operand& output : *call.mutable_output()) {
          if (output.place() == proto::Operand::SCRATCH)
            output.set_byte_offset(output.byte_offset() + others);
        }
      }
    }
  }

  // Returns an earlier program that is equal to the last, which then goes, or else the last.
  ProgramId KnownProgram() {
    const ProgramId last(out_.program_size() - 1);
    std::vector<NamedProgram>& alike = programs_[out_.program(last.value()).name()];
    alike.push_back({last, ""});
    if (alike.size() == 1) return last;  // most transfers have a name of their own
    for (NamedProgram& program : alike) {
      if (program.bytes.empty())
        program.bytes = out_.program(program.id.value()).SerializeAsString();
    }
    for (const NamedProgram& program : alike) {
      if (program.id == last) break;
      if (program.bytes != alike.back().bytes) continue;
      const ProgramId known = program.id;
      out_.mutable_program()->RemoveLast();
      alike.pop_back();
      return known;
    }
    return last;
  }

  // Optimiser slots and fetched results first, each with memory of its own; then weights, which lie
  // in their registers.
  std::vector<StateHome> AddStates() {
    std::vector<StateHome> homes;
    for (const RankState& state : graph_.states) {
      proto::StateSpec* spec = AddState(state.name, state.slice, state.layout, state.init);
      spec->set_state_class(state.weight.empty() ? proto::StateSpec::FETCHED
                                                 : proto::StateSpec::OPTIMIZER_SLOT);
      spec->set_weight(state.weight);
      homes.push_back({});
    }
    for (TensorId t : graph_.tensors.ids()) {
      const RankTensor& tensor = graph_.tensors[t];
      if (tensor.variable < 0 || !places_[t].register_id.has_value()) continue;
      const Variable& variable = plan_.module.variables[tensor.variable];
      sbp::Coords coords = plan_.places.CoordsOf(graph_.rank);
      TensorSlice slice =
          sbp::LocalSlice(variable.type, variable.layout, plan_.places.mesh(graph_.stage), coords);
      proto::StateSpec* spec = AddState(variable.name, slice, variable.layout, variable.init);
      spec->set_state_class(variable.slot_of.empty() ? proto::StateSpec::WEIGHT
                                                     : proto::StateSpec::OPTIMIZER_SLOT);
      spec->set_weight(variable.slot_of);
      homes.push_back({places_[t].register_id, places_[t].offset});
    }
    for (TensorId t : graph_.tensors.ids()) AddDelayedGradients(t, &homes);
    return homes;
  }

  std::vector<LandingOrder> LandingOrders() const {
    std::vector<LandingOrder> landings;
    for (TensorId t : graph_.tensors.ids()) {
      const RankTensor::After& after = graph_.tensors[t].written_after;
      if (after.actor.has_value())
        landings.push_back({places_[t].register_id, after.actor, after.lag});
    }
    return landings;
  }

  // Gradients that are under way from step to step have names, so that a checkpoint has them.
  void AddDelayedGradients(TensorId t, std::vector<StateHome>* homes) {
    const RankTensor& tensor = graph_.tensors[t];
    if (tensor.gradient_of < 0 || !places_[t].register_id.has_value()) return;
    const Variable& variable = plan_.module.variables[tensor.gradient_of];
    sbp::Coords coords = plan_.places.CoordsOf(graph_.rank);
    proto::Initializer zeros;
    zeros.set_zeros(true);
    for (int64_t token = 0; token < tensor.delay; ++token) {
      proto::StateSpec* spec = AddState(
          absl::StrCat(variable.name, "/delayed_gradient_", token),
          sbp::LocalSlice(variable.type, variable.layout, plan_.places.mesh(graph_.stage), coords),
          variable.layout, zeros);
      spec->set_state_class(proto::StateSpec::DELAYED_GRADIENT);
      spec->set_weight(variable.name);
      proto::StateSpec::Token* where = spec->mutable_token();
      where->set_register_id(places_[t].register_id.value());
      where->set_token(static_cast<int>(token));
      homes->push_back({places_[t].register_id, places_[t].offset});
    }
  }

  // Returns the new state, to which the caller adds what the state is for.
  proto::StateSpec* AddState(const std::string& name, const TensorSlice& slice,
                             const sbp::Layout& layout, const proto::Initializer& init) {
    proto::StateSpec* spec = out_.add_state();
    spec->set_name(name);
    SetSlice(slice, spec->mutable_slice());
    spec->set_layout(ToText(layout, plan_.stage_mesh));
    *spec->mutable_init() = init;
    sbp::Coords coords = plan_.places.CoordsOf(graph_.rank);
    bool owner = true;
    for (size_t axis = 0; axis < layout.size(); ++axis)
      owner = owner && (!layout[axis].is_broadcast() || coords[axis] == 0);
    spec->set_owner(owner);
    return spec;
  }

  const LogicalPlan& plan_;
  const RankGraph& graph_;
  const std::vector<StageTwin>& twins_;  // whose arenas are wanted, too
  proto::RankPlan out_;
  IdVector<TensorId, Place> places_;
  IdVector<RegisterId, std::vector<Station>> readers_;  // on all ranks of the stage
  // Known if there are twins. By register: its first tensor in StageShape::tensors; none: its slots
  // do not depend on a stage.
  IdVector<RegisterId, std::optional<std::pair<Station, int>>> shape_tensors_;
  bool slots_are_of_stage_ = true;  // times decide about no slots, and the shape has all others
  struct NamedProgram {
    ProgramId id;
    std::string bytes;  // empty until another program has the name
  };
  absl::flat_hash_map<std::string, std::vector<NamedProgram>> programs_;  // by name
};

}  // namespace

absl::StatusOr<proto::RankPlan> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph) {
  WEIR_ASSIGN_OR_RETURN(PlanAndArenas made, AllocateRegisters(plan, graph, {}));
  return std::move(made.plan);
}

absl::StatusOr<PlanAndArenas> AllocateRegisters(const LogicalPlan& plan, const RankGraph& graph,
                                                const std::vector<StageTwin>& twins) {
  return RegisterAllocator(plan, graph, twins).Run();
}

}  // namespace weir::compiler
