#include "compiler/job/import_graph.h"

#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/batch_dim.h"
#include "compiler/job/infer_index_ranges.h"
#include "ops/defs/type_text.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kMaxNodes = 1'000'000;
constexpr int64_t kMaxCalls = 10'000;  // calls of main, with repetitions
constexpr int kMaxCallDepth = 16;

using Dims = std::map<std::string, sbp::TensorDim>;

absl::StatusOr<sbp::TensorType> ParseTensorType(const std::string& text, const Dims& dims,
                                                const std::string& where) {
  absl::StatusOr<sbp::TensorType> type = ops::ParseType(text, dims);
  if (!type.ok()) return At(where, type.status());
  return type;
}

struct InputType {
  sbp::TensorType type;
  std::optional<IndexRange> range;  // as declared
};

absl::StatusOr<InputType> ParseInputType(const std::string& text, const Dims& dims,
                                         const std::string& where) {
  absl::StatusOr<ops::DeclaredType> declared = ops::ParseDeclaredType(text, dims);
  if (!declared.ok()) return At(where, declared.status());
  InputType input{declared->type, std::nullopt};
  if (declared->range.has_value()) {
    input.range = IndexRange{
        declared->range->below,
        absl::StrCat("in the range <", declared->range->text, "> that ", where, " declares")};
  }
  return input;
}

std::string FunctionWhere(const std::string& function) {
  return absl::StrCat("function ", function);
}

absl::StatusOr<Attributes> ImportAttributes(
    const google::protobuf::RepeatedPtrField<proto::NamedAttr>& list, const std::string& where) {
  Attributes attrs;
  for (const proto::NamedAttr& entry : list) {
    if (attrs.Has(entry.name())) {
      return Rejected({"W0401", where, "each attribute once",
                       absl::StrCat("\"", entry.name(), "\" twice"), ""});
    }
    switch (entry.value().value_case()) {
      case proto::Attr::kI: attrs.Set(entry.name(), int64_t{entry.value().i()}); break;
      case proto::Attr::kF: attrs.Set(entry.name(), entry.value().f()); break;
      case proto::Attr::kB: attrs.Set(entry.name(), entry.value().b()); break;
      case proto::Attr::kS: attrs.Set(entry.name(), std::string(entry.value().s())); break;
      case proto::Attr::kInts:
        attrs.Set(entry.name(), std::vector<int64_t>(entry.value().ints().values().begin(),
                                                     entry.value().ints().values().end()));
        break;
      case proto::Attr::VALUE_NOT_SET:
        return Rejected({"W0402", where, "a value",
                         absl::StrCat("attribute \"", entry.name(), "\" without one"),
                         "value { i: 1 } or f, b, s, ints"});
    }
  }
  return attrs;
}

absl::Status CheckInitializer(const proto::Initializer& init, const std::string& where) {
  const double std = init.normal().std(), mean = init.normal().mean();
  const double low = init.uniform().low(), high = init.uniform().high();
  if (!(std >= 0 && std::isfinite(std) && std::isfinite(mean))) {
    return Rejected({"W0427", where, "a finite mean and a standard deviation of 0 or more",
                     absl::StrCat("mean ", mean, ", std ", std), "init { normal { std: 0.02 } }"});
  }
  if (!(low <= high && std::isfinite(low) && std::isfinite(high))) {
    return Rejected({"W0427", where, "a finite range from low to high",
                     absl::StrCat(low, " to ", high), "init { uniform { low: -0.1 high: 0.1 } }"});
  }
  return absl::OkStatus();
}

absl::Status UnknownTensorToKeep(const std::string& name, const std::vector<std::string>& known,
                                 const std::string& where) {
  return Rejected({"W0488", where, "names of tensors of the function",
                   absl::StrCat("\"", name, "\""), Nearest(name, known)});
}

// Imports the nodes of one function of the graph and inlines nothing: callers pass ranges of nodes
// without calls.
class FunctionImporter {
 public:
  FunctionImporter(const Dims& dims, std::string graph_function, std::string name)
      : dims_(dims), graph_function_(std::move(graph_function)) {
    function_.name = std::move(name);
  }

