#include "tools/plan/layout_list.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weir::plan {
namespace {

using compiler::Arg;
using compiler::ArgKind;
using compiler::Function;
using compiler::ItemKind;
using compiler::Node;
using compiler::ProgramItem;
using compiler::Value;

// Returns whether a name is like a0, a1, v7, ..., as in functions that the compiler made.
bool IsNumbered(const std::string& name) {
  return name.size() > 1 && (name[0] == 'a' || name[0] == 'v') &&
         std::all_of(name.begin() + 1, name.end(), [](char c) { return absl::ascii_isdigit(c); });
}

// The names and reasons of the values of one function, as people know them.
class FunctionLister {
 public:
  FunctionLister(const compiler::LogicalPlan& plan, const ProgramItem& caller)
      : plan_(plan), caller_(caller), function_(plan.module.functions[caller.function]) {
    for (size_t i = 0; i < function_.args.size(); ++i)
      NameAs(function_.args[i].value, ValueName(i < caller.inputs.size() ? caller.inputs[i] : -1));
    for (size_t i = 0; i < function_.results.size(); ++i)
      NameAs(function_.results[i].value,
             ValueName(i < caller.outputs.size() ? caller.outputs[i] : -1));
    for (const auto& [value, state] : function_.states) NameAs(value, state);
  }

  std::vector<TensorLayout> List() const {
    using Role = TensorLayout::Role;
    std::set<ops::ValueId> leaving;
    for (const auto& result : function_.results) leaving.insert(result.value);
    std::vector<TensorLayout> tensors;
    for (const Arg& arg : function_.args) {
      const bool is_weight = arg.kind == ArgKind::kParameter;
      tensors.push_back(Tensor(arg.value, is_weight ? "weight" : "input",
                               is_weight ? Role::kWeight : Role::kInput));
    }
    for (const Node& node : function_.nodes) {
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        const ops::ValueId value = node.outputs[i];
        tensors.push_back(Tensor(value, i == 0 ? node.op : absl::StrCat(node.op, ", ", i + 1),
                                 leaving.count(value) > 0 ? Role::kOutput : Role::kInside));
      }
    }
    return tensors;
  }

 private:
  // Returns the name of a value without the name of the call, which stands above: "d_wq" of
  // "layers.3.d_wq" in "norm layers.3".
  std::string ValueName(int value) const {
    if (value < 0) return "";
    const std::string& name = plan_.module.values[value].name;
    const std::string call = absl::StrCat(caller_.name.substr(caller_.name.rfind(' ') + 1), ".");
    return absl::StartsWith(name, call) ? name.substr(call.size()) : name;
  }

  void NameAs(ops::ValueId value, const std::string& name) {
    if (IsNumbered(function_.values[value].name) && !name.empty()) names_.emplace(value, name);
  }

  // Returns the name of a numbered value: the caller's name for the value, or its source: "of d_wq"
  // beside the op sum_squares, "of sum_squares of d_wq" beside add.
  std::string NameOf(ops::ValueId value, int depth = 0) const {
    const Value& v = function_.values[value];
    if (!IsNumbered(v.name)) return v.name;
    const auto known = names_.find(value);
    if (known != names_.end()) return known->second;
    const int producer = function_.ProducerOf(value);
    if (producer < 0) return v.name;
    const Node& node = function_.nodes[producer];
    if (node.inputs.empty() || node.inputs.back() < 0 || depth > 2)
      return depth == 0 ? "" : node.op;
    // In a growing sum, the last part distinguishes the values.
    const bool shows_op =
        // Otherwise the op has a separate column.
        depth > 0 && node.op != compiler::kBoxingOp;
    const std::string of = NameOf(node.inputs.back(), depth + 1);
    return shows_op ? absl::StrCat(node.op, " of ", of) : depth == 0 ? absl::StrCat("of ", of) : of;
  }

  std::string ReasonOf(ops::ValueId value, const std::string& op) const {
    const Value& v = function_.values[value];
    if (!v.why.empty()) return ToText(v.why, plan_.stage_mesh);
    if (std::all_of(v.layout.begin(), v.layout.end(),
                    [](const sbp::Sbp& sbp) { return sbp.is_broadcast(); }))
      return "no rule splits it";
    if (op == "input" || op == "weight") return "as it was made";
    return op == compiler::kBoxingOp ? "for what reads it" : "as its operands are";
  }

  TensorLayout Tensor(ops::ValueId value, const std::string& what, TensorLayout::Role role) const {
    const Value& v = function_.values[value];
    return {NameOf(value),        what, role, ToText(v.type), ToText(v.layout, plan_.stage_mesh),
            ReasonOf(value, what)};
  }

  const compiler::LogicalPlan& plan_;
  const ProgramItem& caller_;
  const Function& function_;
  std::map<ops::ValueId, std::string> names_;
};

}  // namespace

std::vector<FunctionLayouts> ListLayouts(const compiler::LogicalPlan& plan) {
  std::map<int, std::vector<const ProgramItem*>> callers;
  for (const ProgramItem& item : plan.module.items) {
    if (item.kind == ItemKind::kCall) callers[item.function].push_back(&item);
  }
  std::vector<FunctionLayouts> functions;
  for (const auto& [index, items] : callers) {
    functions.push_back({plan.module.functions[index].name, items[0]->name,
                         static_cast<int64_t>(items.size()),
                         FunctionLister(plan, *items[0]).List()});
  }
  return functions;
}

}  // namespace weir::plan
