#include "tests/fuzz/graph_generator.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/zoo/function_writer.h"

namespace weir::fuzz {
namespace {

using Dims = std::vector<std::string>;

struct Tensor {
  std::string name;
  Dims dims;
};

std::string TypeText(const Dims& dims) {
  return absl::StrCat("f32[", absl::StrJoin(dims, ", "), "]");
}

// Drops nodes and parameters that no output depends on, because a graph with such parameters is
// refused.
void DropUnused(proto::Function* function) {
  std::set<std::string> used(function->output().begin(), function->output().end());
  google::protobuf::RepeatedPtrField<proto::Node> nodes;
  for (int i = function->node_size(); i-- > 0;) {
    const proto::Node& node = function->node(i);
    if (!used.contains(node.output_size() > 0 ? node.output(0) : node.name())) continue;
    used.insert(node.input().begin(), node.input().end());
    used.insert(node.shared().begin(), node.shared().end());
    *nodes.Add() = node;
  }
  std::reverse(nodes.begin(), nodes.end());
  function->mutable_node()->Swap(&nodes);
  google::protobuf::RepeatedPtrField<proto::Parameter> parameters;
  for (const proto::Parameter& parameter : function->parameter()) {
    if (used.contains(parameter.name())) *parameters.Add() = parameter;
  }
  function->mutable_parameter()->Swap(&parameters);
}

class GraphGenerator {
 public:
  explicit GraphGenerator(std::mt19937_64* random) : random_(*random) {}

  proto::Graph Run() {
    graph_.set_name("generated");
    const int64_t head_dim = 2 * (1 + Below(2)), heads = 1 + Below(6);
    zoo::AddDim(&graph_, "batch", 1 + Below(9));
    zoo::AddDim(&graph_, "sequence", 1 + Below(7));
    zoo::AddDim(&graph_, "hidden", heads * head_dim, Below(2) == 0 ? head_dim : 1);
    zoo::AddDim(&graph_, "inner", 1 + Below(12));
    zoo::AddDim(&graph_, "heads", heads);
    zoo::AddDim(&graph_, "head_dim", head_dim);
    zoo::AddDim(&graph_, "vocab", 2 + Below(11));
    with_sequence_ = Below(4) != 0;
    const int num_blocks = Below(4);
    for (int i = 0; i < num_blocks; ++i) {
      WriteBlock(absl::StrCat("block", i));
      blocks_.push_back(absl::StrCat("block", i));
    }
    WriteMain();
    for (proto::Function& function : *graph_.mutable_function()) DropUnused(&function);
    graph_.set_main("main");
    return graph_;
  }

 private:
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  Dims Activation() const {
    return with_sequence_ ? Dims{"batch", "sequence", "hidden"} : Dims{"batch", "hidden"};
  }
  std::string NewName(const std::string& stem) { return absl::StrCat(stem, "_", next_name_++); }

  const Tensor& Any(const std::vector<Tensor>& tensors) {
    // Mostly picks the last tensor, so that models are deep.
    return Below(2) == 0 ? tensors.back() : tensors[Below(static_cast<int>(tensors.size()))];
  }

  void WriteBlock(const std::string& name) {
    zoo::FunctionWriter f(graph_.add_function(), name);
    f.Input("x", TypeText(Activation()));
    std::vector<Tensor> tensors = {{"x", Activation()}};
    if (Below(3) == 0) {
      // A weight of main enters the block.
      f.Input("gain", "f32[hidden]");
      tensors.push_back({f.Node("gained", "mul", {"x", "gain"}), Activation()});
      with_gain_.insert(name);
    }
    Body(f, 1 + Below(8), &tensors);
    std::string back = ToHidden(f, Any(tensors));
    if (!blocks_.empty() && !with_gain_.contains(blocks_.back()) && Below(3) == 0)
      back = f.Call("inner_call", blocks_.back(), back, NewName("called"), 1 + Below(2));
    f.Output(Below(2) == 0 ? f.Node("y", "add", {back, "x"})
                           : f.Node("y", "scale", {back}, {{"factor", 0.5}}));
  }