  absl::Status Define(const std::string& name, ops::ValueId value, const std::string& where) {
    if (name.empty())
      return Rejected({"W0403", where, "a name for every tensor", "an empty name", ""});
    if (!names_.emplace(name, value).second) {
      return Rejected({"W0404", where, "each tensor name once in a function",
                       absl::StrCat("\"", name, "\" again"), ""});
    }
    return absl::OkStatus();
  }

  absl::Status AddArg(const std::string& name, const sbp::TensorType& type, ArgKind kind,
                      std::optional<IndexRange> declared = std::nullopt) {
    ops::ValueId value = function_.AddValue(name, type);
    function_.args.push_back({value, kind, std::move(declared)});
    return Define(name, value, FunctionWhere(graph_function_));
  }

  absl::Status AddParameter(const proto::Parameter& parameter) {
    std::string where =
        absl::StrCat(FunctionWhere(graph_function_), ", parameter ", parameter.name());
    WEIR_ASSIGN_OR_RETURN(sbp::TensorType type, ParseTensorType(parameter.type(), dims_, where));
    if (!IsReal(type.dtype)) {
      return Rejected({"W0405", where, "a real element type (f32)", ToText(type), "f32[...]"});
    }
    type.dtype = DType::kF32;
    WEIR_RETURN_IF_ERROR(CheckInitializer(parameter.init(), where));
    WEIR_RETURN_IF_ERROR(AddArg(parameter.name(), type, ArgKind::kParameter));
    function_.parameters.push_back({parameter.name(), parameter.init(), parameter.decay(),
                                    static_cast<int>(function_.args.size()) - 1});
    return absl::OkStatus();
  }

  absl::Status AddNode(const weir::proto::Node& node, int index) {
    std::string name =
        node.name().empty() ? absl::StrCat("node ", index, " (", node.op(), ")") : node.name();
    std::string where = absl::StrCat(FunctionWhere(graph_function_), ", node ", name);
    WEIR_ASSIGN_OR_RETURN(const ops::OpDef* def, ops::OpRegistry::FindForUser(node.op(), where));
    Node out;
    out.name = node.name().empty() ? absl::StrCat(node.op(), "_", index) : node.name();
    out.op = node.op();
    out.where = where;
    out.rng_key = KeyOf(out.name.data(), out.name.size());
    out.rng_key = MixKey(out.rng_key, KeyOf(graph_function_.data(), graph_function_.size()));
    WEIR_ASSIGN_OR_RETURN(out.attrs, ImportAttributes(node.attr(), where));
    int num_outputs = node.output().empty() ? 1 : node.output_size();
    WEIR_RETURN_IF_ERROR(
        ops::CheckSchema(def->schema, node.input_size(), num_outputs, &out.attrs, where));
    std::vector<sbp::TensorType> types;
    for (const std::string& input : node.input()) {
      WEIR_ASSIGN_OR_RETURN(ops::ValueId value, Lookup(input, where));
      out.inputs.push_back(value);
      types.push_back(function_.values[value].type);
    }
    absl::StatusOr<std::vector<sbp::TensorType>> inferred = def->infer({out.attrs, types, dims_});
    if (!inferred.ok()) return At(where, inferred.status());
    for (int i = 0; i < num_outputs; ++i) {
      std::string output = node.output().empty() ? node.name() : node.output(i);
      if (inferred->at(i).num_elements() < 0 ||
          inferred->at(i).num_elements() > (int64_t{1} << 46)) {
        return Rejected(
            {"W0406", where, "a result of fewer than 2^46 elements", ToText(inferred->at(i)), ""});
      }
      ops::ValueId value = function_.AddValue(output, inferred->at(i));
      out.outputs.push_back(value);
      WEIR_RETURN_IF_ERROR(Define(output, value, where));
    }
    function_.nodes.push_back(std::move(out));
    return absl::OkStatus();
  }

