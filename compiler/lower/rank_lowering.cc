#include "compiler/lower/rank_lowering.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/lower/drop_useless_actors.h"
#include "compiler/lower/largest_shard.h"
#include "compiler/lower/order_memory.h"
#include "compiler/lower/segments.h"
#include "compiler/lower/slot_policy.h"
#include "runtime/base/plan_limits.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

using plan_limits::kBytesMax;  // more than any message has

// Returns whether a step needs no message, because every rank keeps what it has or a part of it.
bool MovesNothing(const BoxingStep& step) { return IsLocal({step}); }

class RankLowering {
 public:
  // `shape`: of the rank's stage; null: this lowering makes it, and stands for all ranks of the
  // stage.
  RankLowering(const LogicalPlan& plan, int64_t rank, const StageShape* shape)
      : plan_(plan),
        module_(plan.module),
        rank_(rank),
        stage_(plan.mesh.StageOf(rank)),
        rings_(plan, stage_),
        shape_(shape),
        largest_shard_(plan.mesh) {
    coords_ = plan.stage_mesh.CoordsOf(plan.mesh.StageRankOf(rank));
    graph_.rank = rank;
    graph_.stage = stage_;
    of_value_.assign(module_.values.size(), -1);
    FindWaves();
  }

  absl::StatusOr<RankGraph> Run() {
    WEIR_RETURN_IF_ERROR(LowerItems());
    if (shape_->gate.has_value()) AddGate(*shape_->gate);
    ConnectConsumers();
    TakeReaders();
    OrderMemory(plan_, rings_, shape_->orders, &graph_);
    return std::move(graph_);
  }

  absl::StatusOr<StageShape> RunForStage() {
    WEIR_RETURN_IF_ERROR(LowerItems());
    StageShape shape;
    if (plan_.schedule.gates_backward()) shape.gate = FindGate();
    if (shape.gate.has_value()) AddGate(*shape.gate);
    ConnectConsumers();
    for (RankTensor& tensor : graph_.tensors) {
      if (tensor.side != RegisterSpec::LOCAL || tensor.producer < 0) continue;
      tensor.readers.clear();
      for (int consumer : tensor.consumers)
        tensor.readers.push_back(graph_.actors[consumer].station);
      shape.tensors[{graph_.actors[tensor.producer].station, tensor.output}] = {
          tensor.readers, GivenSlots(plan_, graph_, tensor)};
    }
    shape.orders = FindMemoryOrders(plan_, rings_, graph_);
    OrderMemory(plan_, rings_, shape.orders, &graph_);
    for (RankActor& actor : graph_.actors) actor.kernels.clear();  // they are a rank's, and large
    shape.graph = std::move(graph_);
    return shape;
  }