  void WriteMain() {
    proto::Function* function = graph_.add_function();
    zoo::FunctionWriter f(function, "main");
    std::string at;
    bool with_table = false;
    const Dims ids = with_sequence_ ? Dims{"batch", "sequence"} : Dims{"batch"};
    const std::string ids_type = absl::StrCat("i32[", absl::StrJoin(ids, ", "), "]");
    if (Below(2) == 0) {
      f.Input("tokens", ids_type);
      with_table = true;
      f.Normal("table", "f32[vocab, hidden]", 0.3);
      at = f.Node("embedded", "embedding", {"table", "tokens"});
    } else {
      f.Input("features", TypeText(Activation()));
      at = "features";
    }
    f.Input("targets", ids_type);
    std::vector<Tensor> tensors = {{at, Activation()}};
    if (Below(2) == 0) Body(f, 1 + Below(4), &tensors);
    at = ToHidden(f, tensors.back());
    f.Ones("gain", "f32[hidden]");
    for (const std::string& block : blocks_) {
      const std::string call = absl::StrCat("call_", block);
      at = f.Call(call, block, at, NewName("called"), 1 + Below(3),
                  with_gain_.contains(block) ? std::vector<std::string>{"gain"}
                                             : std::vector<std::string>{});
      if (Below(5) == 0) function->mutable_node()->rbegin()->set_weights(call);
    }
    if (blocks_.empty() || Below(3) == 0) {
      tensors = {{at, Activation()}};
      Body(f, 1 + Below(4), &tensors);
      at = ToHidden(f, tensors.back());
    }
    const bool tied = with_table && Below(2) == 0;
    const std::string head = tied ? "table" : f.Normal("head", "f32[hidden, vocab]", 0.3);
    const std::string logits = f.Node("logits", "matmul", {at, head}, {{"transpose_w", tied}});
    f.Node("each_loss", "softmax_cross_entropy", {logits, "targets"});
    f.Output(f.Node("loss", "reduce_mean", {"each_loss"}));
    if (Below(4) == 0) {
      f.Node("each_hit", "accuracy", {logits, "targets"});
      f.Output(f.Node("accuracy", "reduce_mean", {"each_hit"}));
    }
  }

  // Returns a value of the activations' type that depends on `from`.
  std::string ToHidden(zoo::FunctionWriter& f, const Tensor& from) {
    if (from.dims == Activation()) return from.name;
    const std::string weight =
        f.Normal(NewName("back"), absl::StrCat("f32[", from.dims.back(), ", hidden]"), 0.3);
    Tensor last = {f.Node(NewName("to_hidden"), "matmul", {from.name, weight}), from.dims};
    last.dims.back() = "hidden";
    if (last.dims == Activation()) return last.name;
    // Sums away heads or other dimensions in between. A tensor without a needed dimension, or with
    // turned ones, starts anew.
    if (last.dims == Dims{"batch", "sequence", "heads", "hidden"}) {
      return f.Node(NewName("merged"), "reduce_sum", {last.name},
                    {{"axes", std::vector<int64_t>{2}}});
    }
    if (last.dims == Dims{"sequence", "batch", "hidden"}) {
      return f.Node(NewName("turned"), "transpose", {last.name},
                    {{"perm", std::vector<int64_t>{1, 0, 2}}});
    }
    return last.name;
  }

  void Body(zoo::FunctionWriter& f, int num_ops, std::vector<Tensor>* tensors) {
    for (int i = 0; i < num_ops; ++i) AddOp(f, tensors);
  }

  void AddOp(zoo::FunctionWriter& f, std::vector<Tensor>* tensors) {
    const Tensor x = Any(*tensors);
    switch (Below(12)) {
      case 0: return AddUnary(f, x, tensors);
      case 1: return AddBinary(f, x, tensors);
      case 2: return AddMatmul(f, x, "inner", tensors);
      case 3: return AddMatmul(f, x, "hidden", tensors);
      case 4: return AddNorm(f, x, tensors);
      case 5: return AddAttention(f, x, tensors);
      case 6: return AddTurned(f, x, tensors);
      case 7: return AddGated(f, x, tensors);
      case 8: return AddHalves(f, x, tensors);
      case 9: tensors->push_back({f.Node(NewName("softmax"), "softmax", {x.name}), x.dims}); return;
      case 10: return AddBias(f, x, tensors);
      default: return AddMatmul(f, x, "vocab", tensors);
    }
  }

  void AddUnary(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    static const char* const kOps[] = {"relu", "gelu",     "gelu_exact", "silu", "sigmoid",
                                       "tanh", "softplus", "erf",        "sin",  "abs"};
    const char* op = kOps[Below(static_cast<int>(std::size(kOps)))];
    tensors->push_back({f.Node(NewName(op), op, {x.name}), x.dims});
  }

  void AddBinary(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    static const char* const kOps[] = {"add", "mul", "sub", "maximum", "minimum"};
    std::string other = x.name;
    for (const Tensor& tensor : *tensors) {
      if (tensor.dims == x.dims && Below(2) == 0) other = tensor.name;
    }
    const char* op = kOps[Below(static_cast<int>(std::size(kOps)))];
    tensors->push_back({f.Node(NewName(op), op, {x.name, other}), x.dims});
  }

  void AddBias(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    const std::string bias =
        f.Normal(NewName("bias"), absl::StrCat("f32[", x.dims.back(), "]"), 0.1);
    tensors->push_back(
        {f.Node(NewName("biased"), Below(2) == 0 ? "add" : "mul", {x.name, bias}), x.dims});
  }