  absl::StatusOr<ops::ValueId> Lookup(const std::string& name, const std::string& where) const {
    auto it = names_.find(name);
    if (it != names_.end()) return it->second;
    std::vector<std::string> known;
    for (const auto& [known_name, value] : names_) known.push_back(known_name);
    std::string near = Nearest(name, known);
    return Rejected(
        {"W0407", where, "a tensor defined before this point", absl::StrCat("\"", name, "\""),
         near.empty() ? "tensors must be defined above their use; a graph has no cycles (loops are "
                        "delays, which parameters have by nature)"
                      : absl::StrCat("\"", near, "\"")});
  }

  // kPart: only a part of the function that the user wrote.
  enum class Extent : uint8_t { kWhole, kPart };

  // Keeps the values of `names`. A part of main has only some of these values.
  absl::Status Keep(const std::vector<std::string>& names, Extent extent,
                    const std::string& where) {
    function_.keep.emplace();
    for (const std::string& name : names) {
      auto it = names_.find(name);
      if (it != names_.end()) {
        function_.keep->push_back(it->second);
      } else if (extent == Extent::kWhole) {
        std::vector<std::string> known;
        for (const auto& [known_name, value] : names_) known.push_back(known_name);
        return UnknownTensorToKeep(name, known, where);
      }
    }
    return absl::OkStatus();
  }

  bool Has(const std::string& name) const { return names_.count(name) > 0; }
  Function& function() { return function_; }

 private:
  const Dims& dims_;
  std::string graph_function_;
  Function function_;
  std::map<std::string, ops::ValueId> names_;
};

class GraphImporter {
 public:
  GraphImporter(const proto::Job& job, const Dims& dims, PlanMode mode)
      : job_(job), dims_(dims), mode_(mode) {}

  absl::StatusOr<Module> Run() {
    WEIR_RETURN_IF_ERROR(IndexFunctions());
    const auto main = by_name_.find(job_.graph().main());
    if (main == by_name_.end()) return NoMain(job_);
    WEIR_RETURN_IF_ERROR(ImportMain(*main->second));
    return std::move(module_);
  }

