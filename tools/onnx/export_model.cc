#include "tools/onnx/export_model.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/batch_dim.h"
#include "compiler/job/import_graph.h"
#include "runtime/base/status.h"
#include "tools/onnx/export_node.h"

namespace weir::onnx {
namespace {

constexpr size_t kProblemBytesMax = 900;  // a message shortens longer parts

// The place of a tensor in Flat::tensors; -1: none.
using TensorId = int;

struct FlatTensor {
  std::string name;
  sbp::TensorType type;
  int weight = -1;          // the place in Flat::weights
  bool is_input = false;    // of the model
  int node = -1;            // that computes the tensor
  bool of_weights = false;  // depends on a weight
};

// A node of some call. Its operands have the types that the function of the call gives them.
struct FlatNode {
  const compiler::Node* node = nullptr;
  std::vector<TensorId> inputs;  // -1: left out
  std::vector<sbp::TensorType> input_types;
  std::vector<TensorId> outputs;
};

// The graph of a job with all calls written out.
struct Flat {
  std::vector<FlatTensor> tensors;
  std::vector<FlatNode> nodes;
  std::vector<ExportedWeight> weights;
  std::vector<TensorId> inputs;
  std::vector<TensorId> metrics;          // outputs of main, the loss first, or
  std::vector<TensorId> results;          // those of a model without a loss
  std::map<std::string, TensorId> named;  // tensors of main
};

class Flattener {
 public:
  explicit Flattener(const compiler::Module& module) : module_(module), model_(module.model) {}

  Flat Run() {
    values_.assign(model_.values.size(), -1);
    weights_.assign(model_.weights.size(), -1);
    for (size_t v = 0; v < model_.values.size(); ++v) {
      const compiler::ModelValue& value = model_.values[v];
      if (value.call >= 0) continue;
      values_[v] = New(value.name, value.type);
      flat_.tensors.back().is_input = true;
      flat_.inputs.push_back(values_[v]);
      flat_.named[value.name] = values_[v];
    }
    for (const compiler::ModelCall& call : model_.calls) AddCall(call);
    for (const auto& [name, value] : model_.metrics) flat_.metrics.push_back(values_[value]);
    for (const auto& [name, value] : model_.fetched) flat_.results.push_back(values_[value]);
    return std::move(flat_);
  }

 private:
  TensorId New(const std::string& name, const sbp::TensorType& type) {
    flat_.tensors.push_back({name, type});
    return static_cast<TensorId>(flat_.tensors.size()) - 1;
  }

  TensorId Weight(int weight, const sbp::TensorType& type) {
    TensorId& known = weights_[weight];
    if (known >= 0) return known;
    const compiler::ModelWeight& of_model = model_.weights[weight];
    known = New(of_model.name, type);
    flat_.tensors.back().weight = static_cast<int>(flat_.weights.size());
    flat_.tensors.back().of_weights = true;
    ExportedWeight added{of_model.name, {}, of_model.init};
    for (const sbp::TensorDim& dim : type.dims) added.shape.push_back(dim.size);
    flat_.weights.push_back(std::move(added));
    flat_.named.emplace(of_model.name, known);
    return known;
  }

  // Returns whether the node only reads a weight, as a moving_average does in evaluation.
  bool IsWeightItself(const compiler::Node& node, const std::vector<TensorId>& ids) const {
    return node.op == "scale" && node.attrs.Real("factor") == 1 &&
           flat_.tensors[ids[node.inputs[0]]].weight >= 0;
  }

