#include "tools/onnx/weir_graph.h"

#include <map>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/op_def.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"
#include "tools/onnx/find_layers.h"

namespace weir::onnx {
namespace {

sbp::TensorType TypeOf(DType dtype, const std::vector<int64_t>& shape) {
  sbp::TensorType type{dtype, {}};
  for (int64_t size : shape) type.dims.push_back({absl::StrCat("n", size), size, 1});
  return type;
}

// Hands out names that are not taken yet.
class NameTable {
 public:
  std::string Take(const std::string& wanted) {
    const std::string plain = wanted.empty() ? "value" : wanted;
    std::string name = plain;
    for (int& n = next_[plain]; !taken_.insert(name).second;)
      name = absl::StrCat(plain, "_", ++n + 1);
    return name;
  }

 private:
  std::set<std::string> taken_;
  std::map<std::string, int> next_;
};

class GraphPrinter {
 public:
  explicit GraphPrinter(const WeirGraph& graph) : graph_(graph), names_(graph.values.size()) {}

  PrintedGraph Print(const std::string& name, const std::vector<GraphOutput>& outputs) {
    std::vector<ValueId> values;
    for (const GraphOutput& output : outputs) values.push_back(output.value);
    layers_ = FindLayers(graph_, values);
    printed_.graph.set_name(name);
    printed_.graph.set_main("main");
    main_ = printed_.graph.add_function();
    main_->set_name("main");
    // Names that others refer to are taken first.
    for (const GraphInput& input : graph_.inputs)
      names_[input.value] = table_.Take(PlainName(input.name));
    for (const GraphOutput& output : outputs)
      names_[output.value] = table_.Take(PlainName(output.name));
    AddInputs();
    if (layers_.has_value()) NameLayers();
    AddParameters();
    for (int n = 0; n < static_cast<int>(graph_.nodes.size()); ++n) {
      if (layers_.has_value() && n == layers_->first) {
        AddLayers();
        n += layers_->period * layers_->rounds - 1;
      } else {
        AddNode(graph_.nodes[n], &names_, &table_, main_);
      }
    }
    for (const GraphOutput& output : outputs) main_->add_output(names_[output.value]);
    return std::move(printed_);
  }

 private:
  std::string Item(int64_t size, const std::string& name) {
    if (name.empty()) return absl::StrCat("_", ++dims_, "=", size);
    if (known_.insert(name).second) {
      proto::Dim* dim = printed_.graph.add_dim();
      dim->set_name(name);
      dim->set_size(size);
    }
    return name;
  }

  std::string Items(const std::vector<sbp::TensorDim>& dims,
                    const std::vector<std::string>& names) {
    std::vector<std::string> items;
    for (size_t d = 0; d < dims.size(); ++d)
      items.push_back(Item(dims[d].size, d < names.size() ? names[d] : ""));
    return absl::StrJoin(items, ", ");
  }

  std::string TypeText(ValueId value, const std::vector<std::string>& names) {
    const sbp::TensorType& type = graph_.values[value].type;
    return absl::StrCat(weir::Name(type.dtype), "[", Items(type.dims, names), "]");
  }

  void AddInputs() {
    for (const GraphInput& input : graph_.inputs) {
      proto::TensorDecl* decl = main_->add_input();
      decl->set_name(names_[input.value]);
      decl->set_type(TypeText(input.value, input.dims));
    }
  }

  void AddParameters() {
    for (size_t i = 0; i < graph_.parameters.size(); ++i) {
      const GraphParameter& parameter = graph_.parameters[i];
      const auto of_layer = of_layers_.find(static_cast<int>(i));
      if (of_layer != of_layers_.end()) {
        printed_.parameters.push_back(of_layer->second);
        continue;
      }
      names_[parameter.value] = table_.Take(PlainName(parameter.name));
      printed_.parameters.push_back(names_[parameter.value]);
      AddParameter(parameter, names_[parameter.value], main_);
    }
  }

  void AddParameter(const GraphParameter& parameter, const std::string& name,
                    proto::Function* function) {
    proto::Parameter* added = function->add_parameter();
    added->set_name(name);
    added->set_type(TypeText(parameter.value, {}));
    if (parameter.trained && graph_.values[parameter.value].type.dims.size() >= 2)
      added->set_decay(true);
    if (!parameter.trained) added->set_frozen(true);
  }

  std::string NameOfParameter(int round, size_t place) const {
    return PlainName(graph_.parameters[layers_->parameters[round][place]].name);
  }

