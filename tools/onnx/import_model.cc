#include "tools/onnx/import_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "compiler/dims/find_dims.h"
#include "compiler/dims/name_dims.h"
#include "runtime/base/status.h"
#include "runtime/store/safetensors.h"
#include "tools/onnx/rewrite.h"
#include "tools/onnx/sharding.h"

namespace weir::onnx {
namespace {

absl::Status NoLoss(const std::string& where, const std::string& expected, const std::string& found,
                    const std::string& hint) {
  return Rejected({"W0836", where, expected, found, hint});
}

std::string NamesOf(const std::vector<LoweredOutput>& outputs) {
  std::vector<std::string> names;
  for (const LoweredOutput& output : outputs) names.push_back(output.name);
  return absl::StrJoin(names, ", ");
}

// Returns the output that the loss is made of.
absl::StatusOr<ValueId> ChosenOutput(const Lowered& lowered, const ImportOptions& options) {
  const LoweredOutput* chosen = nullptr;
  for (const LoweredOutput& output : lowered.outputs) {
    if (options.output.empty() ? lowered.outputs.size() == 1 : output.name == options.output)
      chosen = &output;
  }
  if (chosen == nullptr) {
    return NoLoss(
        options.output.empty() ? "--output" : absl::StrCat("--output ", options.output),
        "an output of the graph, or the result of a node",
        absl::StrCat(NamesOf(lowered.outputs), " in the graph"),
        lowered.outputs.empty() ? "" : absl::StrCat("--output ", lowered.outputs[0].name));
  }
  if (chosen->value < 0)
    return NoLoss(absl::StrCat("output ", chosen->name), "numbers that depend on the inputs",
                  "a constant", "");
  if (lowered.graph.values[chosen->value].node < 0)
    return NoLoss(absl::StrCat("output ", chosen->name), "the result of a node", "an input", "");
  return chosen->value;
}

// Returns the loss: the only output, or what this adds to the graph.
absl::StatusOr<ValueId> LossOf(const ImportOptions& options, Lowered* lowered) {
  WEIR_ASSIGN_OR_RETURN(ValueId output, ChosenOutput(*lowered, options));
  if (options.loss.empty()) return output;
  WeirGraph& graph = lowered->graph;
  const std::vector<int64_t> shape = graph.shape(output);
  const auto add = [&](const std::string& op,
                       std::vector<ValueId> inputs) -> absl::StatusOr<ValueId> {
    WEIR_ASSIGN_OR_RETURN(const std::vector<ValueId> added,
                          graph.AddNode("loss", op, std::move(inputs), {}, 1));
    return added[0];
  };
  if (options.loss == "mse") {
    const ValueId targets = graph.AddInput(options.targets, DType::kF32, shape, {});
    WEIR_ASSIGN_OR_RETURN(const ValueId difference, add("sub", {output, targets}));
    WEIR_ASSIGN_OR_RETURN(const ValueId square, add("square", {difference}));
    return add("reduce_mean", {square});
  }
  if (options.loss != "cross_entropy")
    return NoLoss("--loss", "cross_entropy or mse", options.loss,
                  Nearest(options.loss, std::vector<std::string>{"cross_entropy", "mse"}));
  if (shape.empty())
    return NoLoss("--loss", "an output whose last dimension counts classes", "a single number",
                  "--loss mse");
  const GraphNode& last = graph.nodes[graph.values[output].node];
  if (last.op == "softmax") {
    output = last.inputs[0];
    lowered->notes.push_back(
        "the file ends with a softmax, which the loss contains: the loss reads what the softmax "
        "reads");
  }
  const ValueId targets =
      graph.AddInput(options.targets, DType::kI32, {shape.begin(), shape.end() - 1}, {});
  WEIR_ASSIGN_OR_RETURN(const ValueId losses, add("softmax_cross_entropy", {output, targets}));
  return add("reduce_mean", {losses});
}

// Returns the outputs that are results of a model without a loss. Notes name the others.
absl::StatusOr<std::vector<GraphOutput>> ResultsOf(Lowered* lowered) {
  std::vector<GraphOutput> results;
  for (const LoweredOutput& output : lowered->outputs) {
    const auto is_same = [&](const GraphOutput& other) { return other.value == output.value; };
    std::string why;
    if (output.value < 0) {
      why = "is a constant";
    } else if (lowered->graph.values[output.value].node < 0) {
      why = "is an input or a weight";
    } else if (const auto same = std::find_if(results.begin(), results.end(), is_same);
               same != results.end()) {
      why = absl::StrCat("is output ", same->name);
    }
    if (why.empty()) {
      results.push_back({output.value, PlainName(output.name)});
    } else {
      lowered->notes.push_back(
          absl::StrCat("output ", output.name, " ", why, ", so that the job does not compute it"));
    }
  }
  if (!results.empty()) return results;
  return Rejected({"W0623", "outputs of the graph", "one that a node computes from the inputs",
                   lowered->outputs.empty()
                       ? std::string("none")
                       : absl::StrCat(NamesOf(lowered->outputs), ", which no node computes"),
                   "name a result of a node with --output"});
}

// Returns whether the only output is a number that training can minimise.
bool OutputIsLoss(const Lowered& lowered) {
  if (lowered.outputs.size() != 1 || lowered.outputs[0].value < 0) return false;
  const GraphValue& value = lowered.graph.values[lowered.outputs[0].value];
  return value.node >= 0 && value.type.dims.empty() && value.type.dtype == DType::kF32;
}

// The outputs of `main`.
struct MainOutputs {
  std::vector<GraphOutput> outputs;
  enum class Kind : uint8_t { kLoss, kResults } kind = Kind::kLoss;
};

absl::StatusOr<MainOutputs> OutputsOf(const ImportOptions& options, Lowered* lowered) {
  if (options.loss.empty() && !options.output.empty()) {
    WEIR_RETURN_IF_ERROR(ChosenOutput(*lowered, options).status());
    std::erase_if(lowered->outputs,
                  [&](const LoweredOutput& output) { return output.name != options.output; });
  }
  if (options.loss.empty() && !OutputIsLoss(*lowered)) {
    WEIR_ASSIGN_OR_RETURN(std::vector<GraphOutput> results, ResultsOf(lowered));
    return MainOutputs{std::move(results), MainOutputs::Kind::kResults};
  }
  WEIR_ASSIGN_OR_RETURN(const ValueId loss, LossOf(options, lowered));
  return MainOutputs{{{loss, "loss"}}, MainOutputs::Kind::kLoss};
}

void AddData(proto::Job* job) { job->mutable_data()->mutable_synthetic(); }

void AddTraining(proto::Job* job) {
  proto::Training* training = job->mutable_training();
  training->set_steps(100);
  proto::Optimizer::AdamW* adamw = training->mutable_optimizer()->mutable_adamw();
  adamw->set_beta1(0.9);
  adamw->set_beta2(0.999);
  adamw->set_epsilon(1e-8);
  adamw->set_weight_decay(0.01);
  training->mutable_schedule()->set_learning_rate(1e-4);
}

// Adds the rules that suit most models, as far as the model has the dimensions: samples over dp,
// and Megatron's over tp. Rules about axes that the mesh lacks do nothing.
void AddRules(proto::Job* job) {
  std::vector<std::pair<std::string, std::string>> rules;
  const std::string& first = job->graph().function(0).input(0).type();
  const size_t begin = first.find('[') + 1, end = first.find_first_of(",]=", begin);
  rules.emplace_back(first.substr(begin, end - begin), "dp");
  for (const char* name : {"heads", "ffn", "vocab"}) rules.emplace_back(name, "tp");
  for (const auto& [name, axis] : rules) {
    for (const proto::Dim& dim : job->graph().dim()) {
      if (dim.name() != name) continue;
      proto::Rule* rule = job->add_rule();
      rule->set_dim(name);
      rule->set_axis(axis);
    }
  }
}

// Exporters give a weight that they have transposed a name such as "onnx::MatMul_12" or "val_12".
// The weight of a product with the bias "layer.bias" gets the name "layer.weight".
void NameWeightsByBias(WeirGraph* graph) {
  std::set<std::string> names;
  for (const GraphParameter& parameter : graph->parameters) names.insert(parameter.name);
  for (const GraphNode& node : graph->nodes) {
    if (node.op != "matmul" || node.inputs.size() < 3) continue;
    const int weight = graph->values[node.inputs[1]].parameter,
              bias = graph->values[node.inputs[2]].parameter;
    if (weight < 0 || bias < 0) continue;
    GraphParameter& named = graph->parameters[weight];
    const std::string& of_bias = graph->parameters[bias].name;
    const bool is_made_up =
        absl::StartsWith(named.name, "onnx::") || absl::StartsWith(named.name, "val_");
    if (!is_made_up || !absl::EndsWith(of_bias, ".bias")) continue;
    const std::string wanted = absl::StrCat(of_bias.substr(0, of_bias.size() - 4), "weight");
    if (names.insert(wanted).second) named.name = wanted;
  }
}

// Leaves the weights alone that `patterns` names in the file.
void Freeze(const std::vector<std::string>& patterns, WeirGraph* graph) {
  for (GraphParameter& parameter : graph->parameters) {
    if (parameter.stored == nullptr) continue;
    for (const std::string& pattern : patterns) {
      if (Names(pattern, parameter.stored->name())) parameter.trained = false;
    }
  }
}

// Returns the name of the dimension at `axis` of a type such as "f32[batch, heads*head_dim]": of a
// product the first factor, which a split in even parts splits first. Empty: there is none.
std::string DimAt(const std::string& type, int64_t axis) {
  const size_t begin = type.find('['), end = type.find(']');
  if (begin == std::string::npos || end == std::string::npos) return "";
  const std::vector<std::string> dims =
      absl::StrSplit(type.substr(begin + 1, end - begin - 1), ", ", absl::SkipEmpty());
  const auto rank = static_cast<int64_t>(dims.size());
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || absl::StrContains(dims[axis], "=")) return "";
  return dims[axis].substr(0, dims[axis].find('*'));
}

// Returns the types of the inputs and of the weights of a graph, by name. The weights of a call are
// called after it.
std::map<std::string, std::string> TypesOf(const proto::Graph& graph) {
  std::map<std::string, const proto::Function*> functions;
  for (const proto::Function& function : graph.function()) functions[function.name()] = &function;
  const proto::Function& main = *functions.at(graph.main());
  std::map<std::string, std::string> types;
  for (const proto::TensorDecl& input : main.input()) types[input.name()] = input.type();
  for (const proto::Parameter& parameter : main.parameter())
    types[parameter.name()] = parameter.type();
  for (const proto::Node& node : main.node()) {
    if (node.op() != "call") continue;
    for (const proto::Parameter& parameter : functions.at(node.function())->parameter())
      types[absl::StrCat(node.name(), ".", parameter.name())] = parameter.type();
  }
  return types;
}

// Turns the shardings that the file hints at into rules: the dimension of the samples goes over dp,
// and any other over tp. Notes say so. Returns false if the job has none of the tensors.
// `imported` has its names of weights.
bool AddHintedRules(const proto::OnnxModel& model, ImportedModel* imported) {
  std::map<std::string, std::string> in_job;  // by the name in the file
  for (size_t i = 0; i < imported->weights.size(); ++i) {
    if (imported->weights[i].stored != nullptr)
      in_job[imported->weights[i].stored->name()] = imported->names[i];
  }
  proto::Job* const job = &imported->job;
  const std::map<std::string, std::string> types = TypesOf(job->graph());
  const auto main = std::find_if(
      job->graph().function().begin(), job->graph().function().end(),
      [&](const proto::Function& function) { return function.name() == job->graph().main(); });
  const std::string samples = DimAt(main->input(0).type(), 0);
  std::map<std::string, int64_t> shards;  // by dimension; those of the first hint
  for (const ShardingHint& hint : ShardingHints(model)) {
    const auto weight = in_job.find(hint.tensor);
    const auto type = types.find(weight == in_job.end() ? PlainName(hint.tensor) : weight->second);
    const std::string dim = type == types.end() ? "" : DimAt(type->second, hint.axis);
    if (dim.empty() || !shards.emplace(dim, hint.shards).second) continue;
    proto::Rule* const rule = job->add_rule();
    rule->set_dim(dim);
    rule->set_axis(dim == samples ? "dp" : "tp");
  }
  if (shards.empty()) return false;
  std::vector<std::string> texts;
  for (const auto& [dim, count] : shards) texts.push_back(absl::StrCat(dim, " in ", count));
  imported->notes.push_back(
      absl::StrCat("the rules are those that the file hints at, which splits ",
                   absl::StrJoin(texts, ", "), ": samples over dp, other dimensions over tp"));
  return true;
}

// Notes the weights that several nodes share, since an exporter joins weights that are equal when
// the file is made.
void NoteSharedWeights(const WeirGraph& graph, std::vector<std::string>* notes) {
  std::vector<int> readers(graph.parameters.size(), 0);
  for (const GraphNode& node : graph.nodes) {
    for (ValueId input : node.inputs) {
      if (graph.values[input].parameter >= 0) ++readers[graph.values[input].parameter];
    }
  }
  std::vector<std::string> shared;
  for (size_t i = 0; i < readers.size(); ++i) {
    if (graph.parameters[i].trained && readers[i] > 1)
      shared.push_back(absl::StrCat(graph.parameters[i].name, " (", readers[i], ")"));
  }
  if (shared.empty()) return;
  const size_t listed = std::min<size_t>(shared.size(), 5);
  const std::string more =
      shared.size() > listed ? absl::StrCat(" and ", shared.size() - listed, " more") : "";
  notes->push_back(absl::StrCat(
      "several operations share each of these weights, and training changes it for all of them: ",
      absl::StrJoin(shared.begin(), shared.begin() + static_cast<int64_t>(listed), ", "), more,
      ". Exporters join weights that are equal when they write the file"));
}

// Returns whether training may change the tensor: real numbers, several of them.
bool IsWeight(const proto::OnnxTensor& tensor) {
  const bool is_known = tensor.type() > 0 && tensor.type() <= 16;
  return is_known && IsReal(static_cast<Element>(tensor.type())) &&
         std::any_of(tensor.dims().begin(), tensor.dims().end(),
                     [](int64_t size) { return size > 1; }) &&
         std::all_of(tensor.dims().begin(), tensor.dims().end(),
                     [](int64_t size) { return size > 0; });
}

}  // namespace

