#include "compiler/lower/rank_lowering.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/ir/rank_builder.h"
#include "compiler/lower/drop_useless_actors.h"
#include "compiler/lower/known_calls.h"
#include "compiler/lower/order_memory.h"
#include "compiler/lower/slot_policy.h"
#include "compiler/transfer/transfer_lowering.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// Over TCP, a message of up to one segment of the transport (runtime/transport/ucx_context.h)
// leaves without asking the receiver first, and while it travels the next one is packed. Inside
// hosts there is nothing to ask, and larger messages are fewer.
constexpr int64_t kChunkBytesBetweenHosts = 254 << 10;

using plan_limits::kBytesMax;  // more than any message has

class RankLowering {
 public:
  // `shape`: of the rank's stage; null: this lowering makes it, and stands for all ranks of the
  // stage.
  RankLowering(const LogicalPlan& plan, RankId rank, const StageShape* shape, KnownCalls* known,
               TransferFactory* transfers)
      : plan_(plan),
        module_(plan.module),
        stage_(plan.places.PlaceOf(rank)),
        rings_(plan, stage_),
        shape_(shape),
        known_(known),
        builder_(plan, rank),
        graph_(builder_.graph()),
        transfers_(*transfers) {
    of_value_.resize(module_.values.size());
  }

  absl::StatusOr<RankGraph> Run() {
    WEIR_RETURN_IF_ERROR(LowerItems());
    if (shape_->gate.has_value()) AddGate(*shape_->gate);
    ConnectConsumers();
    TakeReaders();
    OrderMemory(plan_, rings_, shape_->orders, &graph_);
    return builder_.TakeGraph();
  }

  absl::StatusOr<StageShape> RunForStage() {
    WEIR_RETURN_IF_ERROR(LowerItems());
    StageShape shape;
    if (plan_.schedule.gates_backward()) shape.gate = FindGate();
    if (shape.gate.has_value()) AddGate(*shape.gate);
    ConnectConsumers();
    for (RankTensor& tensor : graph_.tensors) {
      if (tensor.side != proto::RegisterSpec::LOCAL || !tensor.producer.has_value()) continue;
      tensor.readers.clear();
      for (ActorId consumer : tensor.consumers)
        tensor.readers.push_back(graph_.actors[consumer].station);
      shape.tensors[{graph_.actors[tensor.producer].station, tensor.output}] = {
          tensor.readers, GivenSlots(plan_, graph_, tensor)};
    }
    shape.orders = FindMemoryOrders(plan_, rings_, graph_);
    OrderMemory(plan_, rings_, shape.orders, &graph_);
    shape.graph = builder_.TakeGraph();
    return shape;
  }

 private:
  absl::Status LowerItems() {
    for (size_t i = 0; i < module_.items.size(); ++i) {
      const ProgramItem& item = module_.items[i];
      builder_.BeginItem(static_cast<int>(i));
      switch (item.kind) {
        case ItemKind::kSource: LowerSource(item); break;
        case ItemKind::kSink: LowerSink(item); break;
        case ItemKind::kKeep: LowerKeep(item); break;
        case ItemKind::kCall: WEIR_RETURN_IF_ERROR(LowerCall(item)); break;
        case ItemKind::kBoxing: WEIR_RETURN_IF_ERROR(LowerBoxingItem(item)); break;
      }
    }
    DelayGradients();
    DropUselessActors(&graph_);
    return absl::OkStatus();
  }

  // The tensor of a program value on this rank; variables come to be when first asked for,
  // since their producer (the update) stands after their readers.
  TensorId TensorOf(int value) {
    if (!of_value_[value].has_value()) {
      const ProgramValue& v = module_.values[value];
      of_value_[value] =
          builder_.AddTensor(v.name, builder_.Local(v.type, v.layout).bytes(),
                             builder_.Tokens(v.frequency), builder_.Every(v.frequency));
      graph_.tensors[of_value_[value]].variable = v.variable;
    }
    return of_value_[value];
  }

  int64_t StageOfItem(const ProgramItem& item) const {
    return module_.values[item.outputs.empty() ? item.inputs[0] : item.outputs[0]].stage;
  }

