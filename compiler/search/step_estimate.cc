#include "compiler/search/step_estimate.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace weir::compiler {
namespace {

// The largest tensors between calls that are alive at once in an evaluation.
constexpr double kBordersAlive = 3;

// Time on the device, and on links while the device may do other work.
struct Time {
  double device_ns = 0, link_ns = 0;
  void Add(const BoxingTime& boxing) {
    device_ns += boxing.device_ns;
    link_ns += boxing.link_ns;
  }
};

// A CallCost is what one call of a function adds to a step.
struct CallCost {
  // These costs arise in each micro-batch.
  double forward_ns = 0, backward_ns = 0;  // kernels and acts
  double boxing_ns = 0;                    // until the tensors of the passes have arrived
  Time weights, gradients;                 // gathered and reduced for each micro-batch
  // These costs arise once a step.
  double update_ns = 0;
  Time step_weights, step_gradients;
  double sent_bytes = 0, step_sent_bytes = 0;
  // Bytes.
  double held_bytes = 0;  // over the step
  double kept_bytes = 0;  // of a micro-batch, from forward to backward
  double work_bytes = 0;  // while the call is at work
  // The bytes of an evaluation beside the training, which has its own weights and tensors.
  double evaluation_weights_bytes = 0;
  double evaluation_work_bytes = 0;  // while the call is at work
};

class Estimator {
 public:
  Estimator(const LogicalPlan& plan, const CostModel& costs, BoxingCosts* boxings)
      : plan_(plan), module_(plan.module), costs_(costs), boxings_(*boxings) {
    FindOwners();
    for (const ProgramItem& item : module_.items) {
      if (item.kind == ItemKind::kCall) AddCall(item);
      if (item.kind == ItemKind::kBoxing) AddBoxing(item);
    }
    AddBytes();
    AddBorders();
  }

  // Returns the costs of a call, by function. Calls of one function in the plan count with their
  // mean.
  std::map<std::string, CallCost> PerCall() const {
    std::map<std::string, CallCost> costs;
    for (const auto& [name, sum] : sums_) {
      CallCost cost = sum;
      const double share = 1 / std::max(1.0, calls_.at(name));
      for (double* part :
           {&cost.forward_ns, &cost.backward_ns, &cost.boxing_ns, &cost.weights.device_ns,
            &cost.weights.link_ns, &cost.gradients.device_ns, &cost.gradients.link_ns,
            &cost.update_ns, &cost.step_weights.device_ns, &cost.step_weights.link_ns,
            &cost.step_gradients.device_ns, &cost.step_gradients.link_ns, &cost.sent_bytes,
            &cost.step_sent_bytes, &cost.held_bytes, &cost.kept_bytes,
            &cost.evaluation_weights_bytes})
        *part *= share;
      costs[name] = cost;
    }
    return costs;
  }

  // The largest tensor that passes from call to call, which stages send each other.
  const BoxingTime& border() const { return border_; }
  double border_bytes() const { return border_bytes_; }

 private:
  static double TimesPerStep(const LogicalPlan& plan, Frequency frequency) {
    return static_cast<double>(TimesPerUpdate(plan, frequency)) /
           static_cast<double>(plan.updates.every);
  }
  bool IsEachMicroBatch(const ProgramItem& item) const {
    return item.frequency == Frequency::kMicroBatch;
  }

  const std::string& NameOf(int call) const {
    const ModelCall& of = module_.model.calls[call];
    return module_.functions[module_.model.functions[of.model_function].forward].name;
  }

