#include "absl/strings/str_cat.h"
#include "compiler/passes/pass.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

absl::Status Fail(const Node& node, const std::string& what) {
  return absl::InternalError(absl::StrCat("verifier: ", node.where, ": ", what));
}

absl::Status VerifyTypes(const Function& function, const Node& node, const ops::OpDef& def,
                         const PassContext& context) {
  std::vector<sbp::TensorType> inputs;
  for (ops::ValueId input : node.inputs) {
    if (input >= 0) inputs.push_back(function.values[input].type);
  }
  absl::StatusOr<std::vector<sbp::TensorType>> types =
      def.infer({node.attrs, inputs, context.dims});
  if (!types.ok()) return Fail(node, std::string(types.status().message()));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const sbp::TensorType& stored = function.values[node.outputs[i]].type;
    if (stored.shape() != types->at(i).shape() || stored.dtype != types->at(i).dtype) {
      return Fail(node, absl::StrCat("result ", i, " is ", ToText(stored), ", inferred ",
                                     ToText(types->at(i))));
    }
  }
  return absl::OkStatus();
}

// Checks, once layouts exist, that the operands form a legal signature over every mesh axis.
absl::Status VerifyLayouts(const Function& function, const Node& node, const ops::OpDef& def,
                           const PassContext& context) {
  std::vector<sbp::TensorType> inputs;
  for (ops::ValueId input : node.inputs) {
    if (input >= 0) inputs.push_back(function.values[input].type);
  }
  absl::StatusOr<std::vector<sbp::TensorType>> outputs =
      def.infer({node.attrs, inputs, context.dims});
  if (!outputs.ok()) return Fail(node, std::string(outputs.status().message()));
  std::vector<sbp::AxisSignature> legal =
      sbp::LegalSignatures(def.rule(node.attrs, inputs, *outputs));
  for (int axis = 0; axis < context.stage_mesh.num_axes(); ++axis) {
    bool found = false;
    for (const sbp::AxisSignature& signature : legal) {
      bool same = true;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        same = same && function.values[node.inputs[i]].layout[axis] == signature.inputs[i];
      }
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        same = same && function.values[node.outputs[i]].layout[axis] == signature.outputs[i];
      }
      found = found || same;
    }
    if (!found)
      return Fail(node, absl::StrCat("no legal signature over mesh axis ",
                                     context.stage_mesh.axes()[axis].name));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyFunction(const Function& function, const PassContext& context) {
  std::vector<char> defined(function.values.size(), 0);
  for (const Arg& arg : function.args) defined[arg.value] = 1;
  size_t axes = static_cast<size_t>(context.stage_mesh.num_axes());
  for (const Node& node : function.nodes) {
    bool laid_out = axes > 0;
    for (ops::ValueId input : node.inputs) {
      if (input < 0) continue;
      if (!defined[input])
        return Fail(node,
                    absl::StrCat("operand ", function.values[input].name, " is not defined yet"));
      laid_out = laid_out && function.values[input].layout.size() == axes;
    }
    for (ops::ValueId output : node.outputs) {
      if (defined[output])
        return Fail(node, absl::StrCat("defines ", function.values[output].name, " again"));
      defined[output] = 1;
      laid_out = laid_out && function.values[output].layout.size() == axes;
    }
    if (node.op == kBoxingOp) continue;
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    if (def == nullptr) return Fail(node, absl::StrCat("no op \"", node.op, "\""));
    WEIR_RETURN_IF_ERROR(VerifyTypes(function, node, *def, context));
    if (laid_out) WEIR_RETURN_IF_ERROR(VerifyLayouts(function, node, *def, context));
  }
  for (const Result& result : function.results) {
    if (!defined[result.value]) {
      return absl::InternalError(
          absl::StrCat("verifier: function ", function.name, " returns an undefined value"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
