// Assigns layouts, function by function, in program order. For each node and each mesh axis the
// pass chooses one legal signature by these criteria, in order:
//   1. an explicit layout of a result;
//   2. parameters stay where the rules put them (weights do not travel);
//   3. the earliest rule of the job that names a factor the signature splits; without a rule
//      a split is only followed where an operand has it already;
//   4. fewest bytes of boxing for the operands;
//   5. the order of LegalSignatures (all B first).
// A partial value passes through a linear op only if all operands of its group are
// partial already and the op has no parameter; otherwise it is merged first.
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/passes/passes.h"

namespace weir::compiler {
namespace {

// Estimates the bytes of boxing over one axis of n ranks. The estimate is only a preference;
// boxing.h has the exact form.
double AxisCost(const sbp::Sbp& from, const sbp::Sbp& to, double bytes, int64_t n) {
  if (from == to || n == 1) return 0;
  double parts = static_cast<double>(n - 1);
  if (from.is_partial())
    return to.is_partial() ? 1e30 : to.is_broadcast() ? 2 * parts * bytes : parts * bytes;
  if (to.is_partial() || from.is_broadcast()) return 0;
  return to.is_broadcast() ? parts * bytes : bytes * parts / static_cast<double>(n);
}

class LayoutPropagator {
 public:
  LayoutPropagator(const PassContext& context, Function* function)
      : context_(context), function_(*function) {
    is_parameter_.assign(function_.values.size(), 0);
    for (const Arg& arg : function_.args)
      is_parameter_[arg.value] = arg.kind == ArgKind::kParameter;
  }

  absl::Status Run() {
    std::vector<Node> nodes = std::move(function_.nodes);
    function_.nodes.clear();
    for (Node& node : nodes) WEIR_RETURN_IF_ERROR(Place(std::move(node)));
    for (Result& result : function_.results) {
      if (result.kind == ResultKind::kNatural) continue;
      sbp::Layout want = result.layout;
      if (result.kind == ResultKind::kActivation) {
        const sbp::Layout* explicit_layout =
            context_.rules.Override(function_.name, function_.values[result.value].name);
        want = explicit_layout ? *explicit_layout
                               : context_.rules.LayoutOf(function_.values[result.value].type,
                                                         RuleScope::kActivations);
      }
      result.value = Boxed(result.value, want, {Kind::kReader, "result of the function"});
      result.layout = want;
    }
    return absl::OkStatus();
  }

 private:
  using Kind = LayoutReason::Kind;

