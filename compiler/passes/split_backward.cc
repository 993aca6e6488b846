// Zero-bubble pipelines need two things: backward passes that send their result, the gradient of
// the input, early, and work that can fill gaps. The gradients of weights are such work, because no
// act waits for them before the update.
//
// The nodes that gradients of activations need stay in the backward function. The other nodes lie
// only on the way to gradients of parameters. They move to a new function in the same order, so
// each node computes what it did before. The arguments of the new function are the arguments of the
// backward function, and values that cross the cut become results of the backward function. If a
// node stays and also gives the gradient of a parameter (as for a norm's scale), that gradient
// stays with the node.
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "compiler/passes/passes.h"

namespace weir::compiler {
namespace {

using BackwardArg = ModelFunction::BackwardArg;

class BackwardSplitter {
 public:
  BackwardSplitter(const Function& forward, Function* backward, ModelFunction* model_function)
      : forward_(forward), backward_(*backward), model_function_(*model_function) {}

  // Returns whether there was anything to move.
  bool Run(Function* weight_gradient) {
    weight_.name = absl::StrCat(forward_.name, ".weight_gradient");
    weight_.rules_of_stage = forward_.rules_of_stage;
    producer_.assign(backward_.values.size(), -1);
    for (size_t n = 0; n < backward_.nodes.size(); ++n) {
      for (ops::ValueId output : backward_.nodes[n].outputs)
        producer_[output] = static_cast<int>(n);
    }
    MarkStaying();
    std::vector<Result> staying;
    std::vector<int> staying_args;
    std::vector<std::pair<ops::ValueId, int>> leaving;  // value, argument of forward
    for (size_t r = 0; r < backward_.results.size(); ++r) {
      const int arg = model_function_.backward_results[r];
      const ops::ValueId value = backward_.results[r].value;
      if (IsParameter(arg) && producer_[value] >= 0 && !stays_[producer_[value]]) {
        leaving.push_back({value, arg});
      } else {
        staying.push_back(backward_.results[r]);
        staying_args.push_back(arg);
      }
    }
    if (leaving.empty()) return false;
    backward_.results = std::move(staying);
    model_function_.backward_results = std::move(staying_args);
    MoveNodes(leaving);
    for (const auto& [value, arg] : leaving) {
      weight_.results.push_back({Inside(value), ResultKind::kNatural, {}, false});
      model_function_.weight_gradient_results.push_back(arg);
    }
    DropUnread();
    *weight_gradient = std::move(weight_);
    return true;
  }

 private:
  bool IsParameter(int arg) const { return forward_.args[arg].kind == ArgKind::kParameter; }

  // Marks the nodes that gradients of activations need.
  void MarkStaying() {
    stays_.assign(backward_.nodes.size(), 0);
    std::vector<char> needed(backward_.values.size(), 0);
    for (size_t r = 0; r < backward_.results.size(); ++r) {
      if (!IsParameter(model_function_.backward_results[r])) needed[backward_.results[r].value] = 1;
    }
    for (size_t n = backward_.nodes.size(); n-- > 0;) {
      const Node& node = backward_.nodes[n];
      for (ops::ValueId output : node.outputs) stays_[n] = stays_[n] || needed[output];
      if (!stays_[n]) continue;
      for (ops::ValueId input : node.inputs) {
        if (input >= 0) needed[input] = 1;
      }
    }
  }

