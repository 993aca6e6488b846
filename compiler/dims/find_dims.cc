#include "compiler/dims/find_dims.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "compiler/dims/dim_lists.h"
#include "compiler/job/import_function.h"
#include "compiler/job/import_graph.h"
#include "ops/defs/op_def.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

sbp::TensorDim BySize(int64_t size) { return {absl::StrCat("n", size), size, 1}; }

std::vector<std::string> ItemsOf(const std::string& dims) {
  std::vector<std::string> items;
  if (absl::StripAsciiWhitespace(dims).empty()) return items;
  for (absl::string_view item : absl::StrSplit(dims, ','))
    items.emplace_back(absl::StripAsciiWhitespace(item));
  return items;
}

bool HasProvisional(const std::string& dims) {
  for (const std::string& item : ItemsOf(dims)) {
    if (IsProvisional(item.substr(0, item.find('=')))) return true;
  }
  return false;
}

// Returns the functions that `main` reaches, itself among them, by their places in the graph.
std::set<int> Reached(const proto::Graph& graph) {
  std::map<std::string, int> by_name;
  for (int f = 0; f < graph.function_size(); ++f) by_name.emplace(graph.function(f).name(), f);
  std::set<int> reached;
  std::vector<std::string> next = {graph.main()};
  while (!next.empty()) {
    const auto found = by_name.find(next.back());
    next.pop_back();
    if (found == by_name.end() || !reached.insert(found->second).second) continue;
    for (const proto::Node& node : graph.function(found->second).node()) {
      if (node.op() == "call") next.push_back(node.function());
    }
  }
  return reached;
}

// Calls every dimension of the functions by its size, so that the checks of names pass. Returns
// whether they have provisional names.
absl::StatusOr<bool> CallBySize(const Dims& table, const std::set<int>& functions,
                                proto::Graph* graph) {
  bool provisional = false;
  for (const int f : functions) {
    for (const DimList& list : DimListsOf(graph->mutable_function(f))) {
      const std::string text = list.dims();
      provisional = provisional || HasProvisional(text);
      absl::StatusOr<std::vector<sbp::TensorDim>> dims = ops::ParseDims(text, table);
      if (!dims.ok()) return At(list.where, dims.status());
      for (sbp::TensorDim& dim : *dims) dim = BySize(dim.size);
      list.Replace(ops::DimsText(*dims));
    }
  }
  return provisional;
}

class DimFinder {
 public:
  DimFinder(const proto::Graph& graph, const Dims& table) : graph_(graph), table_(table) {
    for (int f = 0; f < graph.function_size(); ++f) by_name_.emplace(graph.function(f).name(), f);
  }

  absl::StatusOr<GraphNodeDims> Run(const std::set<int>& reached) {
    walked_.resize(graph_.function_size());
    for (const int f : reached) WEIR_RETURN_IF_ERROR(Walk(f));
    for (WrittenDim& written : found_.written) written.dim = found_.atoms.Resolve(written.dim);
    for (OperandDim& operand : found_.operands) operand.dim = found_.atoms.Resolve(operand.dim);
    for (NodeDims& node : nodes_) {
      for (auto* tensors : {&node.operands, &node.results}) {
        for (std::vector<DimAtoms::Dim>& dims : *tensors) Resolve(&dims);
      }
      Resolve(&node.whole);
    }
    return GraphNodeDims{std::move(found_), std::move(nodes_)};
  }

 private:
  void Resolve(std::vector<DimAtoms::Dim>* dims) const {
    for (DimAtoms::Dim& dim : *dims) dim = found_.atoms.Resolve(dim);
  }

  struct Tensor {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::vector<DimAtoms::Dim> dims;
  };

  struct Walked {
    bool done = false;
    std::vector<Tensor> inputs, outputs;
  };

  Tensor NewTensor(DType dtype, const std::vector<sbp::TensorDim>& dims) {
    Tensor tensor{dtype, {}, {}};
    for (const sbp::TensorDim& dim : dims) {
      tensor.shape.push_back(dim.size);
      tensor.dims.push_back(found_.atoms.New(dim.size));
    }
    return tensor;
  }

  // Notes the dimensions of `tensor` that stand in the text `dims`.
  void Write(WrittenDim at, const std::string& dims, const Tensor& tensor) {
    const std::vector<std::string> items = ItemsOf(dims);
    for (size_t d = 0; d < items.size() && d < tensor.dims.size(); ++d) {
      at.axis = static_cast<int>(d);
      at.item = items[d];
      at.name = std::string(absl::StripAsciiWhitespace(items[d].substr(0, items[d].find('='))));
      at.size = tensor.shape[d];
      at.dim = tensor.dims[d];
      found_.written.push_back(at);
    }
  }

