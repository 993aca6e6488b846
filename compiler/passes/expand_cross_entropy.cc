#include "absl/strings/str_cat.h"
#include "compiler/passes/passes.h"

namespace weir::compiler {
namespace {

Node MakeNode(const Node& from, const std::string& suffix, const std::string& op,
              std::vector<ops::ValueId> inputs, std::vector<ops::ValueId> outputs,
              Attributes attrs) {
  Node node;
  node.name = absl::StrCat(from.name, ".", suffix);
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = std::move(outputs);
  node.attrs = std::move(attrs);
  node.rng_key = from.rng_key;
  node.where = from.where;
  return node;
}

void Expand(const Node& node, Function* function, std::vector<Node>* out) {
  ops::ValueId logits = node.inputs[0], targets = node.inputs[1], loss = node.outputs[0];
  sbp::TensorType row_type = function->values[loss].type;
  sbp::TensorType max_type = row_type;
  max_type.dtype = function->values[logits].type.dtype;
  auto fresh = [&](const char* suffix, const sbp::TensorType& type) {
    return function->AddValue(absl::StrCat(node.name, ".", suffix), type);
  };
  ops::ValueId max = node.outputs.size() > 1 ? node.outputs[1] : fresh("max", row_type);
  ops::ValueId sum_exp = node.outputs.size() > 2 ? node.outputs[2] : fresh("sum_exp", row_type);
  ops::ValueId picked = fresh("picked", row_type);
  ops::ValueId raw_max = max;
  if (max_type.dtype != DType::kF32) raw_max = fresh("raw_max", max_type);
  int64_t axis = static_cast<int64_t>(function->values[logits].type.dims.size()) - 1;
  out->push_back(MakeNode(node, "max", "reduce_max", {logits}, {raw_max},
                          {{"axes", std::vector<int64_t>{axis}}}));
  if (raw_max != max) {
    out->push_back(
        MakeNode(node, "max_f32", "cast", {raw_max}, {max}, {{"to", std::string("f32")}}));
  }
  out->push_back(MakeNode(node, "sums", "exp_sum_pick", {logits, targets, max}, {sum_exp, picked},
                          node.attrs));
  std::vector<ops::ValueId> parts = {max, sum_exp, picked};
  const std::vector<int64_t> ignored = node.attrs.Ints("ignore_index");
  if (!ignored.empty()) parts.push_back(targets);
  out->push_back(
      MakeNode(node, "finish", "cross_entropy_finish", parts, {loss}, {{"ignore_index", ignored}}));
}

}  // namespace

absl::Status ExpandCrossEntropy(const PassContext& context, Module* module) {
  for (Function& function : module->functions) {
    const LayoutRules rules = context.rules.OnStage(function.rules_of_stage);
    std::vector<Node> nodes;
    for (Node& node : function.nodes) {
      bool split = false;
      if (node.op == "softmax_cross_entropy") {
        const std::string& vocab = function.values[node.inputs[0]].type.dims.back().name;
        for (int axis = 0; axis < context.stage_mesh.num_axes(); ++axis) {
          split = split || (context.stage_mesh.size(axis) > 1 &&
                            rules.Find(vocab, axis, RuleScope::kActivations) >= 0);
        }
      }
      if (split) {
        Expand(node, &function, &nodes);
      } else {
        nodes.push_back(std::move(node));
      }
    }
    function.nodes = std::move(nodes);
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