  absl::Status Place(Node node) {
    for (ops::ValueId& input : node.inputs) {
      if (input >= 0 && replaced_.count(input) > 0) input = replaced_[input];
    }
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    std::vector<sbp::TensorType> inputs;
    for (ops::ValueId input : node.inputs) inputs.push_back(function_.values[input].type);
    WEIR_ASSIGN_OR_RETURN(std::vector<sbp::TensorType> outputs,
                          def->infer({node.attrs, inputs, context_.dims}));
    sbp::FactorRule rule = def->rule(node.attrs, inputs, outputs);
    std::vector<sbp::AxisSignature> candidates = sbp::LegalSignatures(rule);
    std::vector<sbp::Layout> input_layouts(inputs.size(), sbp::Broadcast(context_.stage_mesh));
    std::vector<sbp::Layout> output_layouts(node.outputs.size(),
                                            sbp::Broadcast(context_.stage_mesh));
    LayoutReasons reasons;
    for (int axis = 0; axis < context_.stage_mesh.num_axes(); ++axis) {
      std::optional<LayoutReason> reason;
      const sbp::AxisSignature& chosen =
          candidates[Choose(node, rule, candidates, inputs, outputs, axis, &reason)];
      for (size_t i = 0; i < inputs.size(); ++i) input_layouts[i][axis] = chosen.inputs[i];
      for (size_t i = 0; i < node.outputs.size(); ++i) output_layouts[i][axis] = chosen.outputs[i];
      if (reason.has_value()) reasons.push_back(*std::move(reason));
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      node.inputs[i] = Boxed(node.inputs[i], input_layouts[i], {Kind::kReader, node.name});
    std::vector<ops::ValueId> produced = node.outputs;
    for (size_t i = 0; i < produced.size(); ++i) {
      Value& value = function_.values[produced[i]];
      value.layout = output_layouts[i];
      value.why = reasons;
    }
    function_.nodes.push_back(std::move(node));
    for (ops::ValueId value : produced) {
      const sbp::Layout* want =
          context_.rules.Override(function_.name, function_.values[value].name);
      if (want == nullptr || *want == function_.values[value].layout) continue;
      WEIR_RETURN_IF_ERROR(
          sbp::ValidateLayout(*want, function_.values[value].type, context_.stage_mesh));
      ops::ValueId boxed = Boxed(value, *want, {Kind::kReader, "explicit layout"});
      replaced_[value] = boxed;
      for (Result& result : function_.results) {
        if (result.value == value) result.value = boxed;
      }
    }
    return absl::OkStatus();
  }

  size_t Choose(const Node& node, const sbp::FactorRule& rule,
                const std::vector<sbp::AxisSignature>& candidates,
                const std::vector<sbp::TensorType>& inputs,
                const std::vector<sbp::TensorType>& outputs, int axis,
                std::optional<LayoutReason>* reason) const {
    using Score = std::tuple<int, int, int, double>;
    constexpr int kNoRule = 1 << 20;
    size_t best = 0;
    Score best_score{1 << 20, 1 << 20, 1 << 20, 0};
    int64_t n = context_.stage_mesh.size(axis);
    bool has_parameter = false;
    for (ops::ValueId input : node.inputs) has_parameter = has_parameter || is_parameter_[input];
    for (size_t c = 0; c < candidates.size(); ++c) {
      const sbp::AxisSignature& candidate = candidates[c];
      if (candidate.linear >= 0 &&
          (has_parameter || !AllPartial(node, rule.linear[candidate.linear], axis)))
        continue;
      if (candidate.factor >= 0 && !sbp::UnitsAgree(rule, candidate.factor, inputs, outputs))
        continue;
      int against_explicit = 0, parameters_moved = 0, preference = kNoRule;
      double bytes = 0;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const sbp::Sbp& have = function_.values[node.inputs[i]].layout[axis];
        if (is_parameter_[node.inputs[i]] && !(have == candidate.inputs[i])) ++parameters_moved;
        bytes += AxisCost(have, candidate.inputs[i], static_cast<double>(inputs[i].bytes()), n);
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const sbp::Layout* want =
            context_.rules.Override(function_.name, function_.values[node.outputs[i]].name);
        if (want != nullptr && !((*want)[axis] == candidate.outputs[i])) ++against_explicit;
      }
      if (candidate.factor >= 0) {
        int found =
            context_.rules.Find(rule.factors[candidate.factor].name, axis, RuleScope::kActivations);
        if (found < 0 && has_parameter)
          found = context_.rules.Find(rule.factors[candidate.factor].name, axis,
                                      RuleScope::kParameters);
        if (found >= 0) preference = found;
      }
      // Without a rule the pass may follow a split, but never invent one.
      if (candidate.factor >= 0 && preference == kNoRule && !Follows(node, candidate, axis))
        continue;
      if (candidate.linear >= 0) preference = -1;  // merging later costs no more and may be shared
      Score score{against_explicit, parameters_moved, preference, bytes};
      if (score < best_score) {
        best_score = score;
        best = c;
        reason->reset();
        if (candidate.linear >= 0) {
          *reason = LayoutReason{Kind::kPartialSums, "", axis};
        } else if (preference != kNoRule) {
          *reason = context_.rules.ReasonOf(preference);
        } else if (candidate.factor >= 0) {
          *reason = LayoutReason{Kind::kFollows, rule.factors[candidate.factor].name, axis};
        }
      }
    }
    return best;
  }

  bool AllPartial(const Node& node, const sbp::LinearGroup& group, int axis) const {
    for (int input : group.inputs) {
      if (input >= static_cast<int>(node.inputs.size())) continue;
      const sbp::Sbp& sbp = function_.values[node.inputs[input]].layout[axis];
      if (!sbp.is_partial() || !IsLinear(sbp.combiner)) return false;
    }
    return true;
  }

  bool Follows(const Node& node, const sbp::AxisSignature& candidate, int axis) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const sbp::Sbp& have = function_.values[node.inputs[i]].layout[axis];
      if (have.is_split() && have == candidate.inputs[i]) return true;
    }
    return false;
  }

  ops::ValueId Boxed(ops::ValueId value, const sbp::Layout& want, LayoutReason reason) {
    if (function_.values[value].layout == want) return value;
    for (const auto& [layout, boxed] : boxed_[value]) {
      if (layout == want) return boxed;
    }
    ops::ValueId boxed =
        function_.AddValue(absl::StrCat(function_.values[value].name, ".as", boxed_[value].size()),
                           function_.values[value].type);
    is_parameter_.push_back(is_parameter_[value]);
    function_.values[boxed].layout = want;
    function_.values[boxed].why = {std::move(reason)};
    Node node;
    node.name = function_.values[boxed].name;
    node.op = kBoxingOp;
    node.inputs = {value};
    node.outputs = {boxed};
    node.where =
        absl::StrCat("function ", function_.name, ", boxing of ", function_.values[value].name);
    function_.nodes.push_back(std::move(node));
    boxed_[value].push_back({want, boxed});
    return boxed;
  }

