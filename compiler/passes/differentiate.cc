// Reverse-mode differentiation, function by function.
//
// The backward function of f takes two kinds of arguments: the values of f that its gradient ops
// read (arguments of f itself, or stashes: extra results of f), and the gradients of f's real
// results. Its results are the gradients of the arguments of f that need one. Gradients of
// parameters come out in f32 and keep the layout that their op produces (P over the axes that split
// the batch). The program decides the further way of these gradients. A moving average has its
// sample in the place of a gradient.
#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/passes/passes.h"
#include "ops/defs/type_text.h"

namespace weir::compiler {
namespace {

class FunctionDifferentiator {
 public:
  // `shared_args` marks the parameters whose weights other functions read, too.
  FunctionDifferentiator(const PassContext& context, Module* module, ModelFunction* model_function,
                         const std::vector<char>& shared_args,
                         const std::vector<char>& result_has_grad, bool owns_loss, int loss_result)
      : context_(context),
        forward_(module->functions[model_function->forward]),
        model_function_(model_function),
        shared_args_(shared_args),
        result_has_grad_(result_has_grad),
        loss_result_(owns_loss ? loss_result : -1) {
    backward_.name = absl::StrCat(forward_.name, ".backward");
    backward_.rules_of_stage = forward_.rules_of_stage;
  }

  absl::StatusOr<Function> Run() {
    FindNeeds();
    for (int r = 0; r < model_function_->num_results; ++r) SeedResult(r);
    for (size_t i = forward_.nodes.size(); i-- > 0;)
      WEIR_RETURN_IF_ERROR(Visit(static_cast<int>(i)));
    for (size_t a = 0; a < forward_.args.size(); ++a)
      WEIR_RETURN_IF_ERROR(Finish(static_cast<int>(a)));
    DropUnreadStashes();
    return std::move(backward_);
  }

 private:
  friend class NodeGradient;

  // Drops stashes that no gradient op reads. A gradient function may look at a forward value only
  // for its type.
  void DropUnreadStashes() {
    std::vector<char> read(backward_.values.size(), 0);
    for (const Node& node : backward_.nodes) {
      for (ops::ValueId input : node.inputs) {
        if (input >= 0) read[input] = 1;
      }
    }
    for (const Result& result : backward_.results) read[result.value] = 1;
    std::vector<Arg> args;
    std::vector<ModelFunction::BackwardArg> sources;
    for (size_t a = 0; a < backward_.args.size(); ++a) {
      const ModelFunction::BackwardArg& from = model_function_->backward_args[a];
      if (from.kind != ModelFunction::BackwardArg::kResultGrad && !read[backward_.args[a].value])
        continue;
      args.push_back(backward_.args[a]);
      sources.push_back(from);
    }
    std::vector<int> new_index(forward_.results.size(), -1);
    std::vector<Result> results;
    for (size_t r = 0; r < forward_.results.size(); ++r) {
      bool wanted = static_cast<int>(r) < model_function_->num_results;
      for (const auto& from : sources) {
        wanted = wanted || (from.kind == ModelFunction::BackwardArg::kForwardResult &&
                            from.index == static_cast<int>(r));
      }
      if (!wanted) continue;
      new_index[r] = static_cast<int>(results.size());
      results.push_back(forward_.results[r]);
    }
    for (auto& from : sources) {
      if (from.kind == ModelFunction::BackwardArg::kForwardResult)
        from.index = new_index[from.index];
    }
    forward_.results = std::move(results);
    backward_.args = std::move(args);
    model_function_->backward_args = std::move(sources);
  }

  // Marks forward values that need a gradient, because they depend on an argument that needs one.
  void FindNeeds() {
    needs_.assign(forward_.values.size(), 0);
    for (size_t a = 0; a < forward_.args.size(); ++a)
      needs_[forward_.args[a].value] = model_function_->arg_needs_grad[a];
    for (const Node& node : forward_.nodes) {
      bool needs = false;
      for (ops::ValueId input : node.inputs) needs = needs || (input >= 0 && needs_[input]);
      for (ops::ValueId output : node.outputs) {
        needs_[output] = needs && IsReal(forward_.values[output].type.dtype);
      }
    }
  }