 private:
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, function] : by_name_) names.push_back(name);
    return names;
  }

  // Returns all tensors of main so far, including tensors that only the loose nodes of main read.
  std::vector<std::string> MainNames() const {
    std::vector<std::string> names(reserved_.begin(), reserved_.end());
    for (const auto& [name, id] : main_names_) names.push_back(name);
    return names;
  }

  bool IsParameterOfMain(const std::string& name) const {
    for (const proto::Parameter& parameter : by_name_.at(job_.graph().main())->parameter()) {
      if (parameter.name() == name) return true;
    }
    return false;
  }

  absl::Status IndexFunctions() {
    int64_t nodes = 0;
    for (const weir::proto::Function& function : job_.graph().function()) {
      if (function.name().empty())
        return Rejected({"W0411", "graph", "a name for every function", "an empty name", ""});
      if (!by_name_.emplace(function.name(), &function).second) {
        return Rejected({"W0412", "graph", "each function name once",
                         absl::StrCat("\"", function.name(), "\" twice"), ""});
      }
      nodes += function.node_size();
    }
    if (nodes > kMaxNodes) {
      return Rejected({"W0413", "graph", absl::StrCat("at most ", kMaxNodes, " nodes"),
                       absl::StrCat(nodes), ""});
    }
    return IndexRecompute();
  }

  absl::Status IndexRecompute() {
    for (const proto::Recompute& entry : job_.runtime().recompute()) {
      std::string where = absl::StrCat("runtime.recompute of ",
                                       entry.function().empty() ? "no function" : entry.function());
      if (by_name_.count(entry.function()) == 0) {
        return Rejected({"W0489", where, "`function` to name a function of the graph",
                         absl::StrCat("\"", entry.function(), "\""),
                         Nearest(entry.function(), Names())});
      }
      if (!recompute_.emplace(entry.function(), &entry).second) {
        return Rejected(
            {"W0489", where, "each function once", "an entry for it above", "join both"});
      }
      if (entry.keep_all() && entry.keep_size() > 0) {
        return Rejected({"W0489", where, "keep_all, or names in keep", "both", "leave one out"});
      }
    }
    return absl::OkStatus();
  }

  // Returns the list of the job for `function`, or else the list of the model. None: everything is
  // kept.
  std::optional<std::vector<std::string>> KeepOf(const weir::proto::Function& function) const {
    auto job = recompute_.find(function.name());
    if (job != recompute_.end()) {
      if (job->second->keep_all()) return std::nullopt;
      return std::vector<std::string>(job->second->keep().begin(), job->second->keep().end());
    }
    if (!function.has_keep()) return std::nullopt;
    return std::vector<std::string>(function.keep().tensor().begin(),
                                    function.keep().tensor().end());
  }

  // Defines a value of `main` by name.
  absl::Status DefineMain(const std::string& name, ModelValue value) {
    module_.model.values.push_back(std::move(value));
    int id = static_cast<int>(module_.model.values.size()) - 1;
    if (name.empty() || !main_names_.emplace(name, id).second) {
      return Rejected({"W0404", FunctionWhere(job_.graph().main()),
                       "each tensor name once in a function", absl::StrCat("\"", name, "\" again"),
                       ""});
    }
    return absl::OkStatus();
  }

  absl::Status ImportMain(const weir::proto::Function& main) {
    for (const proto::TensorDecl& input : main.input()) {
      std::string where = absl::StrCat(FunctionWhere(main.name()), ", input ", input.name());
      WEIR_ASSIGN_OR_RETURN(InputType input_type, ParseInputType(input.type(), dims_, where));
      WEIR_RETURN_IF_ERROR(DefineMain(
          input.name(), ModelValue{input.name(), input_type.type, -1, 0, {input_type.range}}));
    }
    int begin = 0;
    while (begin < main.node_size()) {
      int end = begin;
      while (end < main.node_size() && main.node(end).op() != "call") ++end;
      if (end > begin) WEIR_RETURN_IF_ERROR(OutlineNodes(main, begin, end));
      if (end < main.node_size()) WEIR_RETURN_IF_ERROR(ImportCall(main.name(), main.node(end)));
      begin = end + 1;
    }
    for (const proto::Parameter& parameter : main.parameter()) {
      if (used_parameters_.count(parameter.name()) == 0) {
        return Rejected({"W0414",
                         absl::StrCat(FunctionWhere(main.name()), ", parameter ", parameter.name()),
                         "a node of the function to use it", "no use", "remove it"});
      }
    }
    for (const std::string& name : KeepOf(main).value_or(std::vector<std::string>())) {
      if (main_names_.count(name) > 0 || reserved_.count(name) > 0 ||
          used_parameters_.count(name) > 0)
        continue;
      return UnknownTensorToKeep(name, MainNames(),
                                 absl::StrCat(FunctionWhere(main.name()), ", keep"));
    }
    return ImportOutputs(main);
  }

  absl::Status ImportOutputs(const weir::proto::Function& main) {
    Model& model = module_.model;
    std::string loss = job_.graph().loss().empty() ? "loss" : job_.graph().loss();
    if (mode_ == PlanMode::kGenerate) return absl::OkStatus();
    std::vector<std::string> outputs(main.output().begin(), main.output().end());
    for (const std::string& output : outputs) {
      auto it = main_names_.find(output);
      std::string where = absl::StrCat(FunctionWhere(main.name()), ", output ", output);
      if (it == main_names_.end()) {
        return Rejected({"W0407", where, "a tensor of main", absl::StrCat("\"", output, "\""),
                         Nearest(output, MainNames())});
      }
      const ModelValue& value = model.values[it->second];
      if (!value.type.dims.empty() || value.type.dtype != DType::kF32 || value.call < 0) {
        return Rejected({"W0415", where,
                         "a computed f32 scalar (outputs of main are the loss and metrics)",
                         ToText(value.type), "reduce it with reduce_mean"});
      }
      if (output == loss) {
        model.loss = it->second;
        model.metrics.insert(model.metrics.begin(), {output, it->second});
      } else {
        model.metrics.push_back({output, it->second});
      }
    }
    if (model.loss < 0) {
      return Rejected({"W0416", FunctionWhere(main.name()),
                       absl::StrCat("an output called \"", loss, "\""),
                       outputs.empty() ? "no outputs" : absl::StrJoin(outputs, ", "),
                       absl::StrCat("output: \"", loss, "\", or name it with graph.loss")});
    }
    return absl::OkStatus();
  }

  // Turns nodes [begin, end) of main into a function of their own that is called once.
  absl::Status OutlineNodes(const weir::proto::Function& main, int begin, int end) {
    std::string name = absl::StrCat(main.name(), ".", num_outlined_++);
    FunctionImporter importer(dims_, main.name(), name);
    ModelCall call;
    call.name = name;
    std::set<std::string> wanted;
    for (int i = begin; i < end; ++i)
      wanted.insert(main.node(i).input().begin(), main.node(i).input().end());
    for (const std::string& input : wanted) {
      auto it = main_names_.find(input);
      if (it == main_names_.end()) continue;
      const ModelValue& value = module_.model.values[it->second];
      WEIR_RETURN_IF_ERROR(importer.AddArg(input, value.type, ArgKind::kActivation));
      call.args.push_back(it->second);
    }
    for (const proto::Parameter& parameter : main.parameter()) {
      if (wanted.count(parameter.name()) == 0) continue;
      if (!used_parameters_.insert(parameter.name()).second) {
        return Rejected(
            {"W0417", absl::StrCat(FunctionWhere(main.name()), ", parameter ", parameter.name()),
             "uses of a parameter of main on one side of its calls", "uses before and after a call",
             "write the calls between its uses as nodes of main; or two parameters, which are then "
             "trained apart"});
      }
      WEIR_RETURN_IF_ERROR(importer.AddParameter(parameter));
    }
    for (int i = begin; i < end; ++i) WEIR_RETURN_IF_ERROR(importer.AddNode(main.node(i), i));
    if (auto keep = KeepOf(main))
      WEIR_RETURN_IF_ERROR(
          importer.Keep(*keep, FunctionImporter::Extent::kPart, FunctionWhere(main.name())));
    // The results are the values that later nodes, calls or outputs of main name.
    std::set<std::string> later(main.output().begin(), main.output().end());
    for (int i = end; i < main.node_size(); ++i)
      later.insert(main.node(i).input().begin(), main.node(i).input().end());
    if (mode_ == PlanMode::kGenerate) AddLogits(&importer.function(), &later);
    Function& function = importer.function();
    int call_index = static_cast<int>(module_.model.calls.size());
    std::vector<ops::ValueId> produced;
    for (const Node& node : function.nodes)
      produced.insert(produced.end(), node.outputs.begin(), node.outputs.end());
    for (ops::ValueId value : produced) {
      const std::string& value_name = function.values[value].name;
      ModelValue out{value_name, function.values[value].type, call_index,
                     static_cast<int>(function.results.size())};
      bool result = later.count(value_name) > 0;
      if (!result) {
        // The name is still taken, so that names stay unique over the whole of main.
        out.call = -1;
        WEIR_RETURN_IF_ERROR(ReserveName(value_name));
        continue;
      }
      ResultKind kind = out.type.dims.empty() ? ResultKind::kNatural : ResultKind::kActivation;
      function.results.push_back({value, kind, {}, false});
      WEIR_RETURN_IF_ERROR(DefineMain(value_name, out));
      call.results.push_back(static_cast<int>(module_.model.values.size()) - 1);
      if (value_name == logits_name_) module_.model.logits = call.results.back();
    }
    return AddCall(std::move(function), std::move(call));
  }

  absl::Status ReserveName(const std::string& name) {
    if (main_names_.count(name) > 0 || !reserved_.insert(name).second) {
      return Rejected({"W0404", FunctionWhere(job_.graph().main()),
                       "each tensor name once in a function", absl::StrCat("\"", name, "\" again"),
                       ""});
    }
    return absl::OkStatus();
  }

  // kGenerate: the first input of the loss is the value to fetch.
  void AddLogits(Function* function, std::set<std::string>* later) {
    for (const Node& node : function->nodes) {
      if (node.op == "softmax_cross_entropy") {
        logits_name_ = function->values[node.inputs[0]].name;
        later->insert(logits_name_);
      }
    }
  }

  absl::Status AddCall(Function function, ModelCall call) {
    module_.functions.push_back(std::move(function));
    ModelFunction model_function;
    model_function.forward = static_cast<int>(module_.functions.size()) - 1;
    model_function.num_results = static_cast<int>(module_.functions.back().results.size());
    module_.model.functions.push_back(std::move(model_function));
    call.model_function = static_cast<int>(module_.model.functions.size()) - 1;
    module_.model.calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  // Returns the model function for `name`, which is compiled at its first use.
  absl::StatusOr<int> FunctionFor(const std::string& name, const std::string& where) {
    auto it = by_name_.find(name);
    if (it == by_name_.end()) {
      return Rejected({"W0418", where, "`function` to name a function of the graph",
                       absl::StrCat("\"", name, "\""), Nearest(name, Names())});
    }
    if (name == job_.graph().main()) {
      return Rejected({"W0419", where, "calls without recursion", "main calls itself", ""});
    }
    if (auto known = imported_.find(name); known != imported_.end()) return known->second;
    FunctionImporter importer(dims_, name, name);
    const weir::proto::Function& graph = *it->second;
    for (const proto::TensorDecl& input : graph.input()) {
      std::string input_where = absl::StrCat(FunctionWhere(name), ", input ", input.name());
      WEIR_ASSIGN_OR_RETURN(InputType input_type, ParseInputType(input.type(), dims_, input_where));
      WEIR_RETURN_IF_ERROR(
          importer.AddArg(input.name(), input_type.type, ArgKind::kActivation, input_type.range));
    }
    for (const proto::Parameter& parameter : graph.parameter())
      WEIR_RETURN_IF_ERROR(importer.AddParameter(parameter));
    for (int i = 0; i < graph.node_size(); ++i) {
      if (graph.node(i).op() == "call") {
        return Rejected(
            {"W0420", absl::StrCat(FunctionWhere(name), ", node ", graph.node(i).name()),
             "calls in main only", absl::StrCat("a call of \"", graph.node(i).function(), "\""),
             "call it from main"});
      }
      WEIR_RETURN_IF_ERROR(importer.AddNode(graph.node(i), i));
    }
    if (auto keep = KeepOf(graph)) {
      WEIR_RETURN_IF_ERROR(importer.Keep(*keep, FunctionImporter::Extent::kWhole,
                                         absl::StrCat(FunctionWhere(name), ", keep")));
    }
    if (graph.output().empty()) {
      return Rejected(
          {"W0421", FunctionWhere(name), "at least one output", "none", "output: \"y\""});
    }
    for (const std::string& output : graph.output()) {
      WEIR_ASSIGN_OR_RETURN(
          ops::ValueId value,
          importer.Lookup(output, absl::StrCat(FunctionWhere(name), ", output ", output)));
      if (importer.function().ProducerOf(value) < 0) {
        return Rejected({"W0422", absl::StrCat(FunctionWhere(name), ", output ", output),
                         "an output computed by a node", "an input or parameter handed through",
                         ""});
      }
      ResultKind kind = importer.function().values[value].type.dims.empty()
                            ? ResultKind::kNatural
                            : ResultKind::kActivation;
      importer.function().results.push_back({value, kind, {}, false});
    }
    module_.functions.push_back(std::move(importer.function()));
    ModelFunction model_function;
    model_function.forward = static_cast<int>(module_.functions.size()) - 1;
    model_function.num_results = graph.output_size();
    module_.model.functions.push_back(std::move(model_function));
    int index = static_cast<int>(module_.model.functions.size()) - 1;
    imported_[name] = index;
    return index;
  }

  absl::Status ImportCall(const std::string& caller, const weir::proto::Node& node) {
    std::string name = node.name().empty() ? node.function() : node.name();
    std::string where = absl::StrCat(FunctionWhere(caller), ", call ", name);
    WEIR_ASSIGN_OR_RETURN(int index, FunctionFor(node.function(), where));
    int64_t repeat = node.repeat() == 0 ? 1 : node.repeat();
    if (repeat < 1 || repeat > kMaxCalls) {
      return Rejected({"W0423", where, absl::StrCat("repeat between 1 and ", kMaxCalls),
                       absl::StrCat(repeat), ""});
    }
    if (static_cast<int64_t>(module_.model.calls.size()) + repeat > kMaxCalls) {
      return Rejected({"W0428", where,
                       absl::StrCat("at most ", kMaxCalls, " calls in main, repetitions counted"),
                       absl::StrCat(static_cast<int64_t>(module_.model.calls.size()) + repeat),
                       "more layers to a function"});
    }
    std::vector<int> args;
    for (const std::string& input : node.input()) {
      auto it = main_names_.find(input);
      if (it == main_names_.end() && IsParameterOfMain(input)) {
        return Rejected(
            {"W0925", where,
             "inputs that data or nodes of main give: a call brings parameters of its own",
             absl::StrCat("\"", input, "\", a parameter of main"),
             absl::StrCat(
                 "declare it in function ", node.function(),
                 ", which gives each call its own; to use one parameter in several places, "
                 "write the nodes of the function into main")});
      }
      if (it == main_names_.end()) {
        return Rejected({"W0407", where, "a tensor defined before this point",
                         absl::StrCat("\"", input, "\""), Nearest(input, MainNames())});
      }
      args.push_back(it->second);
    }
    std::vector<std::string> outputs(node.output().begin(), node.output().end());
    if (outputs.empty()) outputs.push_back(name);
    if (!call_names_.insert(name).second) {
      return Rejected({"W0424", where, "each call name once", absl::StrCat("\"", name, "\" again"),
                       "name: \"...\""});
    }
    for (int64_t i = 0; i < repeat; ++i) {
      ModelCall call;
      call.name = repeat == 1 ? name : absl::StrCat(name, ".", i);
      call.model_function = index;
      call.args = args;
      WEIR_RETURN_IF_ERROR(CheckCall(call, index, repeat, outputs.size(), where));
      const Function& function = module_.functions[module_.model.functions[index].forward];
      int call_index = static_cast<int>(module_.model.calls.size());
      for (size_t r = 0; r < outputs.size(); ++r) {
        ModelValue value{absl::StrCat(call.name, ".", outputs[r]),
                         function.values[function.results[r].value].type, call_index,
                         static_cast<int>(r)};
        if (i + 1 == repeat) {
          WEIR_RETURN_IF_ERROR(DefineMain(outputs[r], value));
        } else {
          module_.model.values.push_back(value);
        }
        call.results.push_back(static_cast<int>(module_.model.values.size()) - 1);
      }
      args = call.results;
      module_.model.calls.push_back(std::move(call));
    }
    return absl::OkStatus();
  }

  absl::Status CheckCall(const ModelCall& call, int index, int64_t repeat, size_t num_outputs,
                         const std::string& where) {
    const Function& function = module_.functions[module_.model.functions[index].forward];
    std::vector<const Arg*> inputs;
    for (const Arg& arg : function.args) {
      if (arg.kind == ArgKind::kActivation) inputs.push_back(&arg);
    }
    if (inputs.size() != call.args.size() || num_outputs != function.results.size()) {
      return Rejected(
          {"W0425", where,
           absl::StrCat(inputs.size(), " inputs and ", function.results.size(),
                        " outputs, as function ", function.name,
                        repeat > 1 ? " has (a repeated call feeds outputs to inputs)" : " has"),
           absl::StrCat(call.args.size(), " inputs and ", num_outputs, " outputs"), ""});
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      const sbp::TensorType& want = function.values[inputs[i]->value].type;
      const sbp::TensorType& got = module_.model.values[call.args[i]].type;
      if (want.shape() != got.shape() || want.dtype != got.dtype) {
        return Rejected({"W0426",
                         absl::StrCat(where, ", input ", function.values[inputs[i]->value].name),
                         ToText(want), ToText(got),
                         absl::StrCat("make both types agree; ", call.name, " is given \"",
                                      module_.model.values[call.args[i]].name, "\"")});
      }
    }
    return absl::OkStatus();
  }

  const proto::Job& job_;
  const Dims& dims_;
  PlanMode mode_;
  Module module_;
  std::map<std::string, const weir::proto::Function*> by_name_;
  std::map<std::string, const proto::Recompute*> recompute_;  // by function
  std::map<std::string, int> imported_;
  std::map<std::string, int> main_names_;
  std::set<std::string> reserved_, used_parameters_, call_names_;
  std::string logits_name_;
  int num_outlined_ = 0;
};

}  // namespace