 private:
  absl::Status LowerItems() {
    for (size_t i = 0; i < module_.items.size(); ++i) {
      const ProgramItem& item = module_.items[i];
      item_ = static_cast<int>(i);
      place_ = 0;
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

  int64_t Tokens(Frequency rate) const {
    return rate == Frequency::kMicroBatch ? plan_.micro_batches : 1;
  }
  int64_t Every(Frequency rate) const {
    return rate == Frequency::kUpdate || rate == Frequency::kAfterUpdate ? plan_.updates.every : 1;
  }

  TensorSlice Local(const TensorType& type, const Layout& layout) const {
    return LocalSlice(type, layout, plan_.stage_mesh, coords_);
  }

  int NewTensor(const std::string& name, int64_t bytes, int64_t tokens, int64_t every) {
    RankTensor tensor;
    tensor.every = every;
    tensor.name = name;
    tensor.bytes = bytes;
    tensor.tokens_per_step = tokens;
    graph_.tensors.push_back(std::move(tensor));
    return static_cast<int>(graph_.tensors.size()) - 1;
  }

  // The tensor of a program value on this rank; variables come to be when first asked for,
  // since their producer (the update) stands after their readers.
  int TensorOf(int value) {
    if (of_value_[value] < 0) {
      const ProgramValue& v = module_.values[value];
      of_value_[value] =
          NewTensor(v.name, Local(v.type, v.layout).bytes(), Tokens(v.rate), Every(v.rate));
      graph_.tensors[of_value_[value]].variable = v.variable;
    }
    return of_value_[value];
  }

  RankActor MakeActor(const ProgramItem& item, const std::string& name) const {
    RankActor actor;
    actor.name = name;
    actor.station = {item_, place_};
    actor.phase = item.phase;
    actor.wave = waves_[item_];
    actor.part = item.part;
    actor.instance = item.instance;
    actor.acts_per_step = Tokens(item.rate);
    actor.every = Every(item.rate);
    actor.every_phase = item.rate == Frequency::kUpdate ? plan_.updates.phase : 0;
    actor.function = item.name;
    return actor;
  }

  int64_t StageOfItem(const ProgramItem& item) const {
    return module_.values[item.outputs.empty() ? item.inputs[0] : item.outputs[0]].stage;
  }

  int AddActor(RankActor actor) {
    int id = static_cast<int>(graph_.actors.size());
    for (size_t i = 0; i < actor.outputs.size(); ++i) {
      graph_.tensors[actor.outputs[i]].producer = id;
      graph_.tensors[actor.outputs[i]].output = static_cast<int>(i);
    }
    graph_.actors.push_back(std::move(actor));
    return id;
  }

  // Returns the pass that an item works for. A boxing works for the pass of the value that it
  // moves.
  void FindWaves() {
    waves_.assign(module_.items.size(), Wave::kNone);
    std::vector<int> producer(module_.values.size(), -1);
    for (size_t i = 0; i < module_.items.size(); ++i) {
      for (int output : module_.items[i].outputs) producer[output] = static_cast<int>(i);
    }
    for (size_t i = 0; i < module_.items.size(); ++i) {
      const ProgramItem& item = module_.items[i];
      if (item.phase == PhaseKind::kForward || item.phase == PhaseKind::kData)
        waves_[i] = Wave::kForward;
      if (item.phase == PhaseKind::kBackward) waves_[i] = Wave::kBackward;
      if (item.phase == PhaseKind::kWeightGradient) waves_[i] = Wave::kWeightGradient;
      if (item.kind == ItemKind::kBoxing && item.rate == Frequency::kMicroBatch) {
        int from = producer[item.inputs[0]];
        waves_[i] = from >= 0 && from < static_cast<int>(i) ? waves_[from] : Wave::kNone;
      }
    }
  }

  void LowerSource(const ProgramItem& item) {
    if (StageOfItem(item) != stage_) return;
    const ProgramValue& value = module_.values[item.outputs[0]];
    RankActor actor = MakeActor(item, item.name);
    actor.kind = ActorSpec::SOURCE;
    actor.feed = item.feed;
    actor.feed_slice = Local(value.type, value.layout);
    actor.feed_range = item.range;
    actor.outputs = {TensorOf(item.outputs[0])};
    AddActor(std::move(actor));
  }

  void LowerSink(const ProgramItem& item) {
    // The first rank reports; it stands for the stage, too.
    if (StageOfItem(item) != stage_ || plan_.mesh.StageRankOf(rank_) != 0) return;
    RankActor actor = MakeActor(item, item.name);
    actor.kind = ActorSpec::SINK;
    actor.feed = item.feed;
    actor.inputs = {TensorOf(item.inputs[0])};
    AddActor(std::move(actor));
  }

  void LowerKeep(const ProgramItem& item) {
    if (StageOfItem(item) != stage_) return;
    RankActor actor = MakeActor(item, item.name);
    for (int output : item.outputs) actor.outputs.push_back(TensorOf(output));
    AddActor(std::move(actor));
  }

  // ---- calls ----

  absl::StatusOr<const SegmentedFunction*> Segmented(int function) {
    auto known = segmented_.find(function);
    if (known != segmented_.end()) return &known->second;
    WEIR_ASSIGN_OR_RETURN(SegmentedFunction segments,
                          CutSegments(module_.functions[function], plan_.mesh));
    return &(segmented_[function] = std::move(segments));
  }

  absl::Status LowerCall(const ProgramItem& item) {
    if (StageOfItem(item) != stage_) return absl::OkStatus();
    const Function& function = module_.functions[item.function];
    WEIR_ASSIGN_OR_RETURN(const SegmentedFunction* segmented, Segmented(item.function));
    // Tensors of this call's values that cross segments or leave the call.
    std::vector<int> tensor_of(function.values.size(), -1);
    for (size_t a = 0; a < function.args.size(); ++a) {
      if (item.inputs[a] >= 0) tensor_of[function.args[a].value] = TensorOf(item.inputs[a]);
    }
    std::map<ValueId, Frequency> escapes = Escapes(function, *segmented, item);
    size_t next_transfer = 0;
    for (size_t s = 0; s < segmented->segments.size(); ++s) {
      WEIR_RETURN_IF_ERROR(LowerSegment(item, function, *segmented, s, escapes, &tensor_of));
      ++place_;
      while (next_transfer < segmented->transfers.size() &&
             segmented->transfers[next_transfer].depth == static_cast<int>(s)) {
        const TransferBundle& bundle = segmented->transfers[next_transfer];
        std::vector<TensorType> types;
        std::vector<int> inputs;
        for (int node : bundle.nodes) {
          types.push_back(function.values[function.nodes[node].inputs[0]].type);
          inputs.push_back(tensor_of[function.nodes[node].inputs[0]]);
        }
        std::vector<std::vector<BoxingStep>> steps = bundle.steps;
        for (auto& list : steps) {
          for (BoxingStep& step : list) step.from.stage = step.to.stage = stage_;
        }
        std::string name = absl::StrCat(
            item.name, ": ", function.values[function.nodes[bundle.nodes[0]].inputs[0]].name,
            bundle.nodes.size() > 1 ? absl::StrCat(" +", bundle.nodes.size() - 1) : "");
        std::vector<int> outputs =
            LowerTransfer(item, name, next_transfer + 1, types, steps, inputs);
        for (size_t k = 0; k < bundle.nodes.size(); ++k)
          tensor_of[function.nodes[bundle.nodes[k]].outputs[0]] = outputs[k];
        ++next_transfer;
      }
    }
    if (next_transfer != segmented->transfers.size()) {
      return absl::InternalError(
          absl::StrCat(item.name, ": transfers are not in the order of their segments"));
    }
    for (size_t r = 0; r < function.results.size(); ++r)
      of_value_[item.outputs[r]] =
          MergeResult(item.outputs[r], tensor_of[function.results[r].value]);
    return absl::OkStatus();
  }

  // A program value already asked for (a variable) keeps its tensor; else it takes the call's.
  int MergeResult(int value, int tensor) {
    return of_value_[value] >= 0 ? of_value_[value] : tensor;
  }

  // Values computed in one segment and read elsewhere, with the rate of their tokens.
  std::map<ValueId, Frequency> Escapes(const Function& function, const SegmentedFunction& segmented,
                                       const ProgramItem& item) const {
    std::vector<int> home(function.values.size(), -1);
    for (size_t s = 0; s < segmented.segments.size(); ++s) {
      for (int node : segmented.segments[s]) {
        for (ValueId output : function.nodes[node].outputs) home[output] = static_cast<int>(s);
      }
    }
    std::map<ValueId, Frequency> escapes;
    for (size_t s = 0; s < segmented.segments.size(); ++s) {
      for (int node : segmented.segments[s]) {
        for (ValueId input : function.nodes[node].inputs) {
          if (input >= 0 && home[input] >= 0 && home[input] != static_cast<int>(s))
            escapes[input] = item.rate;
        }
      }
    }
    for (const TransferBundle& bundle : segmented.transfers) {
      for (int node : bundle.nodes) {
        ValueId input = function.nodes[node].inputs[0];
        if (home[input] >= 0) escapes[input] = item.rate;
      }
    }
    for (size_t r = 0; r < function.results.size(); ++r) {
      const Result& result = function.results[r];
      if (home[result.value] >= 0)
        escapes[result.value] = result.per_step ? module_.values[item.outputs[r]].rate : item.rate;
    }
    return escapes;
  }

  // The program value, if any, that `value` of this call becomes and that exists already (a
  // variable).
  int KnownResult(const Function& function, const ProgramItem& item, ValueId value) const {
    for (size_t r = 0; r < function.results.size(); ++r) {
      if (function.results[r].value == value && module_.values[item.outputs[r]].variable >= 0)
        return item.outputs[r];
    }
    return -1;
  }

  absl::Status LowerSegment(const ProgramItem& item, const Function& function,
                            const SegmentedFunction& segmented, size_t s,
                            const std::map<ValueId, Frequency>& escapes,
                            std::vector<int>* tensor_of) {
    const std::vector<int>& nodes = segmented.segments[s];
    if (nodes.empty()) return absl::OkStatus();
    RankActor actor = MakeActor(
        item, segmented.segments.size() > 1 ? absl::StrCat(item.name, " #", s) : item.name);
    actor.program =
        absl::StrCat(function.name, segmented.segments.size() > 1 ? absl::StrCat(" #", s) : "");
    std::set<ValueId> inside;
    for (int node : nodes)
      inside.insert(function.nodes[node].outputs.begin(), function.nodes[node].outputs.end());
    for (ValueId value : inside) {
      auto escape = escapes.find(value);
      if (escape == escapes.end()) continue;
      int known = KnownResult(function, item, value);
      const Value& v = function.values[value];
      (*tensor_of)[value] = known >= 0 ? TensorOf(known)
                                       : NewTensor(absl::StrCat(item.name, ": ", v.name),
                                                   Local(v.type, v.layout).bytes(),
                                                   Tokens(escape->second), Every(escape->second));
      actor.outputs.push_back((*tensor_of)[value]);
    }
    std::map<ValueId, ValueId> place = ShareReshapes(function, segmented, nodes, *tensor_of);
    auto operand = [&](ValueId value) {
      RankOperand out;
      if (value < 0) return out;
      out.slice = Local(function.values[value].type, function.values[value].layout);
      auto shared = place.find(value);
      ValueId at = shared == place.end() ? value : shared->second;
      if (function.states.count(at) > 0) {
        out.kind = RankOperand::kState;
        out.index = StateOf(item, function, at);
      } else if ((*tensor_of)[at] >= 0) {
        out.kind = RankOperand::kTensor;
        out.index = (*tensor_of)[at];
      } else {
        out.kind = RankOperand::kScratch;
        auto known = scratch_.find(at);
        if (known == scratch_.end()) {
          known = scratch_.emplace(at, static_cast<int>(actor.scratch.size())).first;
          actor.scratch.push_back(
              Local(function.values[at].type, function.values[at].layout).bytes());
        }
        out.index = known->second;
      }
      return out;
    };
    scratch_.clear();
    for (int index : nodes) {
      const Node& node = function.nodes[index];
      if (node.op == kBoxingOp && !segmented.local_boxings.at(index).empty()) {
        AppendLocalBoxing(function, node, segmented.local_boxings.at(index),
                          operand(node.inputs[0]), operand(node.outputs[0]), &actor);
        continue;
      }
      if (node.op == "reshape" || node.op == kBoxingOp) {
        RankOperand from = operand(node.inputs[0]), to = operand(node.outputs[0]);
        if (from.kind == to.kind && from.index == to.index) continue;
      }
      RankKernel kernel{
          node.op == kBoxingOp ? "reshape" : node.op, node.name, node.attrs, {}, {}, node.rng_key};
      for (ValueId input : node.inputs) kernel.inputs.push_back(operand(input));
      for (ValueId output : node.outputs) kernel.outputs.push_back(operand(output));
      const OpDef* def = OpRegistry::Find(kernel.op);
      bool variadic = !def->schema.inputs.empty() && def->schema.inputs.back().variadic;
      if (!variadic) kernel.inputs.resize(def->schema.inputs.size());
      bool variadic_out = !def->schema.outputs.empty() && def->schema.outputs.back().variadic;
      if (!variadic_out) kernel.outputs.resize(def->schema.outputs.size());
      actor.kernels.push_back(std::move(kernel));
    }
    CollectInputs(&actor);
    AddActor(std::move(actor));
    return absl::OkStatus();
  }

  // Inputs of an actor: every tensor its kernels read that it does not produce.
  static void CollectInputs(RankActor* actor) {
    std::set<int> seen(actor->outputs.begin(), actor->outputs.end());
    for (const RankKernel& kernel : actor->kernels) {
      for (const RankOperand& input : kernel.inputs) {
        if (input.kind == RankOperand::kTensor && seen.insert(input.index).second)
          actor->inputs.push_back(input.index);
      }
    }
  }

  int StateOf(const ProgramItem& item, const Function& function, ValueId value) {
    size_t k = std::distance(function.states.begin(), function.states.find(value));
    const std::string& name = item.state_names[k];
    const auto [known, is_new] = state_of_.emplace(name, static_cast<int>(graph_.states.size()));
    if (!is_new) return known->second;
    RankState state;
    state.name = name;
    state.layout = item.state_layouts[k];
    state.slice = Local(function.values[value].type, state.layout);
    state.init.set_zeros(true);
    graph_.states.push_back(std::move(state));
    return known->second;
  }

  void AppendLocalBoxing(const Function& function, const Node& node, std::vector<BoxingStep> steps,
                         RankOperand in, RankOperand out, RankActor* actor) {
    const TensorType& type = function.values[node.inputs[0]].type;
    for (size_t k = 0; k < steps.size(); ++k) {
      steps[k].from.stage = steps[k].to.stage = stage_;
      RankExchange exchange = BuildExchange({type}, {steps[k]}, plan_.mesh, rank_);
      in.slice = StepInput(type, steps[k], plan_.mesh, rank_);
      RankOperand target = out;
      if (k + 1 < steps.size()) {
        target.kind = RankOperand::kScratch;
        target.index = static_cast<int>(actor->scratch.size());
        actor->scratch.push_back(StepOutput(type, steps[k], plan_.mesh, rank_).bytes());
      }
      target.slice = StepOutput(type, steps[k], plan_.mesh, rank_);
      actor->kernels.push_back(
          FillKernel(node.name, exchange, {in}, {}, {target}, {}, int64_t{1} << 62));
      in = target;
    }
  }

  // ---- transfers ----

  RankKernel FillKernel(const std::string& name, const RankExchange& exchange,
                        std::vector<RankOperand> own, std::vector<RankOperand> messages,
                        std::vector<RankOperand> outputs, const std::vector<int64_t>& peers,
                        int64_t chunk_elements) const {
    RankKernel kernel;
    kernel.op = "exchange_fill";
    kernel.name = name;
    std::vector<int64_t> code;
    for (const Region& region : exchange.regions) {
      code.push_back(region.tensor);
      code.push_back(region.combiner == Combiner::kMax ? 1 : 0);
      AppendRect(region.dst, &code);
      code.push_back(static_cast<int64_t>(region.sources.size()));
      for (const RegionSource& source : region.sources) {
        if (source.from == rank_) {
          code.push_back(-1);
          AppendRect(source.src, &code);
        } else {
          code.push_back(std::lower_bound(peers.begin(), peers.end(), source.from) - peers.begin());
        }
      }
    }
    kernel.attrs.Set("num_own", static_cast<int64_t>(own.size()));
    kernel.attrs.Set("regions", std::move(code));
    kernel.attrs.Set("chunk_elements", chunk_elements);
    kernel.inputs = std::move(own);
    kernel.inputs.insert(kernel.inputs.end(), messages.begin(), messages.end());
    kernel.outputs = std::move(outputs);
    return kernel;
  }

  static void AppendRect(const Rect& rect, std::vector<int64_t>* code) {
    code->push_back(static_cast<int64_t>(rect.begin.size()));
    code->insert(code->end(), rect.begin.begin(), rect.begin.end());
    code->insert(code->end(), rect.end.begin(), rect.end.end());
  }

  uint64_t EdgeOf(size_t bundle, size_t step, int64_t from, int64_t to) const {
    uint64_t key = MixKey(static_cast<uint64_t>(item_), bundle * 64 + step);
    return MixKey(key, static_cast<uint64_t>(from * plan_.mesh.num_ranks() + to));
  }

  // All steps of a bundle. inputs[i] is the tensor of types[i] here, or -1 if this rank is not
  // among the senders; the result likewise.
  std::vector<int> LowerTransfer(const ProgramItem& item, const std::string& name, size_t bundle,
                                 const std::vector<TensorType>& types,
                                 const std::vector<std::vector<BoxingStep>>& steps,
                                 std::vector<int> inputs) {
    for (size_t k = 0; k < steps[0].size(); ++k) {
      std::vector<BoxingStep> now;
      for (const auto& list : steps) now.push_back(list[k]);
      std::string step_name = absl::StrCat(Name(now[0].method), " ", name);
      graph_.exchanges.push_back({item_, place_});
      int64_t element = SizeOf(types[0].dtype);
      const int64_t chunk_bytes =
          k == 0 && rings_.LandsWhole(item_) ? kBytesMax : plan_.chunk_bytes_max;
      int64_t chunk_elements = std::max<int64_t>(1, chunk_bytes / element);
      if (shape_ == nullptr) {
        inputs = LowerForStage(item, step_name, types, now, inputs, chunk_elements);
        continue;
      }
      RankExchange exchange = BuildExchange(types, now, plan_.mesh, rank_);
      std::vector<RankOperand> sources;
      for (size_t i = 0; i < types.size() && !exchange.sends.empty(); ++i) {
        sources.push_back(
            {RankOperand::kTensor, inputs[i], StepInput(types[i], now[i], plan_.mesh, rank_)});
      }
      // Each rank begins with the rank after it, so that none of them is sent to by all at once.
      auto next = exchange.sends.upper_bound(rank_);
      std::vector<int> sends;
      for (size_t i = 0; i < exchange.sends.size(); ++i, ++next) {
        if (next == exchange.sends.end()) next = exchange.sends.begin();
        const auto& [peer, pieces] = *next;
        sends.push_back(AddSend(item, step_name, EdgeOf(bundle, k, rank_, peer), sources, peer,
                                pieces, exchange.receiver_elements.at(peer), chunk_elements));
      }
      ++place_;
      inputs =
          AddFill(item, step_name, bundle, k, types, now, inputs, exchange, chunk_elements, sends);
      ++place_;
    }
    return inputs;
  }

  // An exchange as all ranks of the stage have it, taken together: one send of all that moves, one
  // fill.
  std::vector<int> LowerForStage(const ProgramItem& item, const std::string& name,
                                 const std::vector<TensorType>& types,
                                 const std::vector<BoxingStep>& steps,
                                 const std::vector<int>& inputs, int64_t chunk_elements) {
    const int64_t elements = largest_shard_.Elements(types, steps, chunk_elements);
    const int64_t chunks = std::max<int64_t>(1, (elements + chunk_elements - 1) / chunk_elements);
    const auto add = [&](ActorSpec::Kind kind, const std::vector<int>& read,
                         const std::vector<int>& made) {
      RankActor actor = MakeActor(item, name);
      actor.kind = kind;
      actor.phase = PhaseKind::kBoxing;
      actor.chunks = chunks;
      actor.acts_per_step = chunks * Tokens(item.rate);
      for (int input : read) {
        if (input >= 0 &&
            std::find(actor.inputs.begin(), actor.inputs.end(), input) == actor.inputs.end())
          actor.inputs.push_back(input);
      }
      actor.outputs = made;
      AddActor(std::move(actor));
    };
    const auto message = [&](RegisterSpec::Side side, int64_t peer) {
      const int tensor =
          NewTensor(name, std::min(elements, chunk_elements) * SizeOf(types[0].dtype),
                    chunks * Tokens(item.rate), Every(item.rate));
      graph_.tensors[tensor].side = side;
      graph_.tensors[tensor].peer = peer;
      return tensor;
    };
    const int64_t from = steps[0].from.stage, to = steps[0].to.stage;
    std::vector<int> moved;
    for (size_t i = 0; i < types.size(); ++i) {
      if (!MovesNothing(steps[i])) moved.push_back(inputs[i]);
    }
    if (stage_ == from && !moved.empty())
      add(ActorSpec::SEND, moved, {message(RegisterSpec::OUTBOUND, plan_.mesh.GlobalRank(to, 0))});
    ++place_;
    std::vector<int> outputs(types.size(), -1);
    if (stage_ == to) {
      std::vector<int> read = stage_ == from ? inputs : std::vector<int>();
      if (!moved.empty())
        read.push_back(message(RegisterSpec::INBOUND, plan_.mesh.GlobalRank(from, 0)));
      for (size_t i = 0; i < types.size(); ++i) {
        outputs[i] = NewTensor(name, StepOutput(types[i], steps[i], plan_.mesh, rank_).bytes(),
                               Tokens(item.rate), Every(item.rate));
      }
      add(ActorSpec::COMPUTE, read, outputs);
    }
    ++place_;
    return outputs;
  }

  // `sources`: by tensor of the exchange, what of it is here.
  int AddSend(const ProgramItem& item, const std::string& name, uint64_t edge,
              const std::vector<RankOperand>& sources, int64_t peer,
              const std::vector<Piece>& pieces, int64_t receiver_elements, int64_t chunk_elements) {
    int64_t element = SizeOf(sources[0].slice.dtype), total = 0;
    RankActor actor = MakeActor(item, absl::StrCat(name, " to rank ", peer));
    actor.kind = ActorSpec::SEND;
    actor.phase = PhaseKind::kBoxing;
    actor.chunks = std::max<int64_t>(1, (receiver_elements + chunk_elements - 1) / chunk_elements);
    actor.acts_per_step = actor.chunks * Tokens(item.rate);
    actor.program = actor.name;
    RankKernel kernel;
    kernel.op = "exchange_pack";
    kernel.name = actor.name;
    std::vector<int64_t> code;
    std::map<int, int> operand_of;
    for (const Piece& piece : pieces) {
      auto known = operand_of.emplace(piece.tensor, static_cast<int>(kernel.inputs.size()));
      if (known.second) kernel.inputs.push_back(sources[piece.tensor]);
      code.push_back(known.first->second);
      code.push_back(piece.position);
      AppendRect(piece.src, &code);
      total += piece.src.volume();
    }
    kernel.attrs.Set("pieces", std::move(code));
    kernel.attrs.Set("chunk_elements", chunk_elements);
    int64_t slot_elements = std::min(total, chunk_elements);
    int message = NewTensor(absl::StrCat(name, " rank ", rank_, " to ", peer),
                            slot_elements * element, actor.acts_per_step, actor.every);
    graph_.tensors[message].side = RegisterSpec::OUTBOUND;
    graph_.tensors[message].peer = peer;
    graph_.tensors[message].edge = edge;
    kernel.outputs.push_back({RankOperand::kTensor, message,
                              TensorSlice::Whole(sources[0].slice.dtype, {slot_elements})});
    actor.kernels.push_back(std::move(kernel));
    actor.outputs = {message};
    CollectInputs(&actor);
    return AddActor(std::move(actor));
  }

  // A rank that had all chunks of an exchange, and not yet credit for its last ones to others,
  // would begin with what comes next, and all others would wait for those chunks until that act,
  // however long, is over. So the fill of a chunk waits until this rank has sent that chunk to
  // everybody. Where senders and receivers have different numbers of chunks, nothing is said; a
  // single chunk has its slot.
  void AddPace(int send, RankActor* fill) {
    RankActor& sender = graph_.actors[send];
    if (fill->chunks == 1 || sender.chunks != fill->chunks) return;
    const int pace =
        NewTensor(absl::StrCat(sender.name, ": sent"), 0, fill->acts_per_step, fill->every);
    graph_.tensors[pace].paces = true;
    graph_.tensors[pace].readers = {fill->station};
    graph_.tensors[pace].producer = send;
    sender.outputs.push_back(pace);
    fill->inputs.push_back(pace);
  }

  std::vector<int> AddFill(const ProgramItem& item, const std::string& name, size_t bundle,
                           size_t step_index, const std::vector<TensorType>& types,
                           const std::vector<BoxingStep>& steps, const std::vector<int>& inputs,
                           const RankExchange& exchange, int64_t chunk_elements,
                           const std::vector<int>& sends) {
    std::vector<int> outputs(types.size(), -1);
    if (plan_.mesh.StageOf(rank_) != steps[0].to.stage) return outputs;
    int64_t element = SizeOf(types[0].dtype), positions = 0;
    for (const Region& region : exchange.regions) positions += region.dst.volume();
    RankActor actor = MakeActor(item, name);
    actor.phase = PhaseKind::kBoxing;
    actor.chunks = std::max<int64_t>(1, (positions + chunk_elements - 1) / chunk_elements);
    actor.acts_per_step = actor.chunks * Tokens(item.rate);
    actor.program = name;
    std::vector<RankOperand> own, messages, targets;
    for (size_t i = 0; i < types.size(); ++i) {
      bool here = plan_.mesh.StageOf(rank_) == steps[i].from.stage && inputs[i] >= 0;
      own.push_back(here ? RankOperand{RankOperand::kTensor, inputs[i],
                                       StepInput(types[i], steps[i], plan_.mesh, rank_)}
                         : RankOperand{});
      TensorSlice slice = StepOutput(types[i], steps[i], plan_.mesh, rank_);
      outputs[i] = NewTensor(name, slice.bytes(), Tokens(item.rate), Every(item.rate));
      targets.push_back({RankOperand::kTensor, outputs[i], slice});
    }
    std::vector<int64_t> peers;
    for (const auto& [peer, elements] : exchange.receives) {
      peers.push_back(peer);
      int64_t slot_elements = std::min(elements, chunk_elements);
      int message = NewTensor(absl::StrCat(name, " rank ", peer, " to ", rank_),
                              slot_elements * element, actor.acts_per_step, actor.every);
      graph_.tensors[message].side = RegisterSpec::INBOUND;
      graph_.tensors[message].peer = peer;
      graph_.tensors[message].edge = EdgeOf(bundle, step_index, peer, rank_);
      messages.push_back(
          {RankOperand::kTensor, message, TensorSlice::Whole(types[0].dtype, {slot_elements})});
    }
    actor.kernels.push_back(
        FillKernel(name, exchange, own, messages, targets, peers, chunk_elements));
    actor.outputs = outputs;
    CollectInputs(&actor);
    if (!messages.empty()) {
      for (int send : sends) AddPace(send, &actor);
    }
    AddActor(std::move(actor));
    return outputs;
  }

  absl::Status LowerBoxingItem(const ProgramItem& item) {
    std::vector<TensorType> types;
    std::vector<std::vector<BoxingStep>> steps;
    std::vector<int> inputs;
    int64_t from_stage = module_.values[item.inputs[0]].stage,
            to_stage = module_.values[item.outputs[0]].stage;
    if (from_stage != stage_ && to_stage != stage_) return absl::OkStatus();
    for (size_t i = 0; i < item.inputs.size(); ++i) {
      const ProgramValue& from = module_.values[item.inputs[i]];
      const ProgramValue& to = module_.values[item.outputs[i]];
      types.push_back(from.type);
      WEIR_ASSIGN_OR_RETURN(
          std::vector<BoxingStep> list,
          PlanBoxing(from.type, {from.layout, from.stage}, {to.layout, to.stage}, plan_.mesh));
      steps.push_back(std::move(list));
      inputs.push_back(from.stage == stage_ ? TensorOf(item.inputs[i]) : -1);
    }
    std::vector<int> outputs = LowerTransfer(item, item.name, 0, types, steps, inputs);
    for (size_t i = 0; i < item.outputs.size(); ++i) {
      if (module_.values[item.outputs[i]].stage == stage_) of_value_[item.outputs[i]] = outputs[i];
    }
    return absl::OkStatus();
  }

  void DelayGradients() {
    for (size_t v = 0; v < module_.values.size(); ++v) {
      if (module_.values[v].delay == 0 || of_value_[v] < 0) continue;
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
    int gate = NewTensor("all forward passes are done", 0, 1, 1);
    graph_.tensors[gate].producer = static_cast<int>(before - graph_.actors.begin());
    graph_.tensors[gate].readers = {stations.after};
    before->outputs.push_back(gate);
    after->inputs.push_back(gate);
  }

  void TakeReaders() {
    for (RankTensor& tensor : graph_.tensors) {
      if (tensor.side != RegisterSpec::LOCAL || tensor.producer < 0 || tensor.output < 0) continue;
      const auto known =
          shape_->tensors.find({graph_.actors[tensor.producer].station, tensor.output});
      if (known == shape_->tensors.end()) continue;
      tensor.readers = known->second.readers;
      tensor.slots = known->second.slots;
    }
  }

  void ConnectConsumers() {
    for (size_t a = 0; a < graph_.actors.size(); ++a) {
      for (int input : graph_.actors[a].inputs)
        graph_.tensors[input].consumers.push_back(static_cast<int>(a));
    }
  }

  const LogicalPlan& plan_;
  const Module& module_;
  int64_t rank_, stage_;
  const MemoryRings rings_;
  const StageShape* const shape_;
  Coords coords_;
  RankGraph graph_;
  int item_ = 0;
  int place_ = 0;  // of the next actor within its item; moves on alike on every rank
  std::vector<int> of_value_;
  std::vector<Wave> waves_;
  std::map<int, SegmentedFunction> segmented_;
  std::map<std::string, int> state_of_;  // by name: index in graph_.states
  std::map<ValueId, int> scratch_;
  LargestShard largest_shard_;
};

}  // namespace

absl::Status ShapeStages(LogicalPlan* plan) {
  plan->stages.clear();
  for (int64_t stage = 0; stage < plan->mesh.num_stages(); ++stage) {
    WEIR_ASSIGN_OR_RETURN(
        StageShape shape,
        RankLowering(*plan, plan->mesh.GlobalRank(stage, 0), nullptr).RunForStage());
    plan->stages.push_back(std::move(shape));
  }
  return absl::OkStatus();
}

absl::StatusOr<RankGraph> LowerToRankGraph(const LogicalPlan& plan, int64_t rank) {
  if (rank < 0 || rank >= plan.mesh.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", plan.mesh.num_ranks()));
  }
  return RankLowering(plan, rank, &plan.stages[plan.mesh.StageOf(rank)]).Run();
}

}  // namespace weir::compiler
