#include "compiler/passes/build_program.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/ir/function_builder.h"
#include "compiler/passes/program_items.h"
#include "compiler/passes/update_graphs.h"
#include "compiler/passes/weight_functions.h"
#include "compiler/passes/weight_uses.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

class ProgramBuilder : private ProgramItems {
 public:
  ProgramBuilder(const LayoutRules& rules, LogicalPlan* plan)
      : ProgramItems(rules, plan),
        model_(plan->module.model),
        everywhere_(sbp::Broadcast(plan->stage_mesh)) {}

  absl::Status Run() {
    at_.resize(model_.values.size());
    grads_.resize(model_.values.size());
    WEIR_RETURN_IF_ERROR(AddVariables());
    for (size_t c = 0; c < model_.calls.size(); ++c) AddForward(static_cast<int>(c));
    if (plan_.mode == PlanMode::kGenerate) return AddFetch();
    for (const auto& [name, value] : model_.fetched) AddFetchOf(name, value);
    for (const auto& [name, value] : model_.metrics) AddMetric(name, value);
    if (plan_.mode == PlanMode::kEvaluate) return absl::OkStatus();
    // The mean over an update is finite only if the loss of each micro-batch is.
    if (loss_scale_ >= 0) loss_ = AddMean("update_loss", at_[model_.loss].at(-1), at_update());
    for (size_t c = model_.calls.size(); c-- > 0;) AddBackward(static_cast<int>(c));
    WEIR_RETURN_IF_ERROR(AddNorm());
    for (size_t c = 0; c < model_.calls.size(); ++c) AddUpdate(static_cast<int>(c));
    return absl::OkStatus();
  }

 private:
  // The values that belong to one call of the model.
  struct CallState {
    std::vector<int> variables;  // Module::variables, by parameter; -1: nothing reads the parameter
    std::vector<int> weights;    // program values in the layout at rest, in compute type
    std::vector<size_t> owned;   // parameters whose variables are on this call's stage
    std::vector<int> ahead_outputs;  // program values: results of the function `ahead`
    std::vector<int> forward_outputs;
    std::vector<int> forward_inputs;
    std::vector<int> backward_outputs;  // of the call of the backward function
    std::map<int, int> result_grads;    // by model value
    std::vector<int> gradients;         // by parameter: of this call alone; -1: none
    // Owned variables that the loss depends on, and their gradients: per step, update layout.
    std::vector<int> trained, updates;
    // Owned moving averages, and the sums of their samples, as above.
    std::vector<int> averages, samples;
  };

  const Function& ForwardOf(const ModelCall& call) const {
    return module_.functions[model_.functions[call.model_function].forward];
  }
  // Evaluation keeps weights at rest in the same places as training, so that each rank hands over
  // its own weights.
  int zero() const {
    return plan_.mode == PlanMode::kGenerate ? 0 : plan_.settings.training.zero_stage;
  }

  bool accumulates() const { return plan_.micro_batches * plan_.updates.every > 1; }

  sbp::Layout UpdateLayout(int64_t stage, const sbp::Layout& compute,
                           const sbp::TensorType& type) const {
    return LayoutAtRest(plan_, plan_.places.mesh(stage), zero(), compute, type);
  }

  // Makes a variable of each weight, on the stage of the first call that reads the weight.
  absl::Status AddVariables() {
    calls_.resize(model_.calls.size());
    of_weight_.assign(model_.weights.size(), -1);
    WEIR_ASSIGN_OR_RETURN(uses_, FindWeightUses(module_, plan_.mode));
    for (size_t c = 0; c < model_.calls.size(); ++c) {
      const ModelCall& call = model_.calls[c];
      const Function& function = ForwardOf(call);
      const std::vector<char> used = ReadArgs(module_, model_.functions[call.model_function]);
      CallState& state = calls_[c];
      std::vector<int> values;
      for (size_t p = 0; p < function.parameters.size(); ++p) {
        if (!used[function.parameters[p].arg]) {
          state.variables.push_back(-1);
          state.weights.push_back(-1);
          continue;
        }
        int& variable = of_weight_[call.weights[p]];
        if (variable < 0) {
          variable = AddVariable(call, p);
          state.owned.push_back(p);
          values.push_back(module_.variables[variable].value);
        }
        state.variables.push_back(variable);
        state.weights.push_back(module_.variables[variable].value);
      }
      if (!values.empty() && plan_.mode != PlanMode::kTrain) AddKeep(static_cast<int>(c), values);
      AddWeightCasts(static_cast<int>(c));
    }
    if (plan_.mode != PlanMode::kTrain) return absl::OkStatus();
    loss_scale_ = AddLossScaleFactor();
    if (loss_scale_ < 0) return absl::OkStatus();
    const int64_t stage = model_.calls[model_.values[model_.loss].call].stage;
    grads_[model_.loss].push_back(AddLossSeed(loss_scale_, stage));
    return absl::OkStatus();
  }