  void LowerSource(const ProgramItem& item) {
    if (StageOfItem(item) != stage_) return;
    const ProgramValue& value = module_.values[item.outputs[0]];
    RankActor actor = builder_.MakeActor(item.name);
    actor.kind = proto::ActorSpec::SOURCE;
    actor.feed = item.feed;
    actor.feed_slice = builder_.Local(value.type, value.layout);
    actor.feed_range = item.range;
    actor.outputs = {TensorOf(item.outputs[0])};
    builder_.AddActor(std::move(actor));
  }

  void LowerSink(const ProgramItem& item) {
    // The first rank reports; it stands for the stage, too.
    if (StageOfItem(item) != stage_ || plan_.places.DeviceOf(builder_.rank()) != 0) return;
    RankActor actor = builder_.MakeActor(item.name);
    actor.kind = proto::ActorSpec::SINK;
    actor.feed = item.feed;
    actor.inputs = {TensorOf(item.inputs[0])};
    builder_.AddActor(std::move(actor));
  }

  void LowerKeep(const ProgramItem& item) {
    if (StageOfItem(item) != stage_) return;
    RankActor actor = builder_.MakeActor(item.name);
    for (int output : item.outputs) actor.outputs.push_back(TensorOf(output));
    builder_.AddActor(std::move(actor));
  }

  // ---- calls ----

  absl::Status LowerCall(const ProgramItem& item) {
    if (StageOfItem(item) != stage_) return absl::OkStatus();
    const Function& function = module_.functions[item.function];
    WEIR_ASSIGN_OR_RETURN(const KnownCalls::KnownFunction* known,
                          known_->FunctionOf(item.function, builder_));
    const SegmentedFunction& segmented = known->segmented;
    // Tensors of this call's values that cross segments or leave the call.
    std::vector<TensorId> tensor_of(function.values.size());
    for (size_t a = 0; a < function.args.size(); ++a) {
      if (item.inputs[a] >= 0) tensor_of[function.args[a].value] = TensorOf(item.inputs[a]);
    }
    const std::vector<std::optional<Frequency>> escapes = Escapes(function, *known, item);
    size_t next_transfer = 0;
    for (size_t s = 0; s < segmented.segments.size(); ++s) {
      LowerSegment(item, function, *known, s, escapes, &tensor_of);
      builder_.NextStation();
      while (next_transfer < segmented.transfers.size() &&
             segmented.transfers[next_transfer].depth == static_cast<int>(s)) {
        const TransferBundle& bundle = segmented.transfers[next_transfer];
        std::vector<TensorId> inputs;
        for (int node : bundle.nodes) inputs.push_back(tensor_of[function.nodes[node].inputs[0]]);
        std::string name = absl::StrCat(
            item.name, ": ", function.values[function.nodes[bundle.nodes[0]].inputs[0]].name,
            bundle.nodes.size() > 1 ? absl::StrCat(" +", bundle.nodes.size() - 1) : "");
        std::vector<TensorId> outputs = LowerTransfers(
            name, next_transfer + 1, transfers_.Joined(bundle.moved.At(stage_)), inputs,
            {item.function, WhyOf(function, function.nodes[bundle.nodes[0]])});
        for (size_t k = 0; k < bundle.nodes.size(); ++k)
          tensor_of[function.nodes[bundle.nodes[k]].outputs[0]] = outputs[k];
        ++next_transfer;
      }
    }
    if (next_transfer != segmented.transfers.size()) {
      return absl::InternalError(
          absl::StrCat(item.name, ": transfers are not in the order of their segments"));
    }
    for (size_t r = 0; r < function.results.size(); ++r)
      of_value_[item.outputs[r]] =
          MergeResult(item.outputs[r], tensor_of[function.results[r].value]);
    return absl::OkStatus();
  }

  // A program value already asked for (a variable) keeps its tensor; else it takes the call's.
  TensorId MergeResult(int value, TensorId tensor) {
    return of_value_[value].has_value() ? of_value_[value] : tensor;
  }

  // Returns, by value, the rate of the tokens of a value that is read outside its segment.
  std::vector<std::optional<Frequency>> Escapes(const Function& function,
                                                const KnownCalls::KnownFunction& known,
                                                const ProgramItem& item) const {
    std::vector<std::optional<Frequency>> escapes(function.values.size());
    for (size_t value = 0; value < escapes.size(); ++value) {
      if (known.crosses[value]) escapes[value] = item.frequency;
    }
    for (size_t r = 0; r < function.results.size(); ++r) {
      const Result& result = function.results[r];
      if (known.home[result.value] >= 0)
        escapes[result.value] =
            result.per_step ? module_.values[item.outputs[r]].frequency : item.frequency;
    }
    return escapes;
  }

