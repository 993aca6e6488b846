#include <vector>

#include "compiler/passes/passes.h"

namespace weir::compiler {
namespace {

void RemoveDead(Function* function) {
  std::vector<char> live(function->values.size(), 0);
  for (const Result& result : function->results) live[result.value] = 1;
  std::vector<Node> kept;
  for (size_t i = function->nodes.size(); i-- > 0;) {
    Node& node = function->nodes[i];
    bool wanted = false;
    for (ops::ValueId output : node.outputs) {
      wanted = wanted || (output >= 0 && (live[output] || function->states.count(output) > 0));
    }
    if (!wanted) continue;
    for (ops::ValueId input : node.inputs) {
      if (input >= 0) live[input] = 1;
    }
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    // Trailing optional outputs without readers are not computed.
    while (def != nullptr && node.outputs.size() > 1 && !live[node.outputs.back()] &&
           def->schema.outputs[node.outputs.size() - 1].optional) {
      node.outputs.pop_back();
    }
    kept.push_back(std::move(node));
  }
  function->nodes.assign(std::make_move_iterator(kept.rbegin()),
                         std::make_move_iterator(kept.rend()));
}

}  // namespace

absl::Status RemoveDeadNodes(const PassContext& context, Module* module) {
  for (Function& function : module->functions) RemoveDead(&function);
  return absl::OkStatus();
}

}  // namespace weir::compiler
