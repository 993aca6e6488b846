#include "tools/onnx/rewrite.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tools/onnx/formulas.h"

namespace weir::onnx {
namespace {

// A Rewriter makes the graph anew, node by node. Each node first looks back, into the new graph,
// for a formula that it ends.
class Rewriter {
 public:
  explicit Rewriter(const WeirGraph& old)
      : old_(old), new_of_(old.values.size(), -1), uses_(old.values.size(), 0) {
    for (const GraphNode& node : old.nodes) {
      for (ValueId input : node.inputs) ++uses_[input];
    }
  }

  WeirGraph Run(const std::vector<ValueId*>& outputs) {
    for (const GraphInput& input : old_.inputs) {
      new_of_[input.value] = graph_.AddInput(input.name, old_.values[input.value].type.dtype,
                                             old_.shape(input.value), input.dims);
    }
    for (const GraphParameter& parameter : old_.parameters)
      new_of_[parameter.value] = graph_.AddParameter(parameter, old_.shape(parameter.value));
    for (ValueId* output : outputs) {
      if (*output >= 0) ++uses_[*output];
    }
    for (const GraphNode& node : old_.nodes) Rewrite(node);
    for (ValueId* output : outputs) {
      if (*output >= 0) *output = new_of_[*output];
    }
    return std::move(graph_);
  }

 private:
  ValueId Add(const std::string& op, std::vector<ValueId> inputs, Attributes attrs = {}) {
    auto added = graph_.AddNode(name_, op, std::move(inputs), std::move(attrs), 1);
    return added.ok() ? (*added)[0] : -1;
  }

  void Rewrite(const GraphNode& node) {
    name_ = node.name;
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(new_of_[input]);
    if (node.outputs.size() == 1) {
      const ValueId better = Better(node, inputs);
      if (better >= 0) {
        new_of_[node.outputs[0]] = better;
        return;
      }
    }
    auto same = graph_.AddNode(node.name, node.op, std::move(inputs), node.attrs,
                               static_cast<int>(node.outputs.size()));
    for (size_t i = 0; same.ok() && i < node.outputs.size(); ++i)
      new_of_[node.outputs[i]] = (*same)[i];
  }

  // Returns the value that stands for the node's result, or -1: the node stays as it is.
  ValueId Better(const GraphNode& node, const std::vector<ValueId>& in) {
    const Formulas f(graph_);
    if (node.op == "transpose") return Transpose(in[0], node.attrs.Ints("perm"));
    if (node.op == "reshape") return Reshape(in[0], node);
    if (node.op == "matmul") return Matmul(node, in);
    if (node.op == "batched_matmul") return BatchedMatmul(node, in);
    if (node.op == "div") {
      if (f.Number(in[0]) == 1.0) return Add("reciprocal", {in[1]});
    }
    if (node.op == "reciprocal") {
      if (const GraphNode* sqrt = graph_.Producer(in[0], "sqrt"))
        return Add("rsqrt", {sqrt->inputs[0]});
    }
    if (node.op == "mul" || node.op == "scale") {
      for (const char* op : {"gelu_exact", "gelu"}) {
        const ValueId x = op == std::string("gelu") ? f.GeluTanh(node, in) : f.GeluErf(node, in);
        if (x >= 0) return Add(op, {x});
      }
    }
    if (node.op == "mul") {
      for (int i : {0, 1}) {
        const GraphNode* sigmoid = graph_.Producer(in[i], "sigmoid");
        if (sigmoid != nullptr && sigmoid->inputs[0] == in[1 - i]) return Add("silu", {in[1 - i]});
      }
      if (const auto norm = f.RmsNorm(in))
        return Add("rms_norm", {norm->x, norm->gamma}, {{"epsilon", norm->epsilon}});
    }
    if (node.op == "add") {
      if (const auto norm = f.LayerNorm(in))
        return Add("layer_norm", {norm->x, norm->gamma, norm->beta}, {{"epsilon", norm->epsilon}});
      return Bias(node, in);
    }
    return -1;
  }

  ValueId Transpose(ValueId x, std::vector<int64_t> perm) {
    if (const GraphNode* inner = graph_.Producer(x, "transpose")) {
      const std::vector<int64_t> first = inner->attrs.Ints("perm");
      for (int64_t& axis : perm) axis = first[axis];
      x = inner->inputs[0];
    }
    return std::is_sorted(perm.begin(), perm.end()) ? x : Add("transpose", {x}, {{"perm", perm}});
  }