  // The program value, if any, that `value` of this call becomes and that exists already (a
  // variable).
  int KnownResult(const Function& function, const ProgramItem& item, ops::ValueId value) const {
    for (size_t r = 0; r < function.results.size(); ++r) {
      if (function.results[r].value == value && module_.values[item.outputs[r]].variable >= 0)
        return item.outputs[r];
    }
    return -1;
  }

  void LowerSegment(const ProgramItem& item, const Function& function,
                    const KnownCalls::KnownFunction& known, size_t s,
                    const std::vector<std::optional<Frequency>>& escapes,
                    std::vector<TensorId>* tensor_of) {
    const std::vector<std::vector<int>>& segments = known.segmented.segments;
    if (segments[s].empty()) return;
    RankActor actor =
        builder_.MakeActor(segments.size() > 1 ? absl::StrCat(item.name, " #", s) : item.name);
    actor.program = segments.size() > 1 ? absl::StrCat(function.name, " #", s) : function.name;
    for (ops::ValueId value : known.outputs[s]) {
      if (!escapes[value].has_value()) continue;
      const int result = KnownResult(function, item, value);
      (*tensor_of)[value] =
          result >= 0
              ? TensorOf(result)
              : builder_.AddTensor(absl::StrCat(item.name, ": ", function.values[value].name),
                                   known.slices[value].bytes(), builder_.Tokens(*escapes[value]),
                                   builder_.Every(*escapes[value]));
      actor.outputs.push_back((*tensor_of)[value]);
    }
    const KnownCalls::KnownChain& chain =
        known_->ChainOf(item.function, s, *tensor_of, builder_, &actor.operands);
    actor.chain = chain.kernels;
    for (ops::ValueId value : chain.states) actor.states.push_back(StateOf(item, function, value));
    RankBuilder::CollectInputs(&actor);
    builder_.AddActor(std::move(actor));
  }

  StateId StateOf(const ProgramItem& item, const Function& function, ops::ValueId value) {
    size_t k = std::distance(function.states.begin(), function.states.find(value));
    const ItemState& spec = item.states[k];
    const auto [known, is_new] = state_of_.emplace(spec.name, graph_.states.next_id());
    if (!is_new) return known->second;
    RankState state;
    state.name = spec.name;
    state.weight = spec.weight;
    state.layout = spec.layout;
    state.slice = builder_.Local(function.values[value].type, state.layout);
    state.init.set_zeros(true);
    graph_.states.push_back(std::move(state));
    return known->second;
  }

  // ---- transfers ----

  // Returns the largest message of a transfer, which stays inside hosts or does not.
  static int64_t ChunkBytes(const LogicalPlan& plan, bool stays_in_hosts) {
    const RankId last(static_cast<int32_t>(plan.places.num_ranks() - 1));
    const bool crosses = !stays_in_hosts && plan.places.HostOf(last) > 0;
    return plan.settings.runtime.chunk_bytes_max == 0 && crosses ? kChunkBytesBetweenHosts
                                                                 : plan.chunk_bytes_max;
  }

  // Returns why a boxing of a function is there: the reasons for the layout in which the tensor
  // arrives, on the axes that change; else the reasons for that layout as a whole, and the reader.
  static LayoutReasons WhyOf(const Function& function, const Node& boxing) {
    const Value& from = function.values[boxing.inputs[0]];
    const Value& to = function.values[boxing.outputs[0]];
    LayoutReasons why = ReasonsOfChange(from.why, from.layout, to.layout);
    if (!why.empty()) return why;
    std::copy_if(from.why.begin(), from.why.end(), std::back_inserter(why),
                 [](const LayoutReason& reason) { return reason.axis < 0; });
    why.insert(why.end(), to.why.begin(), to.why.end());
    return why;
  }

  // The origin of the transfers of a bundle, for their notes.
  struct Origin {
    int function = -1;  // whose calls share notes; -1: an item of the program
    LayoutReasons why;
  };