  void SeedResult(int r) {
    ops::ValueId value = forward_.results[r].value;
    if (!needs_[value]) return;
    const std::optional<LossScaleSettings>& scale = context_.loss_scale;
    if (r == loss_result_ && !Adapts(scale)) {
      // The loss that an update minimises is the mean over its micro-batches.
      const double factor = scale.has_value() ? scale->factor : 1;
      ops::ValueId seed =
          Emit("constant", {},
               {{"value", factor / static_cast<double>(context_.micro_batches_per_update)},
                {"to", std::string("f32[]")}},
               0, "seed of the loss")[0];
      Accumulate(value, seed);
    } else if (r == loss_result_ || result_has_grad_[r]) {
      ops::ValueId grad = backward_.AddValue(absl::StrCat("d_", forward_.values[value].name),
                                             forward_.values[value].type);
      backward_.args.push_back({grad, ArgKind::kFixed});
      model_function_->backward_args.push_back({ModelFunction::BackwardArg::kResultGrad, r});
      Accumulate(value, grad);
    }
  }

  absl::Status Visit(int index);

  // The average of a moving_average has the sample for a gradient, so that samples are added up as
  // gradients are.
  void FollowSample(const Node& node) {
    const ops::ValueId average = node.inputs[1];
    if (!needs_[average]) return;
    const ops::ValueId sample = node.inputs[node.inputs.size() > 2 ? 2 : 0];
    Accumulate(average, Emit("scale", {Stash(sample)}, {{"factor", 1.0}}, node.rng_key,
                             absl::StrCat("sample of ", node.name))[0]);
  }

  absl::Status Finish(int a) {
    ops::ValueId value = forward_.args[a].value;
    if (!model_function_->arg_needs_grad[a]) return absl::OkStatus();
    ops::ValueId grad = GradOf(value);
    const sbp::TensorType& type = forward_.values[value].type;
    bool parameter = forward_.args[a].kind == ArgKind::kParameter;
    if (grad < 0 && shared_args_[a]) return absl::OkStatus();
    if (grad < 0 && parameter) {
      return Rejected(
          {"W0475",
           absl::StrCat("function ", forward_.name, ", parameter ", forward_.values[value].name),
           "a parameter the loss depends on",
           "one that no output on the way to the loss depends on", "remove it, or use it"});
    }
    if (grad < 0) {
      grad = Emit("constant", {},
                  {{"value", 0.0},
                   {"to", absl::StrCat(parameter ? "f32" : Name(type.dtype), "[",
                                       ops::DimsText(type.dims), "]")}},
                  0, "no path to the loss")[0];
    }
    if (parameter && backward_.values[grad].type.dtype != DType::kF32) {
      grad = Emit("cast", {grad}, {{"to", std::string("f32")}}, 0, "parameter gradient")[0];
    }
    Result result{grad, parameter ? ResultKind::kNatural : ResultKind::kActivation, {}, false};
    backward_.results.push_back(result);
    model_function_->backward_results.push_back(a);
    return absl::OkStatus();
  }

  // Returns the value of the backward function that stands for forward value `value`.
  ops::ValueId Stash(ops::ValueId value) {
    auto it = stashed_.find(value);
    if (it != stashed_.end()) return it->second;
    ops::ValueId copy =
        backward_.AddValue(forward_.values[value].name, forward_.values[value].type);
    stashed_[value] = copy;
    int arg = forward_.ArgOf(value);
    ArgKind kind = ArgKind::kFixed;
    if (arg >= 0) {
      kind = forward_.args[arg].kind;
      model_function_->backward_args.push_back({ModelFunction::BackwardArg::kForwardArg, arg});
    } else {
      int index = -1;
      for (size_t r = 0; r < forward_.results.size(); ++r) {
        if (forward_.results[r].value == value && forward_.results[r].kind == ResultKind::kNatural)
          index = static_cast<int>(r);
      }
      if (index < 0) {
        forward_.results.push_back({value, ResultKind::kNatural, {}, false});
        index = static_cast<int>(forward_.results.size()) - 1;
      }
      model_function_->backward_args.push_back({ModelFunction::BackwardArg::kForwardResult, index});
    }
    backward_.args.push_back({copy, kind});
    return copy;
  }