  // Finds the call of the model that each value belongs to, and which values are weights.
  void FindOwners() {
    for (size_t c = 0; c < module_.model.calls.size(); ++c)
      calls_[NameOf(static_cast<int>(c))] += 1;
    owner_.assign(module_.values.size(), 0);
    is_weight_.assign(module_.values.size(), 0);
    by_forward_.assign(module_.values.size(), 0);
    read_by_model_.assign(module_.values.size(), 0);
    read_by_backward_.assign(module_.values.size(), 0);
    std::vector<char> of_model(module_.functions.size(), 0);
    for (const ModelFunction& function : module_.model.functions) {
      for (int f : {function.forward, function.backward, function.weight_gradient}) {
        if (f >= 0) of_model[f] = 1;
      }
    }
    for (const ProgramItem& item : module_.items) {
      if (item.kind != ItemKind::kCall || item.phase != PhaseKind::kUpdate) continue;
      for (int output : item.outputs) {
        if (module_.values[output].variable < 0) continue;
        owner_[output] = static_cast<int>(item.instance);
        is_weight_[output] = 1;
      }
    }
    for (const Variable& variable : module_.variables) is_weight_[variable.value] = 1;
    for (const ProgramItem& item : module_.items) {
      const bool is_call = item.kind == ItemKind::kCall;
      const bool is_of_model = is_call && of_model[item.function] != 0;
      int owner = static_cast<int>(item.instance);
      if (!is_call && !item.inputs.empty()) owner = owner_[item.inputs[0]];
      bool weights = !item.inputs.empty();
      for (int input : item.inputs) {
        if (input < 0) continue;
        weights = weights && is_weight_[input] != 0;
        if (is_of_model) read_by_model_[input] = 1;
        if (is_of_model && item.phase != PhaseKind::kForward) read_by_backward_[input] = 1;
      }
      for (int output : item.outputs) {
        if (output < 0 || is_weight_[output] != 0) continue;
        owner_[output] = owner;
        is_weight_[output] = weights && !is_of_model;
        by_forward_[output] =
            item.kind == ItemKind::kSource || (is_of_model && item.phase == PhaseKind::kForward);
      }
    }
    // If the model reads the result of a boxing, the model also reads the operand of the boxing.
    for (size_t i = module_.items.size(); i-- > 0;) {
      const ProgramItem& item = module_.items[i];
      if (item.kind != ItemKind::kBoxing) continue;
      for (size_t k = 0; k < item.inputs.size(); ++k)
        read_by_model_[item.inputs[k]] |= read_by_model_[item.outputs[k]];
    }
  }

  CallCost& CostOf(int call) { return sums_[NameOf(call)]; }

  TensorSlice Slice(const Value& value) const {
    return sbp::LocalSlice(value.type, value.layout, plan_.stage_mesh,
                           sbp::Coords(plan_.stage_mesh.num_axes(), 0));
  }

  struct FunctionCost {
    double kernels_ns = 0, boxing_ns = 0, sent_bytes = 0;
    double work_bytes = 0;  // the most bytes of its own tensors that are alive at once
  };

  // Returns the bytes of those tensors of a function that are neither its inputs nor its results,
  // at the node where they are most.
  double WorkBytes(const Function& function) const {
    constexpr int kNotOwn = -1;
    std::vector<int> last_reader(function.values.size(), kNotOwn);
    for (size_t n = 0; n < function.nodes.size(); ++n) {
      for (ops::ValueId output : function.nodes[n].outputs)
        last_reader[output] = static_cast<int>(n);
      for (ops::ValueId input : function.nodes[n].inputs) {
        if (input >= 0 && last_reader[input] != kNotOwn) last_reader[input] = static_cast<int>(n);
      }
    }
    for (const Result& result : function.results) last_reader[result.value] = kNotOwn;
    std::vector<double> freed(function.nodes.size(), 0);
    double alive = 0, most = 0;
    for (size_t n = 0; n < function.nodes.size(); ++n) {
      for (ops::ValueId output : function.nodes[n].outputs) {
        const Value& value = function.values[output];
        if (last_reader[output] == kNotOwn || value.layout.empty()) continue;
        const double bytes = static_cast<double>(Slice(value).bytes());
        alive += bytes;
        freed[last_reader[output]] += bytes;
      }
      most = std::max(most, alive);
      alive -= freed[n];
    }
    return most;
  }

  const FunctionCost& OfFunction(int index) {
    const auto [known, is_new] = functions_.try_emplace(index);
    FunctionCost& cost = known->second;
    if (!is_new) return cost;
    const Function& function = module_.functions[index];
    cost.kernels_ns = static_cast<double>(costs_.ActNs());
    cost.work_bytes = WorkBytes(function);
    for (const Node& node : function.nodes) {
      if (node.op == kBoxingOp) {
        const Value &from = function.values[node.inputs[0]], &to = function.values[node.outputs[0]];
        const BoxingTime& time = boxings_.Of(from.type, from.layout, to.layout);
        cost.boxing_ns += time.AloneNs();
        cost.sent_bytes += time.sent_bytes;
        if (time.exchanges > 0) cost.kernels_ns += static_cast<double>(costs_.ActNs());
        continue;
      }
      KernelUse use{node.op, node.attrs, {}, {}};
      for (ops::ValueId input : node.inputs)
        use.inputs.push_back(input < 0 ? TensorSlice::Whole(DType::kF32, {0})
                                       : Slice(function.values[input]));
      for (ops::ValueId output : node.outputs)
        use.outputs.push_back(Slice(function.values[output]));
      cost.kernels_ns += static_cast<double>(costs_.KernelNs(use));
    }
    return cost;
  }