  // Returns the index of the new variable for parameter `p` of `call`.
  int AddVariable(const ModelCall& call, size_t p) {
    const Function& function = ForwardOf(call);
    const Value& compute = function.values[function.args[function.parameters[p].arg].value];
    const ModelWeight& weight = model_.weights[call.weights[p]];
    Variable variable;
    variable.name = weight.name;
    variable.type = compute.type;
    variable.type.dtype = DType::kF32;
    variable.init = weight.init;
    variable.decay = weight.decay;
    variable.group = weight.group;
    if (!weight.frozen) variable.momentum = function.parameters[p].momentum;
    variable.stage = call.stage;
    variable.layout = UpdateLayout(call.stage, compute.layout, variable.type);
    const int index = static_cast<int>(module_.variables.size());
    variable.value =
        NewValue(variable.name, variable.type, variable.layout, call.stage, at_update());
    module_.values[variable.value].variable = index;
    module_.variables.push_back(std::move(variable));
    return index;
  }

  void AddKeep(int c, const std::vector<int>& values) {
    ProgramItem& keep = NewItem(ItemKind::kKeep, PhaseKind::kUpdate,
                                absl::StrCat("weights ", model_.calls[c].name), at_update());
    keep.instance = c;
    keep.outputs = values;
  }

  // With mixed precision the master weights are cast at rest, after each update. The first call
  // that reads a weight in another type than f32 casts the weight for all calls, on the weight's
  // stage.
  void AddWeightCasts(int c) {
    std::map<int64_t, std::vector<size_t>> by_stage;
    const Function& function = ForwardOf(model_.calls[c]);
    for (size_t p = 0; p < function.parameters.size(); ++p) {
      const int variable = calls_[c].variables[p];
      const DType compute =
          function.values[function.args[function.parameters[p].arg].value].type.dtype;
      // A weight stays exact if integers are made of it, or if the call computes with it in f32.
      if (variable < 0 || compute == DType::kF32) continue;
      if (auto known = casts_.find(variable); known != casts_.end()) {
        calls_[c].weights[p] = known->second;
      } else {
        by_stage[module_.variables[variable].stage].push_back(p);
      }
    }
    for (const auto& [stage, parameters] : by_stage) AddWeightCast(c, stage, parameters);
  }