  void Accumulate(ops::ValueId forward_value, ops::ValueId grad) {
    grads_[forward_value].push_back(grad);
  }

  // Sums the gradients that arrived, in the order of arrival; -1 if none arrived.
  ops::ValueId GradOf(ops::ValueId value) {
    auto it = grads_.find(value);
    if (it == grads_.end()) return -1;
    std::vector<ops::ValueId>& parts = it->second;
    // With bf16 or f16, gradients of broadcast operands come in f32, and the sum is then taken in
    // f32.
    auto is_f32 = [&](ops::ValueId part) {
      return backward_.values[part].type.dtype == DType::kF32;
    };
    if (std::any_of(parts.begin(), parts.end(), is_f32)) {
      for (ops::ValueId& part : parts) {
        if (!is_f32(part))
          part = Emit("cast", {part}, {{"to", std::string("f32")}}, 0, "sum of gradients")[0];
      }
    }
    while (parts.size() > 1) {
      ops::ValueId b = parts[1];
      parts[0] = Emit("add", {parts[0], b}, {}, 0,
                      absl::StrCat("sum of gradients of ", forward_.values[value].name))[0];
      parts.erase(parts.begin() + 1);
    }
    DType want = forward_.values[value].type.dtype;
    if (backward_.values[parts[0]].type.dtype != want && !IsParameter(value)) {
      parts[0] =
          Emit("cast", {parts[0]}, {{"to", std::string(Name(want))}}, 0, "sum of gradients")[0];
    }
    return parts[0];
  }

  // Returns whether the value is a parameter, or a cast of a parameter, whose gradient stays as
  // exact as that of the parameter.
  bool IsParameter(ops::ValueId value) const {
    int arg = forward_.ArgOf(value);
    const int producer = arg < 0 ? forward_.ProducerOf(value) : -1;
    if (producer >= 0 && forward_.nodes[producer].op == "cast")
      arg = forward_.ArgOf(forward_.nodes[producer].inputs[0]);
    return arg >= 0 && forward_.args[arg].kind == ArgKind::kParameter;
  }

  std::vector<ops::ValueId> Emit(const std::string& op, std::vector<ops::ValueId> inputs,
                                 Attributes attrs, uint64_t rng_key, const std::string& about) {
    Node node;
    node.op = op;
    node.rng_key = rng_key;
    node.name = absl::StrCat(op, "_", backward_.nodes.size());
    node.where = absl::StrCat("function ", backward_.name, ", node ", node.name, " (", about, ")");
    while (!inputs.empty() && inputs.back() < 0) inputs.pop_back();
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    const ops::OpDef* def = ops::OpRegistry::Find(op);
    if (def == nullptr) {
      error_ = absl::InternalError(absl::StrCat(node.where, ": no op \"", op, "\""));
      return {backward_.AddValue("error", {}), backward_.AddValue("error", {}),
              backward_.AddValue("error", {})};
    }
    absl::Status schema =
        ops::CheckSchema(def->schema, static_cast<int>(node.inputs.size()),
                         static_cast<int>(def->schema.outputs.size()), &node.attrs, node.where);
    std::vector<sbp::TensorType> types;
    for (ops::ValueId input : node.inputs) types.push_back(backward_.values[input].type);
    absl::StatusOr<std::vector<sbp::TensorType>> inferred =
        schema.ok() ? def->infer({node.attrs, types, context_.dims})
                    : absl::StatusOr<std::vector<sbp::TensorType>>(schema);
    if (!inferred.ok()) {
      error_ = absl::InternalError(absl::StrCat(node.where, ": ", inferred.status().message()));
      return {backward_.AddValue("error", {}), backward_.AddValue("error", {}),
              backward_.AddValue("error", {})};
    }
    for (size_t i = 0; i < inferred->size(); ++i) {
      node.outputs.push_back(backward_.AddValue(
          absl::StrCat(node.name, i == 0 ? "" : absl::StrCat(".", i)), inferred->at(i)));
    }
    std::vector<ops::ValueId> outputs = node.outputs;
    backward_.nodes.push_back(std::move(node));
    return outputs;
  }