  void AddCall(const compiler::ModelCall& call) {
    const compiler::Function& function =
        module_.functions[model_.functions[call.model_function].forward];
    // Nodes between the calls of main are a function of their own; their names are those of main.
    const bool of_main = function.name == call.name;
    std::vector<TensorId> ids(function.values.size(), -1);
    size_t next_argument = 0;
    std::map<int, int> parameter_of_arg;
    for (size_t p = 0; p < function.parameters.size(); ++p)
      parameter_of_arg[function.parameters[p].arg] = static_cast<int>(p);
    for (size_t a = 0; a < function.args.size(); ++a) {
      const ops::ValueId value = function.args[a].value;
      const auto parameter = parameter_of_arg.find(static_cast<int>(a));
      ids[value] = parameter == parameter_of_arg.end()
                       ? values_[call.args[next_argument++]]
                       : Weight(call.weights[parameter->second], function.values[value].type);
    }
    std::map<ops::ValueId, std::string> results;
    for (size_t r = 0; r < call.results.size(); ++r)
      results[function.results[r].value] = model_.values[call.results[r]].name;
    for (const compiler::Node& node : function.nodes) {
      if (IsWeightItself(node, ids) && results.count(node.outputs[0]) == 0) {
        ids[node.outputs[0]] = ids[node.inputs[0]];
        continue;
      }
      FlatNode flat{&node, {}, {}, {}};
      bool of_weights = false;
      for (ops::ValueId input : node.inputs) {
        flat.inputs.push_back(input < 0 ? -1 : ids[input]);
        flat.input_types.push_back(input < 0 ? sbp::TensorType{} : function.values[input].type);
        of_weights = of_weights || (input >= 0 && flat_.tensors[ids[input]].of_weights);
      }
      for (ops::ValueId output : node.outputs) {
        const auto result = results.find(output);
        const std::string& local = function.values[output].name;
        const std::string name = result != results.end() ? result->second
                                 : of_main               ? local
                                                         : absl::StrCat(call.name, ".", local);
        ids[output] = New(name, function.values[output].type);
        flat_.tensors.back().node = static_cast<int>(flat_.nodes.size());
        flat_.tensors.back().of_weights = of_weights;
        if (of_main || result != results.end()) flat_.named.emplace(name, ids[output]);
        flat.outputs.push_back(ids[output]);
      }
      flat_.nodes.push_back(std::move(flat));
    }
    for (size_t r = 0; r < call.results.size(); ++r)
      values_[call.results[r]] = ids[function.results[r].value];
  }

  const compiler::Module& module_;
  const compiler::Model& model_;
  std::vector<TensorId> values_, weights_;  // of the model
  Flat flat_;
};

// Returns which nodes the outputs depend on.
std::vector<bool> Needed(const Flat& flat, const std::vector<TensorId>& outputs) {
  std::vector<bool> tensors(flat.tensors.size(), false), nodes(flat.nodes.size(), false);
  for (TensorId output : outputs) tensors[output] = true;
  for (size_t n = flat.nodes.size(); n-- > 0;) {
    const FlatNode& node = flat.nodes[n];
    nodes[n] = std::any_of(node.outputs.begin(), node.outputs.end(),
                           [&](TensorId output) { return tensors[output]; });
    if (!nodes[n]) continue;
    for (TensorId input : node.inputs) {
      if (input >= 0) tensors[input] = true;
    }
  }
  return nodes;
}

// Returns what the loss reads of the model: the scores of cross entropies, or else what is
// subtracted from an input or has an input subtracted from it.
std::vector<TensorId> ReadByLoss(const Flat& flat) {
  const std::vector<bool> needed = Needed(flat, {flat.metrics[0]});
  std::vector<TensorId> scores, compared;
  const auto add = [](TensorId tensor, std::vector<TensorId>* list) {
    if (std::find(list->begin(), list->end(), tensor) == list->end()) list->push_back(tensor);
  };
  for (size_t n = 0; n < flat.nodes.size(); ++n) {
    const FlatNode& node = flat.nodes[n];
    if (!needed[n]) continue;
    if (node.node->op == "softmax_cross_entropy") add(node.inputs[0], &scores);
    if (node.node->op != "sub") continue;
    for (int i : {0, 1}) {
      if (flat.tensors[node.inputs[1 - i]].is_input && flat.tensors[node.inputs[i]].of_weights)
        add(node.inputs[i], &compared);
    }
  }
  return scores.empty() ? compared : scores;
}

absl::Status NoSuch(const std::string& flag, const std::string& name, const std::string& expected,
                    const std::vector<std::string>& known) {
  const std::string nearest = Nearest(name, known);
  return Rejected({"W0928", absl::StrCat(flag, " ", name), expected,
                   absl::StrCat("none of that name among ", known.size()),
                   nearest.empty() ? "" : absl::StrCat(flag, " ", nearest)});
}

class Exporter {
 public:
  Exporter(const proto::Job& job, const ExportOptions& options) : job_(job), options_(options) {}

  absl::StatusOr<ExportedModel> Run() {
    WEIR_ASSIGN_OR_RETURN(dims_, compiler::ImportDimTable(job_));
    WEIR_ASSIGN_OR_RETURN(module_,
                          compiler::ImportGraph(job_, dims_, compiler::PlanMode::kEvaluate));
    flat_ = Flattener(module_).Run();
    WEIR_RETURN_IF_ERROR(ChooseOutputs());
    WEIR_RETURN_IF_ERROR(ChooseOpen());
    // A node that needs the size of an open dimension closes the dimension.
    for (size_t tries = open_.size() + 1; tries-- > 0;) {
      fixed_.clear();
      problems_.clear();
      ExportedModel exported = Translate();
      if (!problems_.empty()) return NotTranslated();
      if (fixed_.empty()) return exported;
      for (const auto& [name, reader] : fixed_) {
        open_.erase(name);
        notes_.push_back(absl::StrCat("dimension ", name, " keeps the size ", dims_.at(name).size,
                                      ", which node ", reader, " needs"));
      }
    }
    return absl::InternalError("each try closes a dimension");
  }