  void MoveNodes(const std::vector<std::pair<ops::ValueId, int>>& leaving) {
    std::vector<char> wanted(backward_.values.size(), 0);
    for (const auto& [value, arg] : leaving) wanted[value] = 1;
    std::vector<char> moves(backward_.nodes.size(), 0);
    for (size_t n = backward_.nodes.size(); n-- > 0;) {
      if (stays_[n]) continue;
      const Node& node = backward_.nodes[n];
      for (ops::ValueId output : node.outputs) moves[n] = moves[n] || wanted[output];
      if (!moves[n]) continue;
      for (ops::ValueId input : node.inputs) {
        if (input >= 0) wanted[input] = 1;
      }
    }
    std::vector<Node> kept;
    for (size_t n = 0; n < backward_.nodes.size(); ++n) {
      Node& node = backward_.nodes[n];
      if (!moves[n]) {
        kept.push_back(std::move(node));
        continue;
      }
      for (ops::ValueId& input : node.inputs) {
        if (input >= 0) input = Inside(input);
      }
      for (ops::ValueId& output : node.outputs) output = Copy(output);
      node.where = absl::StrCat(
          "function ", weight_.name, ", ",
          absl::StripPrefix(node.where, absl::StrCat("function ", backward_.name, ", ")));
      weight_.nodes.push_back(std::move(node));
    }
    backward_.nodes = std::move(kept);
  }

  ops::ValueId Copy(ops::ValueId value) {
    const Value& have = backward_.values[value];
    ops::ValueId copy = weight_.AddValue(have.name, have.type);
    weight_.values[copy].layout = have.layout;
    weight_.values[copy].why = have.why;
    inside_[value] = copy;
    return copy;
  }

  // Returns the new function's value for a value of the backward function. If no node of the new
  // function computes the value, the value becomes an argument.
  ops::ValueId Inside(ops::ValueId value) {
    auto known = inside_.find(value);
    if (known != inside_.end()) return known->second;
    ArgKind kind = ArgKind::kFixed;
    BackwardArg from;
    const int arg = backward_.ArgOf(value);
    if (arg >= 0) {
      kind = backward_.args[arg].kind;
      from = model_function_.backward_args[arg];
    } else {
      from = {BackwardArg::kBackwardResult, static_cast<int>(backward_.results.size())};
      for (size_t r = 0; r < backward_.results.size(); ++r) {
        // Gradients of parameters may be summed up later, and the sums are no longer this value.
        const bool parameter = r < model_function_.backward_results.size() &&
                               IsParameter(model_function_.backward_results[r]);
        if (backward_.results[r].value == value && !parameter) from.index = static_cast<int>(r);
      }
      if (from.index == static_cast<int>(backward_.results.size()))
        backward_.results.push_back({value, ResultKind::kNatural, {}, false});
    }
    model_function_.weight_gradient_args.push_back(from);
    const ops::ValueId copy = Copy(value);
    weight_.args.push_back({copy, kind});
    return copy;
  }

  // Drops arguments of the backward function that only moved nodes read.
  void DropUnread() {
    std::vector<char> read(backward_.values.size(), 0);
    for (const Node& node : backward_.nodes) {
      for (ops::ValueId input : node.inputs) {
        if (input >= 0) read[input] = 1;
      }
    }
    for (const Result& result : backward_.results) read[result.value] = 1;
    std::vector<Arg> args;
    std::vector<BackwardArg> sources;
    for (size_t a = 0; a < backward_.args.size(); ++a) {
      if (!read[backward_.args[a].value]) continue;
      args.push_back(backward_.args[a]);
      sources.push_back(model_function_.backward_args[a]);
    }
    backward_.args = std::move(args);
    model_function_.backward_args = std::move(sources);
  }

  const Function& forward_;
  Function& backward_;
  ModelFunction& model_function_;
  Function weight_;
  std::vector<int> producer_;
  std::vector<char> stays_;
  std::map<ops::ValueId, ops::ValueId> inside_;  // backward -> weight gradient
};

}  // namespace

absl::Status SplitBackward(const PassContext&, Module* module) {
  for (ModelFunction& model_function : module->model.functions) {
    if (model_function.backward < 0 || model_function.weight_gradient >= 0) continue;
    Function weight_gradient;
    BackwardSplitter splitter(module->functions[model_function.forward],
                              &module->functions[model_function.backward], &model_function);
    if (!splitter.Run(&weight_gradient)) continue;
    module->functions.push_back(std::move(weight_gradient));
    model_function.weight_gradient = static_cast<int>(module->functions.size()) - 1;
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
