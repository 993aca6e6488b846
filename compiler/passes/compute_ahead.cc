#include <map>

#include "absl/strings/str_cat.h"
#include "compiler/passes/passes.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

absl::Status NotData(const std::string& where, const std::string& found) {
  return Rejected({"W0452", where,
                   "step_mean of what the nodes beside the step_mean compute from inputs of main",
                   found,
                   "compute the operand from inputs of main, between the same two calls of main"});
}

// An AheadMaker copies the nodes on which the step means of a function depend to a new function. A
// result of the new function is the mean over the micro-batches of a step.
class AheadMaker {
 public:
  AheadMaker(const PassContext& context, const Function& function)
      : context_(context), function_(function) {
    ahead_.name = absl::StrCat(function.name, ".ahead");
    ahead_.rules_of_stage = function.rules_of_stage;
  }

  absl::Status Add(const Node& mean) {
    WEIR_RETURN_IF_ERROR(Copy(mean.inputs[0], mean.where));
    const double share = 1.0 / static_cast<double>(context_.micro_batches);
    const ops::ValueId part =
        Append(mean, "share", "scale", copies_.at(mean.inputs[0]), {{"factor", share}});
    const ops::ValueId sum = Append(mean, "sum", "accumulate", part, {});
    ahead_.results.push_back({sum, ResultKind::kNatural, {}, /*per_step=*/true});
    return absl::OkStatus();
  }

  Function& ahead() { return ahead_; }
  // The arguments of the old function that the new function has, in order.
  const std::vector<int>& args() const { return args_; }

 private:
  ops::ValueId Append(const Node& mean, const char* suffix, const std::string& op,
                      ops::ValueId input, Attributes attrs) {
    Node node;
    node.name = absl::StrCat(mean.name, ".", suffix);
    node.op = op;
    node.inputs = {input};
    node.attrs = std::move(attrs);
    node.where = mean.where;
    node.outputs = {ahead_.AddValue(node.name, ahead_.values[input].type)};
    ahead_.nodes.push_back(node);
    return node.outputs[0];
  }

  // Copies the node that makes `value`, after all nodes on which it depends.
  absl::Status Copy(ops::ValueId value, const std::string& where) {
    if (copies_.count(value) > 0) return absl::OkStatus();
    const auto copy_value = [this](ops::ValueId of) {
      const Value& original = function_.values[of];
      return copies_[of] = ahead_.AddValue(original.name, original.type);
    };
    const int arg = function_.ArgOf(value);
    if (arg >= 0) {
      if (function_.args[arg].kind != ArgKind::kActivation)
        return NotData(where, absl::StrCat("parameter \"", function_.values[value].name, "\""));
      ahead_.args.push_back({copy_value(value), ArgKind::kActivation});
      args_.push_back(arg);
      return absl::OkStatus();
    }
    Node node = function_.nodes[function_.ProducerOf(value)];
    // A copy of a step_mean would be the mean of one micro-batch, and not that of the step.
    if (node.op == "step_mean")
      return NotData(where, absl::StrCat("the step_mean of ", node.where));
    for (ops::ValueId& input : node.inputs) {
      if (input < 0) continue;
      WEIR_RETURN_IF_ERROR(Copy(input, where));
      input = copies_.at(input);
    }
    for (ops::ValueId& output : node.outputs) output = copy_value(output);
    ahead_.nodes.push_back(std::move(node));
    return absl::OkStatus();
  }

  const PassContext& context_;
  const Function& function_;
  Function ahead_;
  std::vector<int> args_;
  std::map<ops::ValueId, ops::ValueId> copies_;  // by value of the old function
};

// Gives the calls of model function `f` values of the model for the step means, which have the
// types of the function's last `count` arguments.
absl::Status AddValues(int f, int count, Model* model, const Function& function) {
  const ModelFunction& model_function = model->functions[f];
  for (size_t c = 0; c < model->calls.size(); ++c) {
    ModelCall& call = model->calls[c];
    if (call.model_function != f) continue;
    for (int arg : model_function.ahead_args) {
      const ModelValue& value = model->values[call.args[function.ActivationsBefore(arg)]];
      if (value.call < 0 && value.ahead_of < 0) continue;
      return NotData(absl::StrCat("function ", function.name, ", call ", call.name),
                     absl::StrCat("\"", value.name, "\", which a call computes"));
    }
    for (int k = 0; k < count; ++k) {
      const Arg& arg = function.args[function.args.size() - count + k];
      ModelValue value{absl::StrCat(call.name, ".", function.values[arg.value].name),
                       function.values[arg.value].type, -1, k};
      value.ahead_of = static_cast<int>(c);
      model->values.push_back(std::move(value));
      call.args.push_back(static_cast<int>(model->values.size()) - 1);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ComputeAhead(const PassContext& context, Module* module) {
  if (context.micro_batches <= 1) return absl::OkStatus();
  Model& model = module->model;
  for (size_t f = 0; f < model.functions.size(); ++f) {
    Function& function = module->functions[model.functions[f].forward];
    AheadMaker maker(context, function);
    std::vector<Node*> means;
    for (Node& node : function.nodes) {
      if (node.op != "step_mean") continue;
      WEIR_RETURN_IF_ERROR(maker.Add(node));
      means.push_back(&node);
    }
    if (means.empty()) continue;
    for (Node* mean : means) {
      const ops::ValueId value = function.AddValue(absl::StrCat(mean->name, ".ahead"),
                                                   function.values[mean->inputs[0]].type);
      function.args.push_back({value, ArgKind::kActivation});
      mean->op = "scale";
      mean->inputs = {value};
      mean->attrs = {{"factor", 1.0}};
    }
    model.functions[f].ahead_args = maker.args();
    WEIR_RETURN_IF_ERROR(
        AddValues(static_cast<int>(f), static_cast<int>(means.size()), &model, function));
    module->functions.push_back(std::move(maker.ahead()));
    model.functions[f].ahead = static_cast<int>(module->functions.size()) - 1;
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
