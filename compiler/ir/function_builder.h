// Builds the small functions that the program adds to the model (casts, accumulation, norms,
// updates). The caller gives types and layouts outright.
// Thread rule: one thread, one function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/ir/ir.h"
#include "ops/defs/type_text.h"

namespace weir::compiler {

class FunctionBuilder {
 public:
  FunctionBuilder(std::string name, const sbp::Mesh& stage_mesh) : stage_mesh_(stage_mesh) {
    function_.name = std::move(name);
  }

  ops::ValueId AddArg(const std::string& name, const sbp::TensorType& type,
                      const sbp::Layout& layout) {
    ops::ValueId value = AddValue(absl::StrCat("a", function_.args.size()), type, layout);
    function_.args.push_back({value, ArgKind::kFixed});
    return value;
  }

  std::vector<ops::ValueId> Emit(
      const std::string& op, std::vector<ops::ValueId> inputs,
      const std::vector<std::pair<sbp::TensorType, sbp::Layout>>& outputs, Attributes attrs) {
    Node node;
    node.op = op;
    node.name = absl::StrCat(op, "_", function_.nodes.size());
    node.where = absl::StrCat("function ", function_.name, ", node ", node.name);
    node.inputs = std::move(inputs);
    node.attrs = std::move(attrs);
    for (const auto& [type, layout] : outputs) {
      node.outputs.push_back(AddValue(absl::StrCat("v", function_.values.size()), type, layout));
    }
    function_.nodes.push_back(node);
    return node.outputs;
  }

  ops::ValueId EmitConstant(double value, const sbp::TensorType& type, const sbp::Layout& layout) {
    return Emit("constant", {}, {{type, layout}},
                {{"value", value},
                 {"to", absl::StrCat(Name(type.dtype), "[", ops::DimsText(type.dims), "]")}})[0];
  }

  ops::ValueId Boxed(ops::ValueId value, const sbp::Layout& layout) {
    if (function_.values[value].layout == layout) return value;
    return Emit(kBoxingOp, {value}, {{function_.values[value].type, layout}}, {})[0];
  }

  // kStep: keeps the result over the micro-batches of a step. kMicroBatch: publishes the result
  // once per act.
  void AddResult(ops::ValueId value, Frequency frequency) {
    function_.results.push_back({value, ResultKind::kNatural, {}, frequency == Frequency::kStep});
  }

  void MarkState(ops::ValueId value, const std::string& name) { function_.states[value] = name; }
  const std::string& StateName(ops::ValueId value) const { return function_.states.at(value); }

  Function Take() { return std::move(function_); }

 private:
  ops::ValueId AddValue(const std::string& name, const sbp::TensorType& type,
                        const sbp::Layout& layout) {
    ops::ValueId value = function_.AddValue(name, type);
    function_.values[value].layout = layout;
    return value;
  }

  const sbp::Mesh& stage_mesh_;
  Function function_;
};

}  // namespace weir::compiler