  void AddCall(const ProgramItem& item) {
    CallCost& cost = CostOf(static_cast<int>(item.instance));
    const FunctionCost& of = OfFunction(item.function);
    cost.work_bytes = std::max(cost.work_bytes, of.work_bytes);
    if (item.phase == PhaseKind::kForward)
      cost.evaluation_work_bytes = std::max(cost.evaluation_work_bytes, of.work_bytes);
    if (!IsEachMicroBatch(item)) {
      cost.update_ns += TimesPerStep(plan_, item.frequency) * (of.kernels_ns + of.boxing_ns);
      return;
    }
    (item.phase == PhaseKind::kForward ? cost.forward_ns : cost.backward_ns) += of.kernels_ns;
    cost.boxing_ns += of.boxing_ns;
    cost.sent_bytes += of.sent_bytes;
  }

  void AddBoxing(const ProgramItem& item) {
    for (size_t i = 0; i < item.inputs.size(); ++i) {
      const ProgramValue &from = module_.values[item.inputs[i]],
                         &to = module_.values[item.outputs[i]];
      CallCost& cost = CostOf(owner_[item.inputs[i]]);
      const bool weight = is_weight_[item.inputs[i]] != 0;
      const bool gradient = !weight && read_by_model_[item.inputs[i]] == 0;
      // As MemoryRings::LandsWhole of the lowering.
      const bool whole = IsEachMicroBatch(item) && plan_.settings.runtime.chunk_bytes_max == 0 &&
                         (weight || (gradient && plan_.settings.training.zero_stage >= 2));
      const BoxingTime& time =
          boxings_.Of(from.type, from.layout, to.layout,
                      whole ? ExchangePieces::kWhole : ExchangePieces::kChunks);
      // Without micro-batches to add up, gradients leave once a step, whatever their frequency.
      const bool once = !IsEachMicroBatch(item) || (gradient && plan_.micro_batches == 1);
      if (!once) {
        cost.sent_bytes += time.sent_bytes;
        if (weight || gradient) {
          (weight ? cost.weights : cost.gradients).Add(time);
        } else {
          cost.boxing_ns += time.AloneNs();
        }
      } else {
        const double times = TimesPerStep(plan_, item.frequency);
        Time& sum = weight ? cost.step_weights : cost.step_gradients;
        sum.device_ns += times * time.device_ns;
        sum.link_ns += times * time.link_ns;
        cost.step_sent_bytes += times * time.sent_bytes;
      }
    }
  }

  void AddBytes() {
    for (size_t v = 0; v < module_.values.size(); ++v) {
      const ProgramValue& value = module_.values[v];
      CallCost& cost = CostOf(owner_[v]);
      const double bytes = boxings_.LocalBytes(value.type, value.layout);
      if (value.frequency != Frequency::kMicroBatch) {
        cost.held_bytes += bytes;
        if (is_weight_[v] != 0) cost.evaluation_weights_bytes += bytes;
      } else if (by_forward_[v] != 0 && read_by_backward_[v] != 0) {
        cost.kept_bytes += bytes;
      } else if (is_weight_[v] != 0) {
        cost.work_bytes += bytes;
      } else if (by_forward_[v] == 0 && read_by_model_[v] == 0) {
        // A gradient of a parameter is alive until the update, which waits for all of them.
        cost.held_bytes += bytes;
      }
    }
    for (const ProgramItem& item : module_.items) {
      if (item.kind != ItemKind::kCall) continue;
      const Function& function = module_.functions[item.function];
      size_t s = 0;
      for (const auto& [value, name] : function.states) {
        const ItemState& state = item.states[s++];
        if (state.weight.empty()) continue;
        CostOf(static_cast<int>(item.instance)).held_bytes +=
            boxings_.LocalBytes(function.values[value].type, state.layout);
      }
    }
  }