int64_t MakeWeightsOfConstants(proto::OnnxModel* model) {
  proto::OnnxGraph* const graph = model->mutable_graph();
  if (std::any_of(graph->initializer().begin(), graph->initializer().end(), IsWeight)) return 0;
  int64_t made = 0;
  int kept = 0;
  for (int i = 0; i < graph->node_size(); ++i) {
    proto::OnnxNode* const node = graph->mutable_node(i);
    const bool is_weight = node->op() == "Constant" && node->output_size() == 1 &&
                           node->attribute_size() == 1 && node->attribute(0).name() == "value" &&
                           IsWeight(node->attribute(0).t());
    if (!is_weight) {
      graph->mutable_node()->SwapElements(kept++, i);
      continue;
    }
    proto::OnnxTensor* const weight = graph->add_initializer();
    weight->Swap(node->mutable_attribute(0)->mutable_t());
    weight->set_name(node->output(0));
    ++made;
  }
  graph->mutable_node()->DeleteSubrange(kept, graph->node_size() - kept);
  return made;
}

absl::StatusOr<ImportedModel> ImportModel(const proto::OnnxModel& model,
                                          const ImportOptions& options) {
  WEIR_ASSIGN_OR_RETURN(Lowered lowered, Lower(model, options));
  NameWeightsByBias(&lowered.graph);
  Freeze(options.frozen, &lowered.graph);
  NoteSharedWeights(lowered.graph, &lowered.notes);
  WEIR_ASSIGN_OR_RETURN(MainOutputs main, OutputsOf(options, &lowered));
  std::vector<ValueId*> values;
  for (GraphOutput& output : main.outputs) values.push_back(&output.value);
  Simplify(&lowered.graph, values);
  if (lowered.graph.inputs.empty())
    return NoLoss("graph", "an input", "a graph without inputs, which computes a constant", "");
  ImportedModel imported;
  const std::string name = PlainName(model.graph().name());
  PrintedGraph printed = Print(lowered.graph, name.empty() ? "model" : name, main.outputs);
  imported.job.set_name(printed.graph.name());
  *imported.job.mutable_graph() = std::move(printed.graph);
  AddData(&imported.job);
  if (main.kind == MainOutputs::Kind::kLoss) {
    AddTraining(&imported.job);
  } else {
    imported.job.mutable_graph()->set_without_loss(true);
  }
  imported.names = std::move(printed.parameters);
  for (const GraphParameter& parameter : lowered.graph.parameters)
    imported.shapes.push_back(lowered.graph.shape(parameter.value));
  imported.weights = std::move(lowered.graph.parameters);
  imported.notes = std::move(lowered.notes);
  WEIR_ASSIGN_OR_RETURN(const compiler::GraphDims dims, compiler::FindDims(imported.job));
  compiler::ReplaceProvisional(dims, compiler::NameDims(dims), &imported.job);
  if (!AddHintedRules(model, &imported)) AddRules(&imported.job);
  return imported;
}

absl::Status WriteWeights(const ImportedModel& imported, const ExternalFiles& files,
                          const std::string& path) {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (size_t i = 0; i < imported.names.size(); ++i)
    entries.push_back({imported.names[i], DType::kF32, Shape(imported.shapes[i])});
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsWriter> writer,
                        store::SafetensorsWriter::Create(path, std::move(entries), {}));
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < writer->entries().size(); ++i) places[writer->entries()[i].name] = i;
  for (size_t i = 0; i < imported.names.size(); ++i) {
    const GraphParameter& parameter = imported.weights[i];
    const size_t place = places.at(imported.names[i]);
    if (parameter.stored == nullptr) {
      WEIR_RETURN_IF_ERROR(writer->Write(place, parameter.constant->reals.data()));
      continue;
    }
    WEIR_ASSIGN_OR_RETURN(const Tensor weight,
                          Decode(*parameter.stored, files, kWeightElementsMax,
                                 absl::StrCat("initializer ", parameter.stored->name())));
    WEIR_RETURN_IF_ERROR(writer->Write(place, weight.reals.data()));
  }
  return writer->Commit();
}

}  // namespace weir::onnx