  // Splits the names that a parameter has in the rounds into a beginning, a number that grows by 1
  // from round to round, and an end. Returns the places of both in the first name, if they exist.
  struct NumberedName {
    std::string beginning, end;
    int64_t first = 0;
  };
  std::optional<NumberedName> Numbered(size_t place) const {
    const std::string name = NameOfParameter(0, place);
    for (size_t begin = 0; begin < name.size(); ++begin) {
      size_t end = begin;
      while (end < name.size() && absl::ascii_isdigit(static_cast<unsigned char>(name[end]))) ++end;
      NumberedName numbered{name.substr(0, begin), name.substr(end)};
      const bool starts = begin == 0 || name[begin - 1] == '.';
      if (!starts || end == begin || end - begin > 9 || numbered.end.size() < 2 ||
          numbered.end[0] != '.' ||
          !absl::SimpleAtoi(name.substr(begin, end - begin), &numbered.first))
        continue;
      bool fits = true;
      for (int r = 1; fits && r < layers_->rounds; ++r) {
        fits = NameOfParameter(r, place) ==
               absl::StrCat(numbered.beginning, numbered.first + r, numbered.end);
      }
      if (fits) return numbered;
    }
    return std::nullopt;
  }

  // Names the calls and their parameters. Parameters keep the names of the file where the file
  // numbers its layers: "blocks.1.weight" is parameter "weight" of call "blocks.1".
  void NameLayers() {
    const size_t count = layers_->parameters[0].size();
    std::optional<NumberedName> calls;
    for (size_t i = 0; i < count && !calls.has_value(); ++i) calls = Numbered(i);
    NameTable locals;
    locals.Take("x");
    for (size_t i = 0; i < count; ++i) {
      const std::optional<NumberedName> numbered = calls.has_value() ? Numbered(i) : std::nullopt;
      const bool fits = numbered.has_value() && numbered->beginning == calls->beginning &&
                        numbered->first == calls->first;
      locals_.push_back(locals.Take(fits ? numbered->end.substr(1) : NameOfParameter(0, i)));
    }
    for (int r = 0; r < layers_->rounds; ++r) {
      calls_.push_back(table_.Take(calls.has_value()
                                       ? absl::StrCat(calls->beginning, calls->first + r)
                                       : absl::StrCat("layers.", r)));
      for (size_t i = 0; i < count; ++i)
        of_layers_[layers_->parameters[r][i]] = absl::StrCat(calls_[r], ".", locals_[i]);
    }
  }

  // Adds the function of the layers, and its calls.
  void AddLayers() {
    proto::Function* function = printed_.graph.add_function();
    function->set_name("layer");
    NameTable table;
    std::vector<std::string> names(graph_.values.size());
    const auto add_input = [&](ValueId value, const std::string& name) {
      names[value] = table.Take(name);
      proto::TensorDecl* input = function->add_input();
      input->set_name(names[value]);
      input->set_type(TypeText(value, {}));
    };
    add_input(layers_->carried, "x");
    for (const std::string& local : locals_) table.Take(local);
    for (ValueId value : layers_->shared) add_input(value, names_[value]);
    for (size_t i = 0; i < locals_.size(); ++i) {
      const GraphParameter& parameter = graph_.parameters[layers_->parameters[0][i]];
      names[parameter.value] = locals_[i];
      AddParameter(parameter, locals_[i], function);
    }
    for (int n = layers_->first; n < layers_->first + layers_->period; ++n)
      AddNode(graph_.nodes[n], &names, &table, function);
    function->add_output(names[layers_->results[0]]);
    for (int r = 0; r < layers_->rounds; ++r) {
      proto::Node* call = main_->add_node();
      call->set_name(calls_[r]);
      call->set_op("call");
      call->set_function(function->name());
      call->add_input(names_[r == 0 ? layers_->carried : layers_->results[r - 1]]);
      for (ValueId value : layers_->shared) call->add_input(names_[value]);
      std::string& result = names_[layers_->results[r]];
      if (result.empty()) result = table_.Take(absl::StrCat(calls_[r], ".result"));
      call->add_output(result);
    }
  }

  void AddNode(const GraphNode& node, std::vector<std::string>* names, NameTable* table,
               proto::Function* function) {
    proto::Node* added = function->add_node();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      std::string& name = (*names)[node.outputs[i]];
      if (name.empty()) name = table->Take(PlainName(node.name.empty() ? node.op : node.name));
      if (i == 0) added->set_name(name);
      if (node.outputs.size() > 1) added->add_output(name);
    }
    added->set_op(node.op);
    for (ValueId input : node.inputs) added->add_input((*names)[input]);
    for (const auto& [name, value] : node.attrs.map()) {
      proto::NamedAttr* attr = added->add_attr();
      attr->set_name(name);
      if (node.op == "reshape" && name == "to")
        attr->mutable_value()->set_s(Items(graph_.values[node.outputs[0]].type.dims, {}));
      else
        SetValue(value, attr->mutable_value());
    }
  }