  void AddBorders() {
    for (const ModelCall& call : module_.model.calls) {
      const ModelFunction& of = module_.model.functions[call.model_function];
      const Function& function = module_.functions[of.forward];
      for (int r = 0; r < of.num_results; ++r) {
        const Value& value = function.values[function.results[r].value];
        const double bytes = boxings_.LocalBytes(value.type, value.layout);
        if (value.type.dims.empty() || bytes <= border_bytes_) continue;
        border_bytes_ = bytes;
        border_ = boxings_.ToNextStage(value.type, value.layout);
      }
    }
  }

  const LogicalPlan& plan_;
  const Module& module_;
  const CostModel& costs_;
  BoxingCosts& boxings_;
  std::vector<int> owner_;  // by program value: call of the model
  std::vector<char> is_weight_, by_forward_, read_by_model_, read_by_backward_;
  std::map<std::string, double> calls_;  // in the plan
  std::map<std::string, CallCost> sums_;
  std::map<int, FunctionCost> functions_;
  BoxingTime border_;
  double border_bytes_ = 0;
};

// Returns what is left of `time` if the links may work for `hidden_ns` while the device does.
double Exposed(const Time& time, double hidden_ns) {
  return time.device_ns + std::max(0.0, time.link_ns - hidden_ns);
}

// The parts of a stage's time.
struct StageTime {
  double compute_ns = 0, boxing_ns = 0, weights_ns = 0, gradients_ns = 0;  // of a micro-batch
  double step_ns = 0, step_weights_ns = 0, step_gradients_ns = 0;
  double bytes = 0, evaluation_bytes = 0, sent_bytes = 0, step_sent_bytes = 0;
  double MicroBatchNs() const { return compute_ns + boxing_ns + weights_ns + gradients_ns; }
  double OnceNs() const { return step_ns + step_weights_ns + step_gradients_ns; }
};

StageTime TimeOf(const std::map<std::string, CallCost>& costs,
                 const std::map<std::string, double>& calls, double in_flight) {
  StageTime stage;
  Time step_weights, step_gradients;
  double forward_ns = 0, backward_ns = 0, work_bytes = 0, largest_link_ns = 0;
  double evaluation_work_bytes = 0;
  for (const auto& [name, count] : calls) {
    const auto found = costs.find(name);
    if (found == costs.end()) continue;
    const CallCost& cost = found->second;
    forward_ns += count * cost.forward_ns;
    backward_ns += count * cost.backward_ns;
    stage.boxing_ns += count * cost.boxing_ns;
    // A call's weights travel while the call before computes; a gradient, while the next one does.
    stage.weights_ns += count * Exposed(cost.weights, cost.forward_ns + cost.backward_ns);
    stage.gradients_ns += count * Exposed(cost.gradients, cost.backward_ns);
    stage.step_ns += count * cost.update_ns;
    step_weights.device_ns += count * cost.step_weights.device_ns;
    step_weights.link_ns += count * cost.step_weights.link_ns;
    step_gradients.device_ns += count * cost.step_gradients.device_ns;
    step_gradients.link_ns += count * cost.step_gradients.link_ns;
    largest_link_ns = std::max(largest_link_ns, cost.step_gradients.link_ns);
    stage.bytes += count * (cost.held_bytes + in_flight * cost.kept_bytes);
    stage.sent_bytes += count * cost.sent_bytes;
    stage.step_sent_bytes += count * cost.step_sent_bytes;
    work_bytes = std::max(work_bytes, cost.work_bytes);
    stage.evaluation_bytes += count * cost.evaluation_weights_bytes;
    evaluation_work_bytes = std::max(evaluation_work_bytes, cost.evaluation_work_bytes);
  }
  stage.compute_ns = forward_ns + backward_ns;
  stage.bytes += work_bytes;
  stage.evaluation_bytes += evaluation_work_bytes;
  // Gradients travel while the last backward pass goes on, but for those of its last call.
  stage.step_gradients_ns =
      Exposed(step_gradients, std::min(backward_ns, step_gradients.link_ns - largest_link_ns));
  stage.step_weights_ns = Exposed(step_weights, forward_ns);
  return stage;
}

// Returns the time of a micro-batch on its way through the stages: the sum over a chain, the
// longest sum of a way where stages stand side by side.
double LongestWay(const PipelineSchedule& schedule, const std::vector<double>& stage_ns) {
  if (!schedule.is_placed()) return std::accumulate(stage_ns.begin(), stage_ns.end(), 0.0);
  std::vector<int64_t> order(stage_ns.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return schedule.StagesAfter(a) > schedule.StagesAfter(b);
  });
  std::vector<double> until(stage_ns.size(), 0);
  for (const int64_t s : order) {
    for (const int64_t before : schedule.stages_before[s])
      until[s] = std::max(until[s], until[before]);
    until[s] += stage_ns[s];
  }
  return *std::max_element(until.begin(), until.end());
}

}  // namespace