  // Casts the weights of these parameters, which lie on `stage`.
  void AddWeightCast(int c, int64_t stage, const std::vector<size_t>& parameters) {
    const ModelCall& call = model_.calls[c];
    const Function& function = ForwardOf(call);
    FunctionBuilder builder(absl::StrCat("cast.", function.name), plan_.stage_mesh);
    std::vector<int> inputs, outputs;
    for (const size_t p : parameters) {
      // One weight may be two parameters of the call.
      if (auto known = casts_.find(calls_[c].variables[p]); known != casts_.end()) {
        calls_[c].weights[p] = known->second;
        continue;
      }
      const DType compute =
          function.values[function.args[function.parameters[p].arg].value].type.dtype;
      const Variable& variable = module_.variables[calls_[c].variables[p]];
      ops::ValueId arg = builder.AddArg(variable.name, variable.type, variable.layout);
      sbp::TensorType type = variable.type;
      type.dtype = compute;
      ops::ValueId cast = builder.Emit("cast", {arg}, {{type, variable.layout}},
                                       {{"to", std::string(Name(compute))}})[0];
      builder.AddResult(cast, Frequency::kMicroBatch);
      inputs.push_back(calls_[c].weights[p]);
      outputs.push_back(NewValue(absl::StrCat(variable.name, ".", Name(compute)), type,
                                 variable.layout, variable.stage, after_update()));
      calls_[c].weights[p] = casts_[calls_[c].variables[p]] = outputs.back();
    }
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate,
                                absl::StrCat("cast ", call.name), after_update());
    item.function = InternFunction(stage, builder);
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
  }

  // Returns whether the functions that only work on the weights of these calls are the same.
  bool WeightsAlike(int a, int b) const {
    const auto alike = [&](int of_a, int of_b) {
      const Variable &x = module_.variables[of_a], &y = module_.variables[of_b];
      return x.type == y.type && x.layout == y.layout && x.decay == y.decay && x.group == y.group;
    };
    const std::vector<int>&of_a = calls_[a].trained, &of_b = calls_[b].trained;
    return model_.calls[a].model_function == model_.calls[b].model_function &&
           std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(), alike);
  }

  // Returns the function "purpose.<function of the call>". `build` adds the body, which depends on
  // the weights alone, so calls with like weights share it.
  template <typename Build>
  int FunctionForWeights(const char* purpose, int c, const Build& build) {
    std::vector<std::pair<int, int>>& known = for_weights_[purpose];
    for (const auto& [like, function] : known) {
      if (WeightsAlike(like, c)) return function;
    }
    FunctionBuilder builder(absl::StrCat(purpose, ".", ForwardOf(model_.calls[c]).name),
                            plan_.stage_mesh);
    build(&builder);
    return known.emplace_back(c, InternFunction(model_.calls[c].stage, builder)).second;
  }

  int WeightFor(int c, size_t p, const sbp::Layout& layout, const char* purpose) {
    const ModelCall& call = model_.calls[c];
    bool each_use = zero() == 3;
    return Boxed(calls_[c].weights[p], layout, call.stage,
                 each_use ? Frequency::kMicroBatch : after_update(), each_use ? purpose : "");
  }

  // Returns a model value on `stage`. Data is fed at the stage that uses it.
  int ModelValueAt(int v, int64_t stage, const sbp::Layout& layout) {
    const ModelValue& value = model_.values[v];
    if (value.ahead_of >= 0) return AheadValue(v, layout, stage);
    if (value.call >= 0) return Boxed(at_[v].at(-1), layout, stage, Frequency::kMicroBatch);
    auto known = at_[v].find(stage);
    if (known != at_[v].end()) return Boxed(known->second, layout, stage, Frequency::kMicroBatch);
    return at_[v][stage] = AddSource(value, "data", layout, stage);
  }

  int AddSource(const ModelValue& value, const char* purpose, const sbp::Layout& layout,
                int64_t stage) {
    int out = NewValue(value.name, value.type, layout, stage, Frequency::kMicroBatch);
    ProgramItem& item = NewItem(ItemKind::kSource, PhaseKind::kData,
                                absl::StrCat(purpose, " ", value.name), Frequency::kMicroBatch);
    item.feed = value.name;
    item.range = value.use.range;
    item.outputs = {out};
    return out;
  }

  // Returns a value that a call computes ahead, on the stage of the call. The data have sources of
  // their own, which run ahead of those of the micro-batches.
  int AheadValue(int v, const sbp::Layout& layout, int64_t stage) {
    const int c = model_.values[v].ahead_of;
    if (calls_[c].ahead_outputs.empty()) AddAhead(c);
    return Boxed(calls_[c].ahead_outputs[model_.values[v].result], layout, stage, Frequency::kStep);
  }

  void AddAhead(int c) {
    const ModelCall& call = model_.calls[c];
    const ModelFunction& model_function = model_.functions[call.model_function];
    const Function &forward = ForwardOf(call), &ahead = module_.functions[model_function.ahead];
    std::vector<int> inputs;
    for (size_t a = 0; a < ahead.args.size(); ++a) {
      const size_t place = forward.ActivationsBefore(model_function.ahead_args[a]);
      inputs.push_back(AddSource(model_.values[call.args[place]], "data ahead",
                                 ahead.values[ahead.args[a].value].layout, call.stage));
    }
    std::vector<int>& outputs = calls_[c].ahead_outputs;
    for (const Result& result : ahead.results) {
      const Value& value = ahead.values[result.value];
      outputs.push_back(NewValue(absl::StrCat(call.name, ".", value.name), value.type, value.layout,
                                 call.stage, Frequency::kStep));
    }
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kData,
                                absl::StrCat("ahead of ", call.name), Frequency::kMicroBatch);
    item.function = model_function.ahead;
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
  }

  void AddForward(int c) {
    const ModelCall& call = model_.calls[c];
    part_ = call.part;
    const ModelFunction& model_function = model_.functions[call.model_function];
    const Function& function = module_.functions[model_function.forward];
    std::vector<int> inputs, outputs;
    size_t next_activation = 0, next_parameter = 0;
    std::vector<char> used = ReadArgs(module_, model_function);
    for (size_t a = 0; a < function.args.size(); ++a) {
      const sbp::Layout& layout = function.values[function.args[a].value].layout;
      bool parameter = function.args[a].kind == ArgKind::kParameter;
      size_t position = parameter ? next_parameter++ : next_activation++;
      if (!used[a]) {
        inputs.push_back(-1);
      } else if (parameter) {
        inputs.push_back(WeightFor(c, position, layout, "forward"));
      } else {
        inputs.push_back(ModelValueAt(call.args[position], call.stage, layout));
      }
    }
    for (size_t r = 0; r < function.results.size(); ++r) {
      const Value& value = function.values[function.results[r].value];
      int out = NewValue(absl::StrCat(call.name, ".", value.name), value.type, value.layout,
                         call.stage, Frequency::kMicroBatch);
      outputs.push_back(out);
      if (static_cast<int>(r) < model_function.num_results) at_[call.results[r]][-1] = out;
    }
    calls_[c].forward_inputs = inputs;
    calls_[c].forward_outputs = outputs;
    // Nobody reads the nodes of main after the last tensor that a run for results keeps.
    if (outputs.empty() && function.states.empty()) return;
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kForward,
                                absl::StrCat("forward ", call.name), Frequency::kMicroBatch);
    item.function = model_function.forward;
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
    for (const auto& [value, name] : function.states)
      item.states.push_back(
          {absl::StrCat(call.name, ".", name), "", function.values[value].layout});
  }

  // Returns the gradient of a result of a call: the sum over the readers of the result, in program
  // order.
  int ResultGrad(int c, int v, const sbp::Layout& layout) {
    auto known = calls_[c].result_grads.find(v);
    if (known == calls_[c].result_grads.end()) {
      known =
          calls_[c].result_grads.emplace(v, SumOfGradients(v, layout, model_.calls[c].stage)).first;
    }
    return Boxed(known->second, layout, model_.calls[c].stage, Frequency::kMicroBatch);
  }

  int SumOfGradients(int v, const sbp::Layout& layout, int64_t stage) {
    std::vector<int> parts;
    for (int grad : grads_[v]) parts.push_back(Boxed(grad, layout, stage, Frequency::kMicroBatch));
    if (parts.size() == 1) return parts[0];
    const sbp::TensorType type = model_.values[v].type;
    FunctionBuilder builder(parts.empty() ? "zeros" : "sum", plan_.stage_mesh);
    ops::ValueId total = -1;
    if (parts.empty()) {
      total = builder.EmitConstant(0.0, type, layout);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      ops::ValueId arg = builder.AddArg(absl::StrCat("part", i), type, layout);
      total = i == 0 ? arg : builder.Emit("add", {total, arg}, {{type, layout}}, {})[0];
    }
    builder.AddResult(total, Frequency::kMicroBatch);
    int out = NewValue(absl::StrCat("d_", model_.values[v].name), type, layout, stage,
                       Frequency::kMicroBatch);
    ProgramItem& item =
        NewItem(ItemKind::kCall, PhaseKind::kBackward,
                absl::StrCat("sum d_", model_.values[v].name), Frequency::kMicroBatch);
    item.function = InternFunction(stage, builder);
    item.inputs = parts;
    item.outputs = {out};
    return out;
  }

  void AddBackward(int c) {
    const ModelCall& call = model_.calls[c];
    part_ = call.part;
    if (model_.functions[call.model_function].backward >= 0) AddGradients(c);
    AddGradientsOfWeights(c);
  }

  void AddGradients(int c) {
    const ModelCall& call = model_.calls[c];
    const ModelFunction& model_function = model_.functions[call.model_function];
    AccumulateInside(model_function, model_function.backward, model_function.backward_results);
    calls_[c].gradients.assign(ForwardOf(call).parameters.size(), -1);
    // If a call has no inputs but weights, the whole backward function may have moved to the weight
    // gradients.
    if (!module_.functions[model_function.backward].results.empty()) {
      calls_[c].backward_outputs = AddGradientCall(
          c, PhaseKind::kBackward, absl::StrCat("backward ", call.name), model_function.backward,
          model_function.backward_args, model_function.backward_results);
    }
    if (model_function.weight_gradient >= 0) {
      AccumulateInside(model_function, model_function.weight_gradient,
                       model_function.weight_gradient_results);
      AddGradientCall(c, PhaseKind::kWeightGradient, absl::StrCat("weight gradients ", call.name),
                      model_function.weight_gradient, model_function.weight_gradient_args,
                      model_function.weight_gradient_results);
    }
    AddGradientBoxing(c);
  }

  // Adds a call of a function that computes gradients, and returns the outputs of the call.
  std::vector<int> AddGradientCall(int c, PhaseKind phase, const std::string& name,
                                   int function_index,
                                   const std::vector<ModelFunction::BackwardArg>& args,
                                   const std::vector<int>& results) {
    const ModelCall& call = model_.calls[c];
    const Function& function = module_.functions[function_index];
    const Function& forward = ForwardOf(call);
    std::vector<int> inputs, outputs;
    for (size_t a = 0; a < function.args.size(); ++a) {
      inputs.push_back(GradientInput(c, args[a], function.values[function.args[a].value].layout));
    }
    size_t next_activation = 0;
    std::vector<int> activation_of(forward.args.size(), -1);
    for (size_t a = 0; a < forward.args.size(); ++a) {
      if (forward.args[a].kind != ArgKind::kParameter)
        activation_of[a] = static_cast<int>(next_activation++);
    }
    for (size_t r = 0; r < function.results.size(); ++r) {
      const int arg = r < results.size() ? results[r] : -1;  // -1: kept for the weight gradients
      const Value& value = function.values[function.results[r].value];
      Frequency frequency = function.results[r].per_step ? at_update() : Frequency::kMicroBatch;
      int out = NewValue(
          arg < 0 ? absl::StrCat(call.name, ".", value.name)
                  : absl::StrCat(call.name, ".d_", forward.values[forward.args[arg].value].name),
          value.type, value.layout, call.stage, frequency);
      outputs.push_back(out);
      if (arg < 0) continue;
      if (activation_of[arg] >= 0) {
        int v = call.args[activation_of[arg]];
        if (model_.values[v].call >= 0) grads_[v].push_back(out);
      } else {
        // A group may freeze the weight of this call, and not that of another.
        const size_t p = ParameterOf(forward, arg);
        if (!model_.weights[call.weights[p]].frozen) calls_[c].gradients[p] = out;
      }
    }
    ProgramItem& item = NewItem(ItemKind::kCall, phase, name, Frequency::kMicroBatch);
    item.function = function_index;
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
    return outputs;
  }

  int GradientInput(int c, const ModelFunction::BackwardArg& from, const sbp::Layout& layout) {
    const ModelCall& call = model_.calls[c];
    const Function& forward = ForwardOf(call);
    switch (from.kind) {
      case ModelFunction::BackwardArg::kForwardArg:
        if (forward.args[from.index].kind == ArgKind::kParameter)
          return WeightFor(c, ParameterOf(forward, from.index), layout, "backward");
        return calls_[c].forward_inputs[from.index];
      case ModelFunction::BackwardArg::kForwardResult: return calls_[c].forward_outputs[from.index];
      case ModelFunction::BackwardArg::kResultGrad:
        return ResultGrad(c, call.results[from.index], layout);
      case ModelFunction::BackwardArg::kBackwardResult:
        return calls_[c].backward_outputs[from.index];
    }
    return -1;
  }

  static size_t ParameterOf(const Function& forward, int arg) {
    for (size_t p = 0; p < forward.parameters.size(); ++p) {
      if (forward.parameters[p].arg == arg) return p;
    }
    return 0;
  }

  // Lets the backward function itself accumulate gradients that are boxed once an update (or
  // never). The sum is a result that is kept over the micro-batches.
  void AccumulateInside(const ModelFunction& model_function, int function,
                        const std::vector<int>& results) {
    Function& backward = module_.functions[function];
    const Function& forward = module_.functions[model_function.forward];
    if (!accumulates()) return;
    for (size_t r = 0; r < results.size(); ++r) {
      int arg = results[r];
      if (forward.args[arg].kind != ArgKind::kParameter || backward.results[r].per_step) continue;
      const Value value = backward.values[backward.results[r].value];
      const sbp::Layout update = UpdateLayout(
          forward.stage_of_mesh(), forward.values[forward.args[arg].value].layout, value.type);
      if (zero() >= 2 && !(value.layout == update)) continue;
      Node node;
      node.name = absl::StrCat("accumulate_", forward.values[forward.args[arg].value].name);
      node.op = "accumulate";
      node.inputs = {backward.results[r].value};
      node.where = absl::StrCat("function ", backward.name, ", node ", node.name);
      ops::ValueId sum = backward.AddValue(node.name, value.type);
      backward.values[sum].layout = value.layout;
      backward.values[sum].why = {{LayoutReason::Kind::kMicroBatches}};
      node.outputs = {sum};
      backward.nodes.push_back(std::move(node));
      backward.results[r].value = sum;
      backward.results[r].per_step = true;
    }
  }

  // Boxes the gradients of a call to the layout of the update, and adds up over the micro-batches
  // what the backward function has not added up. A gradient of a weight that other calls read, too,
  // is boxed later, if nothing is left to add up.
  void AddGradientBoxing(int c) {
    const ModelCall& call = model_.calls[c];
    CallState& state = calls_[c];
    std::vector<size_t> to_accumulate;
    for (size_t p = 0; p < state.gradients.size(); ++p) {
      if (state.gradients[p] < 0) continue;
      const Frequency frequency = module_.values[state.gradients[p]].frequency;
      const bool left = frequency == Frequency::kMicroBatch && accumulates();
      if (left) to_accumulate.push_back(p);
      if (left || uses_[call.weights[p]].size() == 1) {
        const Variable& variable = module_.variables[state.variables[p]];
        state.gradients[p] = Boxed(state.gradients[p], variable.layout, call.stage, frequency);
      }
    }
    if (!to_accumulate.empty()) AddAccumulation(c, to_accumulate);
  }

  // Gives each weight that the call owns the sum of the gradients of all uses. The owner is the
  // first call that reads the weight, so its backward pass is the last.
  void AddGradientsOfWeights(int c) {
    CallState& state = calls_[c];
    for (size_t p : state.owned) {
      const int gradient = GradientOfWeight(model_.calls[c].weights[p], state.variables[p]);
      if (gradient < 0) continue;
      if (module_.variables[state.variables[p]].momentum > 0) {
        state.averages.push_back(state.variables[p]);
        state.samples.push_back(gradient);
        continue;
      }
      state.trained.push_back(state.variables[p]);
      state.updates.push_back(gradient);
      if (plan_.updates.delay == 0) continue;
      module_.values[gradient].delay = plan_.updates.delay;
      module_.values[gradient].gradient_of = state.variables[p];
    }
  }

  // Returns the gradient of a weight; -1: no use of the weight is on the way to the loss. Gradients
  // with equal layouts on stages of one mesh are added before they are boxed, on the stage of the
  // variable. So the order of the sum does not depend on the cut of the pipeline.
  int GradientOfWeight(int weight, int variable_index) {
    const Variable variable = module_.variables[variable_index];
    std::vector<int> parts;
    bool alike = true;
    for (const WeightUse& use : uses_[weight]) {
      const std::vector<int>& gradients = calls_[use.call].gradients;
      if (gradients.empty() || gradients[use.parameter] < 0) continue;
      parts.push_back(gradients[use.parameter]);
      const ProgramValue& gradient = module_.values[parts.back()];
      alike = alike && gradient.layout == module_.values[parts[0]].layout &&
              plan_.places.mesh(gradient.stage) == plan_.places.mesh(variable.stage);
    }
    if (parts.empty()) return -1;
    for (int& part : parts) {
      const ProgramValue have = module_.values[part];
      part = Boxed(part, alike && parts.size() > 1 ? have.layout : variable.layout, variable.stage,
                   have.frequency);
    }
    if (parts.size() == 1) return parts[0];
    const int sum = Sum(absl::StrCat("d_", variable.name), parts, variable.type,
                        module_.values[parts[0]].layout, variable.stage);
    return Boxed(sum, variable.layout, variable.stage, at_update());
  }

  // Accumulates gradients that are boxed one by one, over the micro-batches of an update.
  void AddAccumulation(int c, const std::vector<size_t>& to_accumulate) {
    const ModelCall& call = model_.calls[c];
    CallState& state = calls_[c];
    FunctionBuilder builder(absl::StrCat("accumulate.", ForwardOf(call).name), plan_.stage_mesh);
    std::vector<int> inputs, outputs;
    for (size_t p : to_accumulate) {
      const Variable& variable = module_.variables[state.variables[p]];
      ops::ValueId arg = builder.AddArg(absl::StrCat("d", p), variable.type, variable.layout);
      ops::ValueId sum =
          builder.Emit("accumulate", {arg}, {{variable.type, variable.layout}}, {})[0];
      builder.AddResult(sum, Frequency::kStep);
      inputs.push_back(state.gradients[p]);
      state.gradients[p] = NewValue(absl::StrCat("d_", variable.name), variable.type,
                                    variable.layout, call.stage, at_update());
      outputs.push_back(state.gradients[p]);
    }
    ProgramItem& item = NewItem(
        ItemKind::kCall,
        plan_.schedule.splits_backward() ? PhaseKind::kWeightGradient : PhaseKind::kBackward,
        absl::StrCat("accumulate ", call.name), Frequency::kMicroBatch);
    item.function = InternFunction(call.stage, builder);
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
  }

  std::vector<const Variable*> Variables(const std::vector<int>& indices) const {
    std::vector<const Variable*> variables;
    for (int variable : indices) variables.push_back(&module_.variables[variable]);
    return variables;
  }

  // Adds |g|^2 over all gradients. The sum of a call is P over the mesh. The sums are added from
  // the last call to the first, whatever their stages, and merged on stage 0. So cuts do not change
  // the order of the sum, and the sum travels in the direction in which backward passes end.
  absl::Status AddNorm() {
    const sbp::TensorType scalar{DType::kF32, {}};
    std::vector<std::vector<int>> by_part;
    int64_t last_part = -1;
    for (size_t c = model_.calls.size(); c-- > 0;) {
      CallState& state = calls_[c];
      if (state.trained.empty()) continue;
      part_ = model_.calls[c].part;
      const int function = FunctionForWeights(
          "norm", static_cast<int>(c),
          [&](FunctionBuilder* builder) { BuildNorm(Variables(state.trained), plan_, builder); });
      int64_t stage = model_.calls[c].stage;
      int out = NewValue(absl::StrCat(model_.calls[c].name, ".norm2"), scalar,
                         AllPartial(plan_.stage_mesh), stage, at_update());
      ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate,
                                  absl::StrCat("norm ", model_.calls[c].name), at_update());
      item.function = function;
      item.instance = c;
      item.inputs = state.updates;
      item.outputs = {out};
      if (part_ != last_part) by_part.emplace_back();
      last_part = part_;
      by_part.back().push_back(out);
    }
    if (by_part.empty()) {
      return Rejected({"W0451", "graph", "a loss that depends on at least one parameter",
                       "a loss that only moving averages and frozen parameters have a part in",
                       "train a parameter, or evaluate the job with `weir eval`"});
    }
    int total = -1;
    for (std::vector<int>& norms : by_part) {
      const int64_t stage = module_.values[norms[0]].stage;
      if (total >= 0)
        norms.insert(norms.begin(), Boxed(total, AllPartial(plan_.stage_mesh), stage, at_update()));
      total = Sum("norm so far", norms, scalar, AllPartial(plan_.stage_mesh), stage);
    }
    part_ = 0;
    total = Boxed(total, everywhere_, 0, at_update());
    FunctionBuilder builder("clip", plan_.stage_mesh);
    BuildClip(plan_, &builder);
    clip_scale_ = NewValue("clip_scale", scalar, everywhere_, 0, at_update());
    int norm = NewValue("grad_norm", scalar, everywhere_, 0, at_update());
    const int scale =
        loss_scale_ < 0 ? -1 : NewValue("loss_scale", scalar, everywhere_, 0, at_update());
    const int loss = loss_scale_ < 0 ? -1 : Boxed(loss_, everywhere_, 0, at_update());
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate, "clip", at_update());
    item.function = InternFunction(0, builder);
    item.inputs = {total};
    item.outputs = {clip_scale_, norm};
    if (loss_scale_ >= 0) {
      item.inputs.insert(item.inputs.end(), {loss_scale_, loss});
      item.outputs.push_back(scale);
    }
    AddSink("grad_norm", norm);
    if (loss_scale_ >= 0) {
      AddSink("loss_scale", scale);
      AddLossScaleStep(loss_scale_, clip_scale_);
    }
    AddSampleFactor(loss_scale_ < 0 ? total : clip_scale_);
    return absl::OkStatus();
  }

  // `total`: the sum of the squares of all gradients, on stage 0; with a loss scale that adapts,
  // the factor for the gradients, which is below 0 if the update leaves weights as they are.
  void AddSampleFactor(int total) {
    const auto averages = [](const CallState& state) { return !state.averages.empty(); };
    if (std::none_of(calls_.begin(), calls_.end(), averages)) return;
    FunctionBuilder builder("sample_factor", plan_.stage_mesh);
    BuildSampleFactor(plan_, &builder);
    sample_factor_ = NewValue("sample_factor", {DType::kF32, {}}, everywhere_, 0, at_update());
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate, "sample factor", at_update());
    item.function = InternFunction(0, builder);
    item.inputs = {total};
    item.outputs = {sample_factor_};
  }

  void AddAverages(int c) {
    const CallState& state = calls_[c];
    const ModelCall& call = model_.calls[c];
    if (state.averages.empty()) return;
    FunctionBuilder builder(absl::StrCat("averages.", ForwardOf(call).name), plan_.stage_mesh);
    BuildAverages(Variables(state.averages), plan_, &builder);
    std::vector<int> inputs = state.samples, outputs;
    for (int average : state.averages) outputs.push_back(module_.variables[average].value);
    inputs.push_back(Boxed(sample_factor_, everywhere_, call.stage, at_update()));
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate,
                                absl::StrCat("averages ", call.name), at_update());
    item.function = InternFunction(call.stage, builder);
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
  }

  void AddUpdate(int c) {
    CallState& state = calls_[c];
    const ModelCall& call = model_.calls[c];
    part_ = call.part;
    // Frozen weights, and weights that are not on the way to the loss, stay as they are.
    std::vector<int> kept;
    for (size_t p : state.owned) {
      const int variable = state.variables[p];
      const auto among = [variable](const std::vector<int>& changed) {
        return std::find(changed.begin(), changed.end(), variable) != changed.end();
      };
      if (!among(state.trained) && !among(state.averages))
        kept.push_back(module_.variables[variable].value);
    }
    if (!kept.empty()) AddKeep(c, kept);
    AddAverages(c);
    if (state.trained.empty()) return;
    std::vector<int> inputs = state.updates, outputs;
    for (int variable : state.trained) outputs.push_back(module_.variables[variable].value);
    inputs.push_back(Boxed(clip_scale_, everywhere_, call.stage, at_update()));
    for (int variable : state.trained) {
      if (UpdateReadsWeight(plan_, module_.variables[variable]))
        inputs.push_back(module_.variables[variable].value);
    }
    const int function = FunctionForWeights("update", c, [&](FunctionBuilder* builder) {
      BuildUpdate(Variables(state.trained), plan_, builder);
    });
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kUpdate,
                                absl::StrCat("update ", call.name), at_update());
    item.function = function;
    item.instance = c;
    item.inputs = inputs;
    item.outputs = outputs;
    const Function& update = module_.functions[function];
    const std::vector<size_t> weights = WeightsOfStates(update);
    for (const auto& [value, name] : update.states) {
      const Variable& variable = module_.variables[state.trained[weights[item.states.size()]]];
      item.states.push_back(
          {absl::StrCat(variable.name, "/", name), variable.name, update.values[value].layout});
    }
  }

  // Reports scalars of the model once a step, as the mean over the micro-batches of the step.
  void AddMetric(const std::string& name, int v) {
    const int mean = AddMean(name, at_[v].at(-1), Frequency::kStep);
    AddSink(name, Boxed(mean, everywhere_, module_.values[mean].stage, Frequency::kStep));
  }

  absl::Status AddFetch() {
    if (model_.logits < 0) {
      return Rejected({"W0474", "graph",
                       "a softmax_cross_entropy in main, whose logits generate text", "none", ""});
    }
    AddFetchOf("logits", model_.logits);
    return absl::OkStatus();
  }

  // Keeps the whole of a model value in a fetched state on every rank of its stage.
  void AddFetchOf(const std::string& name, int v) {
    const int value = at_[v].at(-1);
    const ProgramValue have = module_.values[value];
    const int whole = Boxed(value, everywhere_, have.stage, Frequency::kMicroBatch);
    FunctionBuilder builder("fetch", plan_.stage_mesh);
    const ops::ValueId arg = builder.AddArg(name, have.type, everywhere_);
    // Both ops copy their operand unchanged.
    const ops::ValueId out =
        IsReal(have.type.dtype)
            ? builder.Emit("scale", {arg}, {{have.type, everywhere_}}, {{"factor", 1.0}})[0]
            : builder.Emit("cast", {arg}, {{have.type, everywhere_}},
                           {{"to", std::string(Name(have.type.dtype))}})[0];
    builder.MarkState(out, name);
    ProgramItem& item = NewItem(ItemKind::kCall, PhaseKind::kMetric, absl::StrCat("fetch ", name),
                                Frequency::kMicroBatch);
    item.function = InternFunction(have.stage, builder);
    item.inputs = {whole};
    item.states = {{absl::StrCat("fetch/", name), "", everywhere_}};
  }

  Model& model_;
  sbp::Layout everywhere_;
  std::vector<CallState> calls_;
  std::vector<std::vector<WeightUse>> uses_;  // by weight of the model, in the order of calls
  std::vector<int> of_weight_;                // by weight of the model: variable, or -1
  std::map<int, int> casts_;                  // by variable: the program value in compute type
  std::vector<std::map<int64_t, int>>
      at_;  // by model value: stage (or -1 where computed) -> program value
  std::vector<std::vector<int>> grads_;  // by model value
  // By purpose: calls of the model, each with the function for its weights.
  std::map<std::string, std::vector<std::pair<int, int>>> for_weights_;
  int clip_scale_ = -1, sample_factor_ = -1;  // program values
  // Program values, if the loss scale adapts: its factor, and the loss of an update.
  int loss_scale_ = -1, loss_ = -1;
};

}  // namespace

absl::Status BuildProgram(const LayoutRules& rules, LogicalPlan* plan) {
  if (!plan->module.items.empty()) return absl::OkStatus();
  return ProgramBuilder(rules, plan).Run();
}

}  // namespace weir::compiler