  static void SetValue(const AttrValue& value, proto::Attr* attr) {
    if (const auto* i = std::get_if<int64_t>(&value)) attr->set_i(*i);
    if (const auto* f = std::get_if<double>(&value)) attr->set_f(*f);
    if (const auto* b = std::get_if<bool>(&value)) attr->set_b(*b);
    if (const auto* s = std::get_if<std::string>(&value)) attr->set_s(*s);
    if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
      proto::IntList* list = attr->mutable_ints();
      for (int64_t item : *ints) list->add_values(item);
    }
  }

  const WeirGraph& graph_;
  std::vector<std::string> names_;  // of values
  NameTable table_;
  std::set<std::string> known_;  // dimensions of the table
  int dims_ = 0;
  PrintedGraph printed_;
  proto::Function* main_ = nullptr;
  std::optional<Layers> layers_;
  std::vector<std::string> locals_, calls_;  // names of parameters in a layer, and of calls
  std::map<int, std::string> of_layers_;     // names of parameters of layers in the job
};

}  // namespace

ValueId WeirGraph::AddInput(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                            std::vector<std::string> dims) {
  const auto value = static_cast<ValueId>(values.size());
  values.push_back({TypeOf(dtype, shape)});
  inputs.push_back({value, name, std::move(dims)});
  return value;
}

ValueId WeirGraph::AddParameter(GraphParameter parameter, const std::vector<int64_t>& shape) {
  const auto value = static_cast<ValueId>(values.size());
  if (parameter.constant != nullptr) constant_elements += parameter.constant->size();
  values.push_back({TypeOf(DType::kF32, shape), -1, static_cast<int>(parameters.size())});
  parameter.value = value;
  parameters.push_back(std::move(parameter));
  return value;
}

absl::StatusOr<std::vector<sbp::TensorType>> InferTypes(
    const std::string& op, const Attributes& attrs, const std::vector<sbp::TensorType>& inputs) {
  WEIR_ASSIGN_OR_RETURN(const ops::OpDef* def, ops::OpRegistry::FindForUser(op, "graph"));
  Attributes checked = attrs;
  WEIR_RETURN_IF_ERROR(
      ops::CheckSchema(def->schema, static_cast<int>(inputs.size()), 1, &checked, op));
  return def->infer(ops::InferInput{checked, inputs, {}});
}

absl::StatusOr<std::vector<ValueId>> WeirGraph::AddNode(const std::string& name,
                                                        const std::string& op,
                                                        std::vector<ValueId> node_inputs,
                                                        Attributes attrs, int num_outputs) {
  std::vector<sbp::TensorType> types;
  for (ValueId input : node_inputs) types.push_back(values[input].type);
  WEIR_ASSIGN_OR_RETURN(const std::vector<sbp::TensorType> results, InferTypes(op, attrs, types));
  if (static_cast<int>(results.size()) < num_outputs)
    return absl::InternalError(absl::StrCat(op, " has ", results.size(), " results"));
  const auto node = static_cast<int>(nodes.size());
  std::vector<ValueId> outputs;
  for (int i = 0; i < num_outputs; ++i) {
    outputs.push_back(static_cast<ValueId>(values.size()));
    values.push_back({TypeOf(results[i].dtype, results[i].shape()), node});
  }
  nodes.push_back({op, std::move(node_inputs), outputs, std::move(attrs), name});
  return outputs;
}

std::vector<int64_t> WeirGraph::shape(ValueId value) const {
  std::vector<int64_t> sizes;
  for (const sbp::TensorDim& dim : values[value].type.dims) sizes.push_back(dim.size);
  return sizes;
}

const GraphNode* WeirGraph::Producer(ValueId value, const std::string& op) const {
  const int node = values[value].node;
  return node >= 0 && nodes[node].op == op && nodes[node].outputs[0] == value ? &nodes[node]
                                                                              : nullptr;
}

const Tensor* WeirGraph::ConstantOf(ValueId value) const {
  const int parameter = values[value].parameter;
  return parameter >= 0 ? parameters[parameter].constant.get() : nullptr;
}

std::string DimsOf(const std::vector<int64_t>& shape) {
  return ops::DimsText(TypeOf(DType::kF32, shape).dims);
}

std::string PlainName(const std::string& name) {
  std::string plain;
  for (char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.')
      plain += c;
    else if (!plain.empty())
      plain += c == '/' ? '.' : '_';
  }
  return plain;
}

PrintedGraph Print(const WeirGraph& graph, const std::string& name,
                   const std::vector<GraphOutput>& outputs) {
  return GraphPrinter(graph).Print(name, outputs);
}

}  // namespace weir::onnx