  ValueId Reshape(ValueId x, const GraphNode& node) {
    if (const GraphNode* inner = graph_.Producer(x, "reshape")) x = inner->inputs[0];
    return graph_.shape(x) == old_.shape(node.outputs[0]) ? x : Add("reshape", {x}, node.attrs);
  }

  // A weight that is transposed first is read as it is stored.
  ValueId Matmul(const GraphNode& node, std::vector<ValueId> in) {
    const GraphNode* transpose = graph_.Producer(in[1], "transpose");
    if (transpose == nullptr) return -1;
    Attributes attrs = node.attrs;
    attrs.Set("transpose_w", !attrs.Bool("transpose_w"));
    in[1] = transpose->inputs[0];
    return Add("matmul", std::move(in), std::move(attrs));
  }

  ValueId BatchedMatmul(const GraphNode& node, std::vector<ValueId> in) {
    if (node.attrs.map().empty()) {
      const ValueId attention = Attention(in);
      if (attention >= 0) return attention;
    }
    // Matrices that are transposed first.
    const GraphNode* transpose = graph_.Producer(in[1], "transpose");
    if (transpose == nullptr) return -1;
    std::vector<int64_t> perm = transpose->attrs.Ints("perm");
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    Attributes attrs = node.attrs;
    attrs.Set("transpose_b", !attrs.Bool("transpose_b"));
    in[1] = Transpose(transpose->inputs[0], perm);
    return in[1] < 0 ? -1 : Add("batched_matmul", std::move(in), std::move(attrs));
  }

  ValueId Attention(const std::vector<ValueId>& in) {
    const auto found = Formulas(graph_).Attention(in);
    if (!found.has_value()) return -1;
    std::vector<ValueId> operands;
    for (ValueId x : {found->q, found->k, found->v}) operands.push_back(Transpose(x, {0, 2, 1, 3}));
    if (found->mask >= 0) {
      std::vector<int64_t> shape = graph_.shape(found->mask);
      shape.insert(shape.begin(), 4 - shape.size(), 1);
      const bool fits = graph_.shape(found->mask) == shape;
      operands.push_back(fits ? found->mask
                              : Add("reshape", {found->mask}, {{"to", DimsOf(shape)}}));
    }
    if (std::count(operands.begin(), operands.end(), -1) > 0) return -1;
    const ValueId y =
        Add("attention", std::move(operands), {{"causal", found->causal}, {"scale", found->scale}});
    return y < 0 ? -1 : Transpose(y, {0, 2, 1, 3});
  }

  // The bias of a product that nobody else reads.
  ValueId Bias(const GraphNode& node, const std::vector<ValueId>& in) {
    for (int i : {0, 1}) {
      const GraphNode* product = graph_.Producer(in[i], "matmul");
      if (product == nullptr || product->inputs.size() != 2 || uses_[node.inputs[i]] != 1) continue;
      if (graph_.values[in[1 - i]].parameter < 0) continue;
      const bool transposed = product->attrs.Bool("transpose_w");
      const std::vector<int64_t> columns = {graph_.shape(product->inputs[1])[transposed ? 0 : 1]};
      if (graph_.shape(in[1 - i]) != columns) continue;
      return Add("matmul", {product->inputs[0], product->inputs[1], in[1 - i]}, product->attrs);
    }
    return -1;
  }

  const WeirGraph& old_;
  std::vector<ValueId> new_of_;  // by values of the old graph
  std::vector<int> uses_;        // likewise
  WeirGraph graph_;
  std::string name_;
};

// Returns the graph without nodes and parameters that no output needs.
WeirGraph WithoutDead(const WeirGraph& old, const std::vector<ValueId*>& outputs) {
  std::vector<bool> alive(old.values.size(), false);
  for (ValueId* output : outputs) {
    if (*output >= 0) alive[*output] = true;
  }
  for (size_t i = old.nodes.size(); i-- > 0;) {
    const GraphNode& node = old.nodes[i];
    const bool is_read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId value) { return alive[value]; });
    for (ValueId input : node.inputs) alive[input] = alive[input] || is_read;
  }
  WeirGraph graph;
  std::vector<ValueId> new_of(old.values.size(), -1);
  for (const GraphInput& input : old.inputs) {
    new_of[input.value] = graph.AddInput(input.name, old.values[input.value].type.dtype,
                                         old.shape(input.value), input.dims);
  }
  for (const GraphParameter& parameter : old.parameters) {
    if (alive[parameter.value])
      new_of[parameter.value] = graph.AddParameter(parameter, old.shape(parameter.value));
  }
  for (const GraphNode& node : old.nodes) {
    if (std::none_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId value) { return alive[value]; }))
      continue;
    GraphNode copy = node;
    for (ValueId& input : copy.inputs) input = new_of[input];
    for (ValueId& output : copy.outputs) {
      new_of[output] = static_cast<ValueId>(graph.values.size());
      graph.values.push_back({old.values[output].type, static_cast<int>(graph.nodes.size())});
      output = new_of[output];
    }
    graph.nodes.push_back(std::move(copy));
  }
  for (ValueId* output : outputs) {
    if (*output >= 0) *output = new_of[*output];
  }
  return graph;
}