  absl::StatusOr<Tensor> Declared(const std::string& type, const std::string& where) {
    absl::StatusOr<ops::DeclaredType> declared = ops::ParseDeclaredType(type, table_);
    if (!declared.ok()) return At(where, declared.status());
    return NewTensor(declared->type.dtype, declared->type.dims);
  }

  // A function that calls itself has been refused before.
  absl::Status Walk(int f) {
    if (walked_[f].done) return absl::OkStatus();
    const proto::Function& function = graph_.function(f);
    Walked walked;
    std::map<std::string, Tensor> tensors;
    for (int i = 0; i < function.input_size(); ++i) {
      const proto::TensorDecl& input = function.input(i);
      WEIR_ASSIGN_OR_RETURN(Tensor tensor, Declared(input.type(), FunctionWhere(function.name())));
      Write({WrittenDim::Place::kInput, f, i, 0, 0, TensorName(function, input.name())},
            DimsOf(input.type()), tensor);
      walked.inputs.push_back(tensor);
      tensors[input.name()] = std::move(tensor);
    }
    for (int i = 0; i < function.parameter_size(); ++i) {
      const proto::Parameter& parameter = function.parameter(i);
      WEIR_ASSIGN_OR_RETURN(Tensor tensor,
                            Declared(parameter.type(), FunctionWhere(function.name())));
      Write({WrittenDim::Place::kParameter, f, i, 0, 0, TensorName(function, parameter.name())},
            DimsOf(parameter.type()), tensor);
      tensors[parameter.name()] = std::move(tensor);
    }
    for (int n = 0; n < function.node_size(); ++n) {
      const proto::Node& node = function.node(n);
      WEIR_RETURN_IF_ERROR(node.op() == "call" ? Call(function, node, &tensors)
                                               : Op(f, n, &tensors));
    }
    for (const std::string& output : function.output()) {
      WEIR_ASSIGN_OR_RETURN(Tensor tensor, Named(output, function, tensors));
      walked.outputs.push_back(std::move(tensor));
    }
    walked.done = true;
    walked_[f] = std::move(walked);
    return absl::OkStatus();
  }

  std::string TensorName(const proto::Function& function, const std::string& tensor) const {
    return function.name() == graph_.main() ? tensor : absl::StrCat(function.name(), ".", tensor);
  }

  static absl::StatusOr<Tensor> Named(const std::string& name, const proto::Function& function,
                                      const std::map<std::string, Tensor>& tensors) {
    const auto it = tensors.find(name);
    if (it != tensors.end()) return it->second;
    return Rejected({"W0407", FunctionWhere(function.name()), "a tensor defined before its use",
                     absl::StrCat("\"", name, "\""), ""});
  }

  void Unify(const Tensor& a, const Tensor& b) {
    for (size_t d = 0; d < a.dims.size() && d < b.dims.size(); ++d)
      found_.atoms.Unify(a.dims[d], b.dims[d]);
  }

  absl::Status Call(const proto::Function& function, const proto::Node& node,
                    std::map<std::string, Tensor>* tensors) {
    const auto called = by_name_.find(node.function());
    if (called == by_name_.end()) {
      return Rejected({"W0418", FunctionWhere(function.name()), "`function` to name a function",
                       absl::StrCat("\"", node.function(), "\""), ""});
    }
    WEIR_RETURN_IF_ERROR(Walk(called->second));
    const Walked& of = walked_[called->second];
    std::vector<std::string> given(node.input().begin(), node.input().end());
    given.insert(given.end(), node.shared().begin(), node.shared().end());
    for (size_t i = 0; i < given.size() && i < of.inputs.size(); ++i) {
      WEIR_ASSIGN_OR_RETURN(const Tensor tensor, Named(given[i], function, *tensors));
      Unify(tensor, of.inputs[i]);
    }
    if (node.repeat() > 1) {
      for (size_t i = 0; i < of.outputs.size() && i < of.inputs.size(); ++i)
        Unify(of.outputs[i], of.inputs[i]);
    }
    const std::vector<std::string> outputs = OutputsOf(node);
    for (size_t i = 0; i < outputs.size() && i < of.outputs.size(); ++i)
      (*tensors)[outputs[i]] = of.outputs[i];
    return absl::OkStatus();
  }

  static sbp::TensorType TypeOf(const Tensor& tensor) {
    sbp::TensorType type{tensor.dtype, {}};
    for (int64_t size : tensor.shape) type.dims.push_back(BySize(size));
    return type;
  }