  const PassContext& context_;
  Function& forward_;
  ModelFunction* model_function_;
  const std::vector<char>& shared_args_;
  const std::vector<char>& result_has_grad_;
  int loss_result_;
  Function backward_;
  std::vector<char> needs_;
  std::map<ops::ValueId, ops::ValueId> stashed_;
  std::map<ops::ValueId, std::vector<ops::ValueId>> grads_;
  absl::Status error_;
};

class NodeGradient final : public ops::GradientBuilder {
 public:
  NodeGradient(FunctionDifferentiator* owner, int index) : owner_(owner), index_(index) {}

  const Attributes& attrs() const override { return node().attrs; }
  int num_inputs() const override { return static_cast<int>(node().inputs.size()); }
  ops::ValueId input(int i) const override {
    return i < num_inputs() && node().inputs[i] >= 0 ? owner_->Stash(node().inputs[i]) : -1;
  }
  ops::ValueId output(int i) const override {
    Node& forward_node = owner_->forward_.nodes[index_];
    while (static_cast<int>(forward_node.outputs.size()) <= i) AddOptionalOutput(&forward_node);
    return owner_->Stash(owner_->forward_.nodes[index_].outputs[i]);
  }
  ops::ValueId output_grad(int i) const override {
    if (i >= static_cast<int>(node().outputs.size())) return -1;
    return owner_->GradOf(node().outputs[i]);
  }
  bool needs_grad(int i) const override {
    return i < num_inputs() && node().inputs[i] >= 0 && owner_->needs_[node().inputs[i]];
  }
  const sbp::TensorType& type(ops::ValueId value) const override {
    return owner_->backward_.values[value].type;
  }
  uint64_t rng_key() const override { return node().rng_key; }
  std::vector<ops::ValueId> Add(const std::string& op, const std::vector<ops::ValueId>& inputs,
                                Attributes attributes) override {
    return owner_->Emit(op, inputs, std::move(attributes), node().rng_key,
                        absl::StrCat("gradient of ", node().name));
  }
  void SetInputGrad(int i, ops::ValueId grad) override {
    if (needs_grad(i)) owner_->Accumulate(node().inputs[i], grad);
  }

 private:
  const Node& node() const { return owner_->forward_.nodes[index_]; }

  void AddOptionalOutput(Node* forward_node) const {
    const ops::OpDef* def = ops::OpRegistry::Find(forward_node->op);
    std::vector<sbp::TensorType> types;
    for (ops::ValueId input : forward_node->inputs)
      types.push_back(owner_->forward_.values[input].type);
    size_t k = forward_node->outputs.size();
    absl::StatusOr<std::vector<sbp::TensorType>> inferred =
        def->infer({forward_node->attrs, types, owner_->context_.dims});
    ops::ValueId value = owner_->forward_.AddValue(
        absl::StrCat(forward_node->name, ".", def->schema.outputs[k].name), inferred->at(k));
    owner_->needs_.push_back(0);
    forward_node->outputs.push_back(value);
  }