 private:
  absl::Status ChooseOutputs() {
    std::vector<std::string> known;
    for (const auto& [name, tensor] : flat_.named) known.push_back(name);
    for (const std::string& name : options_.outputs) {
      const auto found = flat_.named.find(name);
      if (found == flat_.named.end()) return NoSuch("--output", name, "a tensor of main", known);
      outputs_.push_back(found->second);
    }
    if (outputs_.empty()) outputs_ = flat_.metrics.empty() ? flat_.results : ReadByLoss(flat_);
    if (!outputs_.empty()) return absl::OkStatus();
    outputs_ = flat_.metrics;
    notes_.push_back(
        "the model ends in the loss, since no tensor is seen that the loss compares with an input; "
        "--output NAME chooses a tensor of main");
    return absl::OkStatus();
  }

  // Opens the batch and the dimensions of integer inputs, as far as no weight has them.
  absl::Status ChooseOpen() {
    std::vector<std::string> known;
    for (const auto& [name, dim] : dims_) known.push_back(name);
    for (const std::string& name : options_.fixed) {
      if (dims_.count(name) == 0) return NoSuch("--fixed", name, "a dimension of the job", known);
    }
    WEIR_ASSIGN_OR_RETURN(const std::string batch, compiler::BatchDim(job_, dims_));
    std::set<std::string> wanted = {batch};
    for (TensorId input : flat_.inputs) {
      const sbp::TensorType& type = flat_.tensors[input].type;
      if (type.dtype != DType::kI32) continue;
      for (const sbp::TensorDim& dim : type.dims) wanted.insert(dim.name);
    }
    for (const std::string& name : options_.fixed) wanted.erase(name);
    for (const std::string& name : wanted) {
      const auto dim = dims_.find(name);
      if (dim == dims_.end()) continue;
      const FlatTensor* owner = nullptr;
      for (const FlatTensor& tensor : flat_.tensors) {
        if (tensor.weight < 0) continue;
        for (const sbp::TensorDim& of_weight : tensor.type.dims)
          owner = of_weight.name == name ? &tensor : owner;
      }
      if (owner == nullptr) {
        open_[name].size = dim->second.size;
      } else {
        notes_.push_back(absl::StrCat("dimension ", name, " keeps the size ", dim->second.size,
                                      ", which weight ", owner->name, " has"));
      }
    }
    return absl::OkStatus();
  }

  std::vector<ModelBuilder::Dim> DimsOf(const ExportedValue& value) const {
    std::vector<ModelBuilder::Dim> dims;
    for (const OpenSize& size : value.sizes) {
      std::string symbol;
      if (size.is_open()) {
        symbol = absl::StrJoin(size.open, "*");
        if (size.factor != 1) absl::StrAppend(&symbol, "*", size.factor);
      }
      dims.push_back({size.factor, symbol});
    }
    return dims;
  }

  ExportedModel Translate() {
    const std::vector<bool> needed = Needed(flat_, outputs_);
    std::vector<bool> read(flat_.tensors.size(), false);
    for (size_t n = 0; n < flat_.nodes.size(); ++n) {
      if (!needed[n]) continue;
      for (TensorId input : flat_.nodes[n].inputs) {
        if (input >= 0) read[input] = true;
      }
    }
    for (TensorId output : outputs_) read[output] = true;
    ExportedModel exported;
    ModelBuilder builder(
        job_.graph().name().empty() ? "weir" : job_.graph().name(), kExportedIrVersion,
        kExportedOpset, options_.i64 ? ModelBuilder::Integers::kI64 : ModelBuilder::Integers::kI32);
    std::deque<ExportedValue> values;
    for (size_t t = 0; t < flat_.tensors.size(); ++t) {
      const FlatTensor& tensor = flat_.tensors[t];
      ExportedValue& value = values.emplace_back();
      value.type = tensor.type;
      if (tensor.node >= 0) continue;
      for (const sbp::TensorDim& dim : tensor.type.dims) {
        const auto open = open_.find(dim.name);
        const bool is_open =
            tensor.is_input && open != open_.end() && open->second.size == dim.size;
        value.sizes.push_back(is_open ? OpenSize{1, {dim.name}} : OpenSize{dim.size, {}});
      }
      if (!read[t]) continue;
      value.name = builder.TakeName(tensor.name);
      if (tensor.is_input) {
        builder.AddInput(value.name, tensor.type.dtype, DimsOf(value));
        for (size_t d = 0; d < value.sizes.size(); ++d) {
          for (const std::string& name : value.sizes[d].open) {
            open_[name].input = value.name;
            open_[name].axis = static_cast<int>(d);
          }
        }
      } else {
        builder.AddWeight(value.name, flat_.weights[tensor.weight].shape);
        ExportedWeight weight = flat_.weights[tensor.weight];
        exported.weights.push_back(std::move(weight));
      }
    }
    NameResults(needed, &builder, &values);
    for (size_t n = 0; n < flat_.nodes.size(); ++n) {
      if (needed[n]) TranslateNode(flat_.nodes[n], &builder, &values);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      ExportedValue& value = values[outputs_[i]];
      if (flat_.tensors[outputs_[i]].node < 0) {  // an input or a weight is no output itself
        const std::string copy = builder.TakeName(absl::StrCat(value.name, ".output"));
        builder.AddNode("Identity", {value.name}, {copy}, {});
        value.name = copy;
      }
      builder.AddOutput(value.name, value.type.dtype, DimsOf(value));
    }
    exported.model = std::move(builder).Finish();
    for (const auto& [name, dim] : open_) exported.open.push_back(name);
    exported.notes = notes_;
    return exported;
  }