  absl::Status Op(int f, int n, std::map<std::string, Tensor>* tensors) {
    const proto::Function& function = graph_.function(f);
    const proto::Node& node = function.node(n);
    const std::string where = absl::StrCat(FunctionWhere(function.name()), ", node ", node.name());
    WEIR_ASSIGN_OR_RETURN(const ops::OpDef* def, ops::OpRegistry::FindForUser(node.op(), where));
    WEIR_ASSIGN_OR_RETURN(Attributes attrs, ImportAttributes(node.attr(), where));
    const int num_outputs = node.output().empty() ? 1 : node.output_size();
    WEIR_RETURN_IF_ERROR(
        ops::CheckSchema(def->schema, node.input_size(), num_outputs, &attrs, where));
    std::vector<Tensor> operands;
    std::vector<sbp::TensorType> inputs;
    for (const std::string& input : node.input()) {
      WEIR_ASSIGN_OR_RETURN(operands.emplace_back(), Named(input, function, *tensors));
      inputs.push_back(TypeOf(operands.back()));
    }
    absl::StatusOr<std::vector<sbp::TensorType>> outputs = def->infer({attrs, inputs, table_});
    if (!outputs.ok()) return At(where, outputs.status());
    outputs->resize(num_outputs);
    for (sbp::TensorType& type : *outputs) {
      for (sbp::TensorDim& dim : type.dims) dim = BySize(dim.size);
    }
    std::vector<Tensor> results;
    for (const sbp::TensorType& type : *outputs)
      results.push_back(NewTensor(type.dtype, type.dims));
    const sbp::FactorRule rule = def->rule(attrs, inputs, *outputs);
    std::vector<DimAtoms::Dim> factors;
    for (const sbp::Factor& factor : rule.factors) factors.push_back(found_.atoms.New(factor.size));
    UnifyWithFactors(rule.inputs, factors, operands);
    UnifyWithFactors(rule.outputs, factors, results);
    for (size_t i = 0; i < operands.size(); ++i) {
      for (size_t d = 0; d < operands[i].dims.size(); ++d) {
        found_.operands.push_back({node.op(), static_cast<int>(i), static_cast<int>(d),
                                   static_cast<int>(operands[i].dims.size()), node.name(),
                                   operands[i].dims[d]});
      }
    }
    if (node.op() == "matmul" && !attrs.Bool("transpose_w"))
      found_.turned.insert(TensorName(function, node.input(1)));
    NodeDims dims{f, n, {}, {}, {}};
    for (const Tensor& operand : operands) dims.operands.push_back(operand.dims);
    for (const Tensor& result : results) dims.results.push_back(result.dims);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (rule.factors[i].whole) dims.whole.push_back(factors[i]);
    }
    nodes_.push_back(std::move(dims));
    for (int a = 0; a < node.attr_size(); ++a) {
      if (!ListsDims(node.op(), node.attr(a).name())) continue;
      Write({WrittenDim::Place::kAttribute, f, n, a, 0, TensorName(function, node.name())},
            node.attr(a).value().s(), results[0]);
    }
    for (int i = 0; i < num_outputs; ++i)
      (*tensors)[node.output().empty() ? node.name() : node.output(i)] = results[i];
    return absl::OkStatus();
  }

  void UnifyWithFactors(const std::vector<sbp::OperandRule>& rule,
                        const std::vector<DimAtoms::Dim>& factors,
                        const std::vector<Tensor>& tensors) {
    for (size_t i = 0; i < rule.size() && i < tensors.size(); ++i) {
      for (size_t d = 0; d < rule[i].dims.size() && d < tensors[i].dims.size(); ++d) {
        DimAtoms::Dim product;
        for (int factor : rule[i].dims[d])
          product.insert(product.end(), factors[factor].begin(), factors[factor].end());
        found_.atoms.Unify(tensors[i].dims[d], product);
      }
    }
  }

  const proto::Graph& graph_;
  const Dims& table_;
  std::map<std::string, int> by_name_;
  std::vector<Walked> walked_;
  GraphDims found_;
  std::vector<NodeDims> nodes_;
};

}  // namespace

bool IsProvisional(const std::string& name) {
  if (name.size() < 2 || name[0] != '_') return false;
  return std::all_of(name.begin() + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

absl::StatusOr<GraphDims> FindDims(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(GraphNodeDims found, FindNodeDims(job, ModeOf(job)));
  return std::move(found.dims);
}

absl::StatusOr<GraphNodeDims> FindNodeDims(const proto::Job& job, PlanMode mode) {
  WEIR_ASSIGN_OR_RETURN(const Dims table, ImportDimTable(job));
  const std::set<int> reached = Reached(job.graph());
  proto::Job by_size = job;
  WEIR_ASSIGN_OR_RETURN(const bool provisional,
                        CallBySize(table, reached, by_size.mutable_graph()));
  WEIR_RETURN_IF_ERROR(ImportGraph(provisional ? by_size : job, table, mode).status());
  return DimFinder(job.graph(), table).Run(reached);
}

}  // namespace weir::compiler
