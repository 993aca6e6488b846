#include "compiler/passes/weight_uses.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

const Function& ForwardOf(const Module& module, const ModelCall& call) {
  return module.functions[module.model.functions[call.model_function].forward];
}

// Returns whether `function` computes a gradient of its argument `arg`, or a sample of a moving
// average.
bool HasGradient(const ModelFunction& function, int arg) {
  const auto among = [arg](const std::vector<int>& args) {
    return std::find(args.begin(), args.end(), arg) != args.end();
  };
  return among(function.backward_results) || among(function.weight_gradient_results);
}

}  // namespace

std::vector<char> ReadArgs(const Module& module, const ModelFunction& model_function) {
  const Function& function = module.functions[model_function.forward];
  std::vector<char> read(function.args.size(), 0);
  for (const Node& node : function.nodes) {
    for (ops::ValueId input : node.inputs) {
      const int arg = function.ArgOf(input);
      if (arg >= 0) read[arg] = 1;
    }
  }
  for (const auto* args : {&model_function.backward_args, &model_function.weight_gradient_args}) {
    for (const ModelFunction::BackwardArg& from : *args) {
      if (from.kind == ModelFunction::BackwardArg::kForwardArg) read[from.index] = 1;
    }
  }
  return read;
}

absl::StatusOr<std::vector<std::vector<WeightUse>>> FindWeightUses(const Module& module,
                                                                   PlanMode mode) {
  const Model& model = module.model;
  std::vector<std::vector<WeightUse>> uses(model.weights.size());
  std::vector<char> read(model.weights.size(), 0), trained(model.weights.size(), 0);
  for (size_t c = 0; c < model.calls.size(); ++c) {
    const ModelCall& call = model.calls[c];
    const ModelFunction& function = model.functions[call.model_function];
    const std::vector<char> read_args = ReadArgs(module, function);
    for (size_t p = 0; p < call.weights.size(); ++p) {
      const int arg = ForwardOf(module, call).parameters[p].arg, weight = call.weights[p];
      uses[weight].push_back({static_cast<int>(c), p});
      if (read_args[arg]) read[weight] = 1;
      if (HasGradient(function, arg)) trained[weight] = 1;
    }
  }
  std::set<std::string> names;
  for (size_t w = 0; w < model.weights.size(); ++w) {
    const ModelWeight& weight = model.weights[w];
    const WeightUse& first = uses[w].front();
    const Function& function = ForwardOf(module, model.calls[first.call]);
    for (const WeightUse& use : uses[w]) {
      const ModelCall &call = model.calls[use.call], &first_call = model.calls[first.call];
      if (uses[w].size() == 1 || ForwardOf(module, call).parameters[use.parameter].momentum == 0)
        continue;
      return Rejected({"W0317", absl::StrCat("parameter ", weight.name),
                       "one call that reads a moving average",
                       absl::StrCat(uses[w].size(), " calls, the first of them ", first_call.name),
                       "declare the average in the function that has the moving_average, so that "
                       "each call has one of its own"});
    }
    const bool needs_gradient = mode == PlanMode::kTrain && !weight.frozen;
    if (needs_gradient && (!read[w] || !trained[w])) {
      return Rejected(
          {"W0475",
           absl::StrCat("function ", function.name, ", parameter ",
                        function.parameters[first.parameter].name),
           "a parameter the loss depends on",
           read[w] ? "one that only other outputs depend on" : "one that no output depends on",
           "remove it, or use it; a parameter that training leaves alone has frozen: true"});
    }
    if (read[w] && !names.insert(weight.name).second) {
      return Rejected({"W0473", absl::StrCat("call ", model.calls[first.call].name),
                       "each weight name once", absl::StrCat("\"", weight.name, "\" again"),
                       "rename the call or the parameter"});
    }
  }
  return uses;
}

}  // namespace weir::compiler