  const PassContext& context_;
  Function& function_;
  std::vector<char> is_parameter_;
  std::map<ops::ValueId, std::vector<std::pair<sbp::Layout, ops::ValueId>>> boxed_;
  std::map<ops::ValueId, ops::ValueId> replaced_;
};

absl::Status SetArgLayouts(const PassContext& context, Function* function) {
  for (const Arg& arg : function->args) {
    Value& value = function->values[arg.value];
    if (arg.kind == ArgKind::kFixed) continue;
    RuleScope scope =
        arg.kind == ArgKind::kParameter ? RuleScope::kParameters : RuleScope::kActivations;
    const sbp::Layout* explicit_layout = context.rules.Override(function->name, value.name);
    value.layout = explicit_layout ? *explicit_layout : context.rules.LayoutOf(value.type, scope);
    value.why = explicit_layout ? LayoutReasons{{LayoutReason::Kind::kExplicit}}
                                : context.rules.WhyOf(value.type, scope);
    absl::Status valid = sbp::ValidateLayout(value.layout, value.type, context.stage_mesh);
    if (!valid.ok()) {
      return At(absl::StrCat("function ", function->name, ", tensor ", value.name), valid);
    }
    for (const sbp::Sbp& sbp : value.layout) {
      if (sbp.is_partial()) {
        return Rejected(
            {"W0460", absl::StrCat("function ", function->name, ", tensor ", value.name),
             "S or B for what enters a function", ToText(value.layout, context.stage_mesh), ""});
      }
    }
  }
  return absl::OkStatus();
}

// Keeps a merged copy of a stash that is partial but that the forward pass merged anyway. The
// backward pass then need not merge the stash again.
void StashMerged(Function* function, int num_results) {
  for (size_t r = static_cast<size_t>(num_results); r < function->results.size(); ++r) {
    ops::ValueId& value = function->results[r].value;
    const sbp::Layout& layout = function->values[value].layout;
    bool partial = std::any_of(layout.begin(), layout.end(),
                               [](const sbp::Sbp& sbp) { return sbp.is_partial(); });
    for (const Node& node : function->nodes) {
      if (partial && node.op == kBoxingOp && node.inputs[0] == value) {
        value = node.outputs[0];
        break;
      }
    }
  }
}

bool IsLaidOut(const Function& function) {
  return std::any_of(function.values.begin(), function.values.end(),
                     [](const Value& value) { return !value.layout.empty(); });
}

}  // namespace

absl::Status PropagateLayouts(const PassContext& whole, Module* module) {
  PassContext context = whole;
  for (ModelFunction& model_function : module->model.functions) {
    Function& forward = module->functions[model_function.forward];
    if (IsLaidOut(forward)) continue;
    context.rules = whole.rules.OnStage(forward.rules_of_stage);
    if (forward.rules_of_stage >= 0) context.stage_mesh = context.rules.stage_mesh();
    if (model_function.ahead >= 0) {
      Function& ahead = module->functions[model_function.ahead];
      WEIR_RETURN_IF_ERROR(SetArgLayouts(context, &ahead));
      WEIR_RETURN_IF_ERROR(LayoutPropagator(context, &ahead).Run());
    }
    WEIR_RETURN_IF_ERROR(SetArgLayouts(context, &forward));
    WEIR_RETURN_IF_ERROR(LayoutPropagator(context, &forward).Run());
    StashMerged(&forward, model_function.num_results);
    if (model_function.backward < 0) continue;
    Function& backward = module->functions[model_function.backward];
    for (size_t a = 0; a < backward.args.size(); ++a) {
      const ModelFunction::BackwardArg& from = model_function.backward_args[a];
      ops::ValueId source = from.kind == ModelFunction::BackwardArg::kForwardArg
                                ? forward.args[from.index].value
                                : forward.results[from.index].value;
      Value& value = backward.values[backward.args[a].value];
      value.layout = forward.values[source].layout;
      value.why = {{LayoutReason::Kind::kForward}};
      if (from.kind != ModelFunction::BackwardArg::kResultGrad) continue;
      for (sbp::Sbp& sbp : value.layout) {  // each part of a sum has the gradient of the sum
        if (sbp.is_partial()) sbp = sbp::Sbp::B();
      }
    }
    for (size_t r = 0; r < backward.results.size(); ++r) {
      Result& result = backward.results[r];
      if (result.kind != ResultKind::kActivation) continue;
      result.kind = ResultKind::kFixed;
      result.layout = forward.values[forward.args[model_function.backward_results[r]].value].layout;
    }
    WEIR_RETURN_IF_ERROR(LayoutPropagator(context, &backward).Run());
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