absl::StatusOr<std::map<std::string, sbp::TensorDim>> ImportDimTable(const proto::Job& job) {
  std::map<std::string, sbp::TensorDim> dims;
  for (int index = 0; index < job.graph().dim_size(); ++index) {
    const proto::Dim& dim = job.graph().dim(index);
    std::string where = absl::StrCat("graph, dim ", dim.name());
    int64_t unit = dim.unit() == 0 ? 1 : dim.unit();
    if (dim.name().empty()) {
      return Rejected({"W0430", absl::StrCat("graph.dim[", index, "]"), "a name",
                       absl::StrCat("none, for the dimension of size ", dim.size()),
                       "dim { name: \"hidden\" size: 64 }"});
    }
    if (dim.size() < 1 || dim.size() > (int64_t{1} << 40)) {
      return Rejected({"W0431", where, "a size between 1 and 2^40", absl::StrCat(dim.size()), ""});
    }
    if (unit < 1 || dim.size() % unit != 0) {
      return Rejected({"W0432", where, absl::StrCat("a unit that divides the size ", dim.size()),
                       absl::StrCat(unit), ""});
    }
    if (!dims.emplace(dim.name(), sbp::TensorDim{dim.name(), dim.size(), unit}).second) {
      return Rejected(
          {"W0433", where, "each dimension once", absl::StrCat("\"", dim.name(), "\" twice"), ""});
    }
  }
  return dims;
}