  // Returns the place of a note among those of the graph; -1 if nobody reads notes here.
  int NoteOf(const MovedTensors& moved, size_t bundle, size_t k, const Origin& origin) {
    if (shape_ == nullptr) return -1;
    if (origin.function < 0) return AddNote(moved, k, origin.why);
    const auto [known, is_new] = note_of_.try_emplace({origin.function, bundle, k}, -1);
    if (is_new) known->second = AddNote(moved, k, origin.why);
    return known->second;
  }

  int AddNote(const MovedTensors& moved, size_t k, const LayoutReasons& why) {
    const sbp::BoxingStep& step = moved.steps()[0][k];
    TransferNote note;
    note.method = Name(step.method);
    if (transfers_.IsCollective(moved, k)) note.method = absl::StrCat("group ", note.method);
    note.from_stage = static_cast<int32_t>(step.from.place);
    note.to_stage = static_cast<int32_t>(step.to.place);
    std::vector<const sbp::BoxingStep*> changes;
    for (const std::vector<sbp::BoxingStep>& steps : moved.steps()) {
      const auto same = [&](const sbp::BoxingStep* known) {
        return known->from.layout == steps[k].from.layout && known->to.layout == steps[k].to.layout;
      };
      const auto at = std::find_if(changes.begin(), changes.end(), same);
      if (at != changes.end()) {
        ++note.changes[static_cast<size_t>(at - changes.begin())].tensors;
        continue;
      }
      changes.push_back(&steps[k]);
      note.changes.push_back({ToText(steps[k].from.layout, moved.places().mesh(step.from.place)),
                              ToText(steps[k].to.layout, moved.places().mesh(step.to.place)), 1});
    }
    for (const LayoutReason& reason : why) {
      note.why.push_back(
          {Name(reason.kind),
           reason.axis < 0 ? std::string() : plan_.stage_mesh.axes()[reason.axis].name,
           ToText(reason)});
    }
    const auto known = std::find(graph_.notes.begin(), graph_.notes.end(), note);
    const auto place = static_cast<int>(known - graph_.notes.begin());
    if (known == graph_.notes.end()) graph_.notes.push_back(std::move(note));
    return place;
  }

  // Lowers all transfers of a bundle, one after another. inputs[i] is the tensor of
  // moved.types()[i] here, or none if this rank is not among the senders; so is the result for the
  // tensors that arrive.
  std::vector<TensorId> LowerTransfers(const std::string& name, size_t bundle,
                                       const MovedTensors& moved, std::vector<TensorId> inputs,
                                       const Origin& origin) {
    for (size_t k = 0; k < moved.num_transfers(); ++k) {
      const int item = builder_.item_index();
      TransferOptions options;
      const sbp::BoxingStep& step = moved.steps()[0][k];
      const std::optional<bool> stays =
          sbp::StaysInHosts(step, moved.places(), plan_.places.host_cut(step.to.place));
      const int64_t chunk_bytes =
          k == 0 && rings_.LandsWhole(item) ? kBytesMax : ChunkBytes(plan_, stays.value_or(false));
      options.name =
          absl::StrCat(Name(step.method),
                       stays.has_value() ? (*stays ? " in hosts " : " between hosts ") : " ", name);
      options.key = MixKey(static_cast<uint64_t>(item), bundle * 64 + k);
      options.note = NoteOf(moved, bundle, k, origin);
      options.chunk_elements = std::max<int64_t>(1, chunk_bytes / SizeOf(moved.types()[0].dtype));
      inputs = AddTransfer(*transfers_.Make(moved, k, std::move(options)),
                           shape_ == nullptr ? LoweredFor::kStage : LoweredFor::kRank, inputs,
                           &builder_);
    }
    return inputs;
  }

  absl::Status LowerBoxingItem(const ProgramItem& item) {
    int64_t from_stage = module_.values[item.inputs[0]].stage,
            to_stage = module_.values[item.outputs[0]].stage;
    if (from_stage != stage_ && to_stage != stage_) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(const MovedTensors moved, transfers_.Plan(module_, item, plan_.places));
    std::vector<TensorId> inputs;
    for (int input : item.inputs)
      inputs.push_back(module_.values[input].stage == stage_ ? TensorOf(input) : TensorId());
    std::vector<TensorId> outputs = LowerTransfers(item.name, 0, moved, inputs, {-1, item.why});
    for (size_t i = 0; i < item.outputs.size(); ++i) {
      if (module_.values[item.outputs[i]].stage == stage_) of_value_[item.outputs[i]] = outputs[i];
    }
    return absl::OkStatus();
  }