  // Outputs get their names first, so that they are those of the job.
  void NameResults(const std::vector<bool>& needed, ModelBuilder* builder,
                   std::deque<ExportedValue>* values) {
    for (TensorId output : outputs_) {
      if (flat_.tensors[output].node >= 0)
        (*values)[output].name = builder->TakeName(flat_.tensors[output].name);
    }
    for (size_t n = 0; n < flat_.nodes.size(); ++n) {
      if (!needed[n]) continue;
      for (TensorId output : flat_.nodes[n].outputs) {
        std::string& name = (*values)[output].name;
        if (name.empty()) name = builder->TakeName(flat_.tensors[output].name);
      }
    }
  }

  void TranslateNode(const FlatNode& node, ModelBuilder* builder,
                     std::deque<ExportedValue>* values) {
    // An operand has the names of dimensions that the function of the node gives it.
    std::deque<ExportedValue> operands;
    std::vector<const ExportedValue*> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] < 0) {
        inputs.push_back(nullptr);
        continue;
      }
      const ExportedValue& value = (*values)[node.inputs[i]];
      operands.push_back({value.name, node.input_types[i], value.sizes});
      inputs.push_back(&operands.back());
    }
    std::vector<ExportedValue*> outputs;
    for (TensorId output : node.outputs) outputs.push_back(&(*values)[output]);
    ExportNode e(*node.node, open_, std::move(inputs), outputs, builder);
    const ExportFunction translate = FindExport(node.node->op);
    if (translate == nullptr)
      e.Fail("ONNX has no such operation");
    else
      translate(e);
    if (!e.problem().empty()) {
      const std::string text = absl::StrCat("(", node.node->op, "): ", e.problem());
      const std::string& name = flat_.tensors[node.outputs[0]].name;
      const auto [known, is_new] = problems_.emplace(text, std::pair(name, 0));
      if (!is_new) ++known->second.second;
    }
    for (const std::string& dim : e.fixed())
      fixed_.emplace(dim,
                     absl::StrCat(flat_.tensors[node.outputs[0]].name, " (", node.node->op, ")"));
  }

  absl::Status NotTranslated() const {
    std::string list;
    for (const auto& [text, nodes] : problems_) {
      const std::string more = nodes.second > 0 ? absl::StrCat(" and ", nodes.second, " more") : "";
      if (list.size() + text.size() > kProblemBytesMax) {
        absl::StrAppend(&list, "; and other problems");
        break;
      }
      absl::StrAppend(&list, list.empty() ? "" : "; ", "node ", nodes.first, more, " ", text);
    }
    return Rejected({"W0927", "graph", "operations that ONNX has", list,
                     "choose tensors before these nodes with --output"});
  }

  const proto::Job& job_;
  const ExportOptions& options_;
  std::map<std::string, sbp::TensorDim> dims_;
  compiler::Module module_;
  Flat flat_;
  std::vector<TensorId> outputs_;
  OpenDims open_;
  std::map<std::string, std::string> fixed_;  // dimensions that must close, and the first reader
  std::map<std::string, std::pair<std::string, int>> problems_;  // first node, and how many more
  std::vector<std::string> notes_;
};

}  // namespace

absl::StatusOr<ExportedModel> ExportModel(const proto::Job& job, const ExportOptions& options) {
  return Exporter(job, options).Run();
}

}  // namespace weir::onnx