absl::StatusOr<std::map<std::string, sbp::TensorDim>> ImportDims(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(Dims dims, ImportDimTable(job));
  int64_t micro_batches = job.training().micro_batches();
  if (micro_batches < 0 || micro_batches > 1'000'000) {
    return Rejected({"W0434", "training.micro_batches", "between 1 and 1000000",
                     absl::StrCat(micro_batches), ""});
  }
  if (micro_batches > 1) {
    WEIR_ASSIGN_OR_RETURN(const std::string batch, BatchDim(job, dims));
    auto it = dims.find(batch);
    if (it->second.size % micro_batches != 0) {
      return Rejected(
          {"W0435", "training.micro_batches",
           absl::StrCat("a number that divides dimension \"", batch, "\""),
           absl::StrCat(it->second.size, " rows over ", micro_batches, " micro-batches"),
           "change training.micro_batches or the size of the dimension"});
    }
    it->second.size /= micro_batches;
  }
  return dims;
}

absl::StatusOr<Module> ImportGraph(const proto::Job& job,
                                   const std::map<std::string, sbp::TensorDim>& dims,
                                   PlanMode mode) {
  WEIR_ASSIGN_OR_RETURN(Module module, GraphImporter(job, dims, mode).Run());
  WEIR_RETURN_IF_ERROR(InferIndexRanges(job.graph().main(), &module));
  return module;
}

}  // namespace weir::compiler
