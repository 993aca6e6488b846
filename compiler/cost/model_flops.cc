#include "compiler/cost/model_flops.h"

#include <vector>

#include "ops/defs/op_def.h"

namespace weir::compiler {
namespace {

// Returns the flops of the forward pass of one micro-batch.
double ForwardFlops(const Module& module) {
  double total = 0;
  for (const ModelCall& call : module.model.calls) {
    const Function& function =
        module.functions[module.model.functions[call.model_function].forward];
    for (const Node& node : function.nodes) {
      const ops::OpDef* def = ops::OpRegistry::Find(node.op);
      if (def == nullptr || !def->flops) continue;
      std::vector<sbp::TensorType> inputs, outputs;
      for (ops::ValueId id : node.inputs)
        inputs.push_back(id < 0 ? sbp::TensorType() : function.values[id].type);
      for (ops::ValueId id : node.outputs) outputs.push_back(function.values[id].type);
      total += def->flops(node.attrs, inputs, outputs);
    }
  }
  return total;
}

}  // namespace

double ModelFlops(const LogicalPlan& plan) {
  return 3 * ForwardFlops(plan.module) * static_cast<double>(plan.micro_batches);
}

}  // namespace weir::compiler