// An operation on two operands that repeat wants equal names of equal dimensions, and a piece of a
// dimension keeps the dimension's name. A Renamer gives such pieces names of their own.
class Renamer {
 public:
  explicit Renamer(const WeirGraph& old) : old_(old), new_of_(old.values.size(), -1) {}

  WeirGraph Run(const std::vector<ValueId*>& outputs) {
    for (const GraphInput& input : old_.inputs) {
      Place(input.value, graph_.AddInput(input.name, old_.values[input.value].type.dtype,
                                         old_.shape(input.value), input.dims));
    }
    for (const GraphParameter& parameter : old_.parameters)
      Place(parameter.value, graph_.AddParameter(parameter, old_.shape(parameter.value)));
    for (const GraphNode& node : old_.nodes) Copy(node);
    for (ValueId* output : outputs) {
      if (*output >= 0) *output = new_of_[*output];
    }
    return std::move(graph_);
  }

 private:
  void Place(ValueId old, ValueId value) {
    new_of_[old] = value;
    NoteType(value, graph_.values[value].type);
  }

  void NoteType(ValueId value, const sbp::TensorType& type) {
    named_.resize(std::max(named_.size(), static_cast<size_t>(value) + 1));
    named_[value] = type;
  }

  void Copy(const GraphNode& node) {
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs) inputs.push_back(new_of_[input]);
    static const auto* const kRepeating = new std::set<std::string>{
        "add",           "sub",         "mul",        "div",        "maximum",    "minimum",
        "where",         "equal",       "not_equal",  "less",       "less_equal", "greater",
        "greater_equal", "logical_and", "logical_or", "logical_xor"};
    if (kRepeating->count(node.op) > 0) {
      for (ValueId& input : inputs) {
        if (!(named_[input] == graph_.values[input].type)) input = Renamed(input, node.name);
      }
    }
    std::vector<sbp::TensorType> types;
    for (ValueId input : inputs) types.push_back(named_[input]);
    auto added = graph_.AddNode(node.name, node.op, std::move(inputs), node.attrs,
                                static_cast<int>(node.outputs.size()));
    if (!added.ok()) return;
    const auto results = InferTypes(node.op, node.attrs, types);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Place(node.outputs[i], (*added)[i]);
      if (results.ok()) NoteType((*added)[i], (*results)[i]);
    }
  }

  ValueId Renamed(ValueId value, const std::string& name) {
    const auto known = renamed_.find(value);
    if (known != renamed_.end()) return known->second;
    auto added = graph_.AddNode(name, "reshape", {value}, {{"to", DimsOf(graph_.shape(value))}}, 1);
    if (!added.ok()) return value;
    NoteType((*added)[0], graph_.values[(*added)[0]].type);
    return renamed_[value] = (*added)[0];
  }

  const WeirGraph& old_;
  std::vector<ValueId> new_of_;  // by values of the old graph
  std::vector<sbp::TensorType>
      named_;  // by values of the new graph, as operations name the dimensions
  std::map<ValueId, ValueId> renamed_;
  WeirGraph graph_;
};

}  // namespace

void Simplify(WeirGraph* graph, const std::vector<ValueId*>& outputs) {
  // A formula may end in what another formula becomes, so a second round may find more.
  for (int round = 0; round < 2; ++round) *graph = Rewriter(*graph).Run(outputs);
  *graph = WithoutDead(*graph, outputs);
  *graph = Renamer(*graph).Run(outputs);
}

}  // namespace weir::onnx
