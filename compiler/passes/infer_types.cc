#include "compiler/passes/infer_types.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::compiler {

absl::Status InferTypes(const PassContext& context, Function* function) {
  for (Node& node : function->nodes) {
    if (node.op == kBoxingOp) {
      function->values[node.outputs[0]].type = function->values[node.inputs[0]].type;
      continue;
    }
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    if (def == nullptr)
      return absl::InternalError(absl::StrCat("no op \"", node.op, "\" at ", node.where));
    std::vector<sbp::TensorType> inputs;
    for (ops::ValueId input : node.inputs) {
      if (input >= 0) inputs.push_back(function->values[input].type);
    }
    absl::StatusOr<std::vector<sbp::TensorType>> types =
        def->infer({node.attrs, inputs, context.dims});
    if (!types.ok()) {
      return At(node.where, types.status());
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] >= 0) function->values[node.outputs[i]].type = types->at(i);
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