  FunctionDifferentiator* owner_;
  int index_;
};

absl::Status FunctionDifferentiator::Visit(int index) {
  const Node& node = forward_.nodes[index];
  bool has_grad = false, needs = false;
  for (ops::ValueId output : node.outputs) has_grad = has_grad || grads_.count(output) > 0;
  for (ops::ValueId input : node.inputs) needs = needs || (input >= 0 && needs_[input]);
  if (!has_grad || !needs) return absl::OkStatus();
  const ops::OpDef* def = ops::OpRegistry::Find(node.op);
  if (!def->gradient) {
    return Rejected({"W0450", node.where, "an op with a gradient between a parameter and the loss",
                     absl::StrCat("op \"", node.op, "\", which has none"),
                     "move it off the way to the loss"});
  }
  NodeGradient gradient(this, index);
  if (node.op == kMovingAverageOp) FollowSample(node);
  absl::Status status = def->gradient(gradient);
  if (!status.ok()) return At(forward_.nodes[index].where, status);
  return error_;
}

// Marks the arguments of a model function that are parameters whose weights calls of other
// functions read, too, in each call.
std::vector<char> SharedArgs(const Module& module, int model_function) {
  const Model& model = module.model;
  const Function& function = module.functions[model.functions[model_function].forward];
  std::vector<char> elsewhere(model.weights.size(), 0);
  for (const ModelCall& call : model.calls) {
    if (call.model_function == model_function) continue;
    for (int weight : call.weights) elsewhere[weight] = 1;
  }
  std::vector<char> shared(function.args.size(), 0);
  for (const ParameterInfo& parameter : function.parameters) shared[parameter.arg] = 1;
  for (const ModelCall& call : model.calls) {
    if (call.model_function != model_function) continue;
    for (size_t p = 0; p < call.weights.size(); ++p) {
      if (!elsewhere[call.weights[p]]) shared[function.parameters[p].arg] = 0;
    }
  }
  return shared;
}

}  // namespace

absl::Status Differentiate(const PassContext& context, Module* module) {
  Model& model = module->model;
  // Finds the results that carry gradients back and the arguments that want gradients, over all
  // calls.
  std::vector<char> value_needs(model.values.size(), 0), value_has_grad(model.values.size(), 0);
  for (ModelFunction& f : model.functions) {
    f.arg_needs_grad.assign(module->functions[f.forward].args.size(), 0);
  }
  std::vector<std::vector<char>> result_has_grad(model.functions.size());
  for (size_t f = 0; f < model.functions.size(); ++f)
    result_has_grad[f].assign(model.functions[f].num_results, 0);
  for (const ModelCall& call : model.calls) {
    ModelFunction& f = model.functions[call.model_function];
    const Function& function = module->functions[f.forward];
    bool any = false;
    size_t next = 0;
    for (size_t a = 0; a < function.args.size(); ++a) {
      if (function.args[a].kind == ArgKind::kParameter) {
        f.arg_needs_grad[a] = function.IsFrozen(static_cast<int>(a)) ? 0 : 1;
      } else if (value_needs[call.args[next++]]) {
        f.arg_needs_grad[a] = 1;
      }
      any = any || f.arg_needs_grad[a];
    }
    for (int result : call.results)
      value_needs[result] = any && IsReal(model.values[result].type.dtype);
  }
  value_has_grad[model.loss] = 1;
  for (size_t c = model.calls.size(); c-- > 0;) {
    const ModelCall& call = model.calls[c];
    bool any = false;
    for (int result : call.results) any = any || value_has_grad[result];
    if (!any) continue;
    for (size_t r = 0; r < call.results.size(); ++r) {
      if (value_has_grad[call.results[r]] && call.results[r] != model.loss)
        result_has_grad[call.model_function][r] = 1;
    }
    for (int arg : call.args) value_has_grad[arg] = value_has_grad[arg] || value_needs[arg];
  }
  if (!value_needs[model.loss]) {
    const size_t frozen = std::count_if(model.weights.begin(), model.weights.end(),
                                        [](const ModelWeight& weight) { return weight.frozen; });
    return Rejected(
        {"W0451", "graph", "a loss that depends on at least one parameter that is trained",
         absl::StrCat("\"", model.values[model.loss].name, "\", which depends on none",
                      frozen == 0 ? ""
                                  : absl::StrCat("; ", frozen, " of ", model.weights.size(),
                                                 " weights are frozen, by training.group or by "
                                                 "their parameters")),
         frozen == 0 ? "a parameter on the way to the loss, or `weir eval`"
                     : "fewer frozen weights, or `weir eval`"});
  }
  const ModelValue& loss = model.values[model.loss];
  for (size_t f = 0; f < model.functions.size(); ++f) {
    ModelFunction& model_function = model.functions[f];
    bool owns_loss = model.calls[loss.call].model_function == static_cast<int>(f);
    bool any = owns_loss;
    for (char has : result_has_grad[f]) any = any || has;
    if (!any || model_function.backward >= 0) continue;
    const std::vector<char> shared = SharedArgs(*module, static_cast<int>(f));
    FunctionDifferentiator differentiator(context, module, &model_function, shared,
                                          result_has_grad[f], owns_loss, loss.result);
    WEIR_ASSIGN_OR_RETURN(Function backward, differentiator.Run());
    module->functions.push_back(std::move(backward));
    model_function.backward = static_cast<int>(module->functions.size()) - 1;
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