double ModelShape::CallsOf(const std::string& function) const {
  double sum = 0;
  for (const std::map<std::string, double>& of_stage : calls) {
    const auto found = of_stage.find(function);
    if (found != of_stage.end()) sum += found->second;
  }
  return sum;
}

StepEstimate EstimateStep(const LogicalPlan& plan, const ModelShape& shape, const CostModel& costs,
                          BoxingCosts* boxings) {
  const Estimator estimator(plan, costs, boxings);
  const std::map<std::string, CallCost> per_call = estimator.PerCall();
  const double micro_batches = static_cast<double>(plan.micro_batches);
  const size_t stages = shape.calls.size();
  StageTime slowest;
  StepEstimate estimate;
  double once_ns = 0;
  std::vector<double> stage_ns;  // of a micro-batch, by stage
  for (size_t s = 0; s < stages; ++s) {
    double in_flight = 0;
    for (size_t part = s; part < shape.schedule.in_flight.size(); part += stages)
      in_flight += static_cast<double>(shape.schedule.in_flight[part]);
    in_flight /= static_cast<double>(shape.schedule.virtual_stages);
    StageTime stage =
        TimeOf(per_call, shape.calls[s], std::clamp(in_flight, 1.0, std::max(1.0, micro_batches)));
    if (stages > 1) {
      const BoxingTime& border = estimator.border();
      stage.boxing_ns += 2 * border.device_ns;
      stage.sent_bytes += 2 * border.sent_bytes;
    }
    stage_ns.push_back(stage.MicroBatchNs());
    once_ns = std::max(once_ns, stage.OnceNs());
    stage.evaluation_bytes += kBordersAlive * estimator.border_bytes();
    estimate.device_bytes = std::max(estimate.device_bytes, stage.bytes + stage.evaluation_bytes);
    if (s == 0 || stage.MicroBatchNs() > slowest.MicroBatchNs()) slowest = stage;
  }
  // The first micro-batch passes all stages of its longest way and comes back; the others follow at
  // the pace of the slowest stage. More parts on a stage make the way shorter, and so does work
  // left for later.
  double way_ns = std::max(0.0, LongestWay(shape.schedule, stage_ns) - slowest.MicroBatchNs());
  way_ns /= static_cast<double>(shape.schedule.virtual_stages);
  if (shape.schedule.splits_backward()) way_ns /= 3;
  way_ns +=
      2 * static_cast<double>(shape.schedule.stages_in_a_row() - 1) * estimator.border().link_ns;
  estimate.step_ns = micro_batches * slowest.MicroBatchNs() + way_ns + once_ns;
  estimate.compute_ns = micro_batches * slowest.compute_ns + slowest.step_ns;
  estimate.boxing_ns = micro_batches * slowest.boxing_ns;
  estimate.gradients_ns = micro_batches * slowest.gradients_ns + slowest.step_gradients_ns;
  estimate.weights_ns = micro_batches * slowest.weights_ns + slowest.step_weights_ns;
  estimate.bubble_ns = estimate.step_ns - estimate.compute_ns - estimate.boxing_ns -
                       estimate.gradients_ns - estimate.weights_ns;
  estimate.sent_bytes = micro_batches * slowest.sent_bytes + slowest.step_sent_bytes;
  return estimate;
}

std::map<std::string, double> CallTimes(const LogicalPlan& plan, const CostModel& costs,
                                        BoxingCosts* boxings) {
  std::map<std::string, double> times;
  for (const auto& [name, cost] : Estimator(plan, costs, boxings).PerCall())
    times[name] = cost.forward_ns + cost.backward_ns + cost.boxing_ns;
  return times;
}

}  // namespace weir::compiler
