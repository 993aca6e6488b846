// A stash is an argument of the backward function that is a result of the forward function. The
// pass replaces a stash that is not kept by copies of the forward nodes that compute the stash. The
// copies start from kept values and from arguments of the forward function, which may become
// arguments of the backward function. The pass works on laid-out functions, so a copy needs no new
// choice of layouts.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/passes/passes.h"

namespace weir::compiler {
namespace {

class Recomputer {
 public:
  Recomputer(Function* forward, Function* backward, ModelFunction* model_function)
      : forward_(*forward), backward_(*backward), model_function_(*model_function) {
    producer_.assign(forward_.values.size(), -1);
    for (size_t n = 0; n < forward_.nodes.size(); ++n) {
      for (ops::ValueId output : forward_.nodes[n].outputs) producer_[output] = static_cast<int>(n);
    }
    FindKept();
  }

  // Returns whether anything changed.
  bool Run() {
    const size_t num_args = backward_.args.size();
    std::map<ops::ValueId, ops::ValueId> again;  // stash in backward -> value of forward
    for (size_t a = 0; a < num_args; ++a) {
      const ModelFunction::BackwardArg& from = model_function_.backward_args[a];
      const ops::ValueId value = backward_.args[a].value;
      if (from.kind == ModelFunction::BackwardArg::kForwardArg)
        copy_[forward_.args[from.index].value] = value;
      if (from.kind != ModelFunction::BackwardArg::kForwardResult) continue;
      const ops::ValueId original = forward_.results[from.index].value;
      if (kept_[original]) {
        copy_[original] = value;
      } else {
        again[value] = original;
      }
    }
    if (again.empty()) return false;
    auto replace = [&](ops::ValueId* value) {
      auto stash = again.find(*value);
      if (stash != again.end()) *value = Copy(stash->second);
    };
    std::vector<Node> nodes = std::move(backward_.nodes);
    backward_.nodes.clear();
    for (Node& node : nodes) {
      for (ops::ValueId& input : node.inputs) replace(&input);
      backward_.nodes.push_back(std::move(node));
    }
    for (Result& result : backward_.results) replace(&result.value);
    DropStashes(again);
    return true;
  }

 private:
  // Marks the kept values: arguments, the named values, and boxings of the named values.
  void FindKept() {
    kept_.assign(forward_.values.size(), 0);
    for (ops::ValueId value : *forward_.keep) kept_[value] = 1;
    for (const Node& node : forward_.nodes) {
      if (node.op == kBoxingOp && kept_[node.inputs[0]]) kept_[node.outputs[0]] = 1;
    }
  }

  // Returns the value of the backward function that equals `value` of the forward function.
  ops::ValueId Copy(ops::ValueId value) {
    std::set<int> wanted;  // nodes, in their order
    std::vector<ops::ValueId> open = {value};
    while (!open.empty()) {
      const ops::ValueId at = open.back();
      open.pop_back();
      if (at < 0 || copy_.count(at) > 0) continue;
      const int producer = producer_[at];
      if (kept_[at] || producer < 0) {
        AddArg(at);
      } else if (wanted.insert(producer).second) {
        const Node& node = forward_.nodes[producer];
        open.insert(open.end(), node.inputs.begin(), node.inputs.end());
      }
    }
    for (int index : wanted) CopyNode(forward_.nodes[index]);
    return copy_.at(value);
  }

  ops::ValueId AddValue(ops::ValueId original, LayoutReason::Kind why) {
    const Value& from = forward_.values[original];
    const ops::ValueId value = backward_.AddValue(from.name, from.type);
    backward_.values[value].layout = from.layout;
    backward_.values[value].why = {{why}};
    copy_[original] = value;
    return value;
  }

  void CopyNode(const Node& original) {
    Node node = original;
    node.name = absl::StrCat(original.name, ".again");
    node.where = absl::StrCat(original.where, ", computed again");
    for (ops::ValueId& input : node.inputs) input = input < 0 ? input : copy_.at(input);
    for (ops::ValueId& output : node.outputs)
      output = AddValue(output, LayoutReason::Kind::kRecomputed);
    backward_.nodes.push_back(std::move(node));
  }

  // Adds an argument for a forward argument or a kept value that the gradient itself does not read.
  void AddArg(ops::ValueId original) {
    const int arg = forward_.ArgOf(original);
    ModelFunction::BackwardArg from{ModelFunction::BackwardArg::kForwardArg, arg};
    if (arg < 0) {
      from = {ModelFunction::BackwardArg::kForwardResult,
              static_cast<int>(forward_.results.size())};
      forward_.results.push_back({original, ResultKind::kNatural, {}, false});
    }
    backward_.args.push_back({AddValue(original, LayoutReason::Kind::kForward),
                              arg < 0 ? ArgKind::kFixed : forward_.args[arg].kind});
    model_function_.backward_args.push_back(from);
  }

  void DropStashes(const std::map<ops::ValueId, ops::ValueId>& again) {
    std::vector<Arg> args;
    std::vector<ModelFunction::BackwardArg> sources;
    std::vector<char> read(forward_.results.size(), 0);
    std::fill(read.begin(), read.begin() + model_function_.num_results, char{1});
    for (size_t a = 0; a < backward_.args.size(); ++a) {
      const ModelFunction::BackwardArg& from = model_function_.backward_args[a];
      if (again.count(backward_.args[a].value) > 0) continue;
      if (from.kind == ModelFunction::BackwardArg::kForwardResult) read[from.index] = 1;
      args.push_back(backward_.args[a]);
      sources.push_back(from);
    }
    std::vector<Result> results;
    std::vector<int> new_index(forward_.results.size(), -1);
    for (size_t r = 0; r < forward_.results.size(); ++r) {
      if (!read[r]) continue;
      new_index[r] = static_cast<int>(results.size());
      results.push_back(forward_.results[r]);
    }
    for (ModelFunction::BackwardArg& from : sources) {
      if (from.kind == ModelFunction::BackwardArg::kForwardResult)
        from.index = new_index[from.index];
    }
    forward_.results = std::move(results);
    backward_.args = std::move(args);
    model_function_.backward_args = std::move(sources);
  }

  Function& forward_;
  Function& backward_;
  ModelFunction& model_function_;
  std::vector<int> producer_;                  // node of forward, by value; -1: an argument
  std::vector<char> kept_;                     // by value of forward
  std::map<ops::ValueId, ops::ValueId> copy_;  // value of forward -> the same in backward
};

}  // namespace

absl::Status RecomputeValues(const PassContext& context, Module* module) {
  bool changed = false;
  for (ModelFunction& model_function : module->model.functions) {
    if (model_function.backward < 0) continue;
    Function& forward = module->functions[model_function.forward];
    if (!forward.keep.has_value()) continue;
    changed |=
        Recomputer(&forward, &module->functions[model_function.backward], &model_function).Run();
  }
  // The forward function may now compute values without readers, for example statistics of norms.
  return changed ? RemoveDeadNodes(context, module) : absl::OkStatus();
}

}  // namespace weir::compiler