  void AddMatmul(zoo::FunctionWriter& f, const Tensor& x, const std::string& to,
                 std::vector<Tensor>* tensors) {
    static const char* const kActivations[] = {"none", "relu", "gelu", "gelu_exact", "silu"};
    const bool turned = Below(3) == 0;
    const std::string& from = x.dims.back();
    const std::string weight = f.Normal(NewName("w"),
                                        turned ? absl::StrCat("f32[", to, ", ", from, "]")
                                               : absl::StrCat("f32[", from, ", ", to, "]"),
                                        0.3);
    const std::string bias =
        Below(2) == 0 ? f.Zeros(NewName("b"), absl::StrCat("f32[", to, "]")) : "";
    Tensor y = {
        f.Node(NewName("matmul"), "matmul", {x.name, weight, bias},
               {{"transpose_w", turned}, {"activation", std::string(kActivations[Below(5)])}}),
        x.dims};
    y.dims.back() = to;
    tensors->push_back(y);
  }

  void AddNorm(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    const std::string gamma = f.Ones(NewName("gamma"), absl::StrCat("f32[", x.dims.back(), "]"));
    tensors->push_back(
        {f.Node(NewName("norm"), Below(2) == 0 ? "rms_norm" : "layer_norm", {x.name, gamma}),
         x.dims});
  }

  void AddAttention(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    if (x.dims != Dims{"batch", "sequence", "hidden"}) return AddUnary(f, x, tensors);
    std::string parts[3];
    for (std::string& part : parts) {
      const std::string weight = f.Normal(NewName("w"), "f32[hidden, hidden]", 0.3);
      part = f.Node(NewName("part"), "matmul", {x.name, weight});
      part = f.Node(NewName("by_head"), "reshape", {part},
                    {{"to", std::string("batch, sequence, heads, head_dim")}});
    }
    if (Below(2) == 0) parts[0] = f.Node(NewName("rotated"), "rotary", {parts[0]});
    const std::string attended =
        f.Node(NewName("attended"), "attention", {parts[0], parts[1], parts[2]},
               {{"causal", Below(2) == 0}});
    if (Below(4) == 0) tensors->push_back({attended, {"batch", "sequence", "heads", "head_dim"}});
    tensors->push_back({f.Node(NewName("joined"), "reshape", {attended},
                               {{"to", std::string("batch, sequence, hidden")}}),
                        x.dims});
  }

  // Adds a node that swaps batch and sequence.
  void AddTurned(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    if (x.dims.size() != 3) return AddUnary(f, x, tensors);
    tensors->push_back({f.Node(NewName("turned"), "transpose", {x.name},
                               {{"perm", std::vector<int64_t>{1, 0, 2}}}),
                        {x.dims[1], x.dims[0], x.dims[2]}});
  }

  void AddGated(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    AddMatmul(f, x, "inner", tensors);
    const Tensor gate = tensors->back();
    AddMatmul(f, x, "inner", tensors);
    tensors->push_back(
        {f.Node(NewName("gated"), "mul", {gate.name, tensors->back().name}), gate.dims});
  }

  // Cuts a tensor in two along the first axis that allows it, and joins the halves in the other
  // order.
  void AddHalves(zoo::FunctionWriter& f, const Tensor& x, std::vector<Tensor>* tensors) {
    const int64_t axis = static_cast<int64_t>(x.dims.size()) - 1;
    int64_t size = 0;
    for (const proto::Dim& dim : graph_.dim()) {
      if (dim.name() == x.dims.back()) size = dim.size();
    }
    if (size < 2) return AddUnary(f, x, tensors);
    const int64_t first = 1 + Below(static_cast<int>(size) - 1);
    const std::string a = f.Node(NewName("a"), "slice", {x.name},
                                 {{"axis", axis}, {"begin", int64_t{0}}, {"size", first}});
    const std::string b = f.Node(NewName("b"), "slice", {x.name},
                                 {{"axis", axis}, {"begin", first}, {"size", size - first}});
    const std::string joined = f.Node(NewName("joined"), "concat", {b, a}, {{"axis", axis}});
    tensors->push_back(
        {f.Node(NewName("named"), "reshape", {joined}, {{"to", absl::StrJoin(x.dims, ", ")}}),
         x.dims});
  }

  std::mt19937_64& random_;
  proto::Graph graph_;
  bool with_sequence_ = true;
  std::vector<std::string> blocks_;
  std::set<std::string> with_gain_;  // blocks that a weight of main enters
  int next_name_ = 0;
};

}  // namespace

proto::Graph GenerateGraph(std::mt19937_64* random) { return GraphGenerator(random).Run(); }

}  // namespace weir::fuzz