  void DelayGradients() {
    for (size_t v = 0; v < module_.values.size(); ++v) {
      if (module_.values[v].delay == 0 || !of_value_[v].has_value()) continue;
      graph_.tensors[of_value_[v]].delay = module_.values[v].delay;
      graph_.tensors[of_value_[v]].gradient_of = module_.values[v].gradient_of;
    }
  }

  // GPipe: the backward pass of the loss begins when this rank has done its last forward pass of
  // the step. All other backward acts follow from that one.
  std::optional<StageShape::Gate> FindGate() const {
    if (plan_.mode != PlanMode::kTrain) return std::nullopt;
    const int loss_call = module_.model.values[module_.model.loss].call;
    const RankActor *last_forward = nullptr, *first_backward = nullptr;
    for (const RankActor& actor : graph_.actors) {
      if (static_cast<int64_t>(actor.instance) != loss_call ||
          actor.acts_per_step != plan_.micro_batches)
        continue;
      if (actor.phase == PhaseKind::kForward) last_forward = &actor;
      if (actor.phase == PhaseKind::kBackward && first_backward == nullptr) first_backward = &actor;
    }
    if (last_forward == nullptr || first_backward == nullptr) return std::nullopt;
    return StageShape::Gate{last_forward->station, first_backward->station};
  }

  // A token without bytes: made once a step, read by every micro-batch.
  void AddGate(const StageShape::Gate& stations) {
    const auto at = [&](const Station& station) {
      return std::find_if(graph_.actors.begin(), graph_.actors.end(),
                          [&](const RankActor& actor) { return actor.station == station; });
    };
    const auto before = at(stations.before), after = at(stations.after);
    if (before == graph_.actors.end() || after == graph_.actors.end()) return;
    const TensorId gate = builder_.AddTensor("all forward passes are done", 0, 1, 1);
    graph_.tensors[gate].producer = ActorId(static_cast<int>(before - graph_.actors.begin()));
    graph_.tensors[gate].readers = {stations.after};
    before->outputs.push_back(gate);
    after->inputs.push_back(gate);
  }

  void TakeReaders() {
    for (RankTensor& tensor : graph_.tensors) {
      if (tensor.side != proto::RegisterSpec::LOCAL || !tensor.producer.has_value() ||
          tensor.output < 0)
        continue;
      const auto known =
          shape_->tensors.find({graph_.actors[tensor.producer].station, tensor.output});
      if (known == shape_->tensors.end()) continue;
      tensor.readers = known->second.readers;
      tensor.slots = known->second.slots;
    }
  }

  void ConnectConsumers() {
    for (ActorId a : graph_.actors.ids()) {
      for (TensorId input : graph_.actors[a].inputs) graph_.tensors[input].consumers.push_back(a);
    }
  }

  const LogicalPlan& plan_;
  const Module& module_;
  const int64_t stage_;
  const MemoryRings rings_;
  const StageShape* const shape_;
  KnownCalls* const known_;
  RankBuilder builder_;
  RankGraph& graph_;  // the builder's
  TransferFactory& transfers_;
  std::vector<TensorId> of_value_;           // by program value
  std::map<std::string, StateId> state_of_;  // by name
  // The notes of transfers in functions, by function, bundle and transfer of the bundle.
  std::map<std::tuple<int, size_t, size_t>, int> note_of_;
};

}  // namespace

absl::Status ShapeStages(LogicalPlan* plan) {
  plan->stages.clear();
  KnownCalls known;
  TransferFactory transfers(plan->settings.runtime);
  for (int64_t stage = 0; stage < plan->places.size(); ++stage) {
    WEIR_ASSIGN_OR_RETURN(StageShape shape, RankLowering(*plan, plan->places.RankAt(stage, 0),
                                                         nullptr, &known, &transfers)
                                                .RunForStage());
    plan->stages.push_back(std::move(shape));
  }
  return absl::OkStatus();
}

absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, RankId rank) {
  KnownCalls known;
  TransferFactory transfers(plan.settings.runtime);
  return LowerToRankGraph(plan, rank, &known, &transfers);
}

absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, RankId rank, KnownCalls* known,
                                           TransferFactory* transfers) {
  return RankLowering(plan, rank, &plan.stages[plan.places.PlaceOf(rank)], known, transfers).Run();
}

}  // namespace weir::compiler
