#include "compiler/job/import_graph.h"

#include <algorithm>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/batch_dim.h"
#include "compiler/job/import_function.h"
#include "compiler/job/infer_index_ranges.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// The names of what training itself reports of a step, beside the outputs of main.
constexpr const char* kOwnMetrics[] = {"grad_norm", "loss_scale", "skipped_updates"};

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
    for (const auto& [name, parameter] : main_parameters_) names.push_back(name);
    return names;
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
    if (nodes > kNodesMax) {
      return Rejected({"W0413", "graph", absl::StrCat("at most ", kNodesMax, " nodes"),
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
    return NameMain(name, static_cast<int>(module_.model.values.size()) - 1);
  }

  absl::Status NameMain(const std::string& name, int value) {
    if (name.empty() || main_parameters_.count(name) > 0 ||
        !main_names_.emplace(name, value).second) {
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
    for (const proto::Parameter& parameter : main.parameter()) {
      WEIR_RETURN_IF_ERROR(AddMainParameter(main, parameter));
    }
    int begin = 0;
    while (begin < main.node_size()) {
      int end = begin;
      while (end < main.node_size() && main.node(end).op() != "call") ++end;
      if (end > begin) WEIR_RETURN_IF_ERROR(OutlineNodes(main, begin, end));
      if (end < main.node_size()) WEIR_RETURN_IF_ERROR(ImportCall(main.node(end)));
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

  // A parameter of main.
  struct MainParameter {
    int weight = -1;  // of the model
    sbp::TensorType type;
  };

  absl::Status AddMainParameter(const weir::proto::Function& main,
                                const proto::Parameter& parameter) {
    FunctionImporter importer(dims_, by_name_, main.name(), main.name());
    WEIR_RETURN_IF_ERROR(importer.AddParameter(parameter));
    const Function& function = importer.function();
    const MainParameter added{AddWeight(parameter.name(), function.parameters[0]),
                              function.values[function.args[0].value].type};
    if (main_names_.count(parameter.name()) > 0 ||
        !main_parameters_.emplace(parameter.name(), added).second) {
      return Rejected({"W0404", FunctionWhere(main.name()), "each tensor name once in a function",
                       absl::StrCat("\"", parameter.name(), "\" again"), ""});
    }
    return absl::OkStatus();
  }

  int AddWeight(const std::string& name, const ParameterInfo& parameter) {
    module_.model.weights.push_back({name, parameter.init, parameter.decay, parameter.frozen});
    return static_cast<int>(module_.model.weights.size()) - 1;
  }

  absl::Status ImportOutputs(const weir::proto::Function& main) {
    Model& model = module_.model;
    std::string loss = job_.graph().loss().empty() ? "loss" : job_.graph().loss();
    if (mode_ == PlanMode::kGenerate) return absl::OkStatus();
    if (job_.graph().without_loss()) return ImportResults(main);
    std::vector<std::string> outputs(main.output().begin(), main.output().end());
    for (const std::string& output : outputs) {
      auto it = main_names_.find(output);
      std::string where = absl::StrCat(FunctionWhere(main.name()), ", output ", output);
      if (std::count(std::begin(kOwnMetrics), std::end(kOwnMetrics), output) > 0) {
        return Rejected({"W0415", where, "a name that Weir gives no metric of its own", output,
                         absl::StrCat("another name, such as model_", output)});
      }
      if (it == main_names_.end()) {
        return UnknownTensor(output, MainNames(), where, "a tensor of main");
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

  // The outputs of a model without a loss.
  absl::Status ImportResults(const weir::proto::Function& main) {
    const std::string where = FunctionWhere(main.name());
    if (mode_ == PlanMode::kTrain) return CheckHasLoss(job_);
    if (job_.training().micro_batches() > 1) {
      return Rejected({"W0617", "training.micro_batches",
                       "1, as each result of a model without a loss is kept once a step",
                       absl::StrCat(job_.training().micro_batches()), "leave it out"});
    }
    for (const std::string& output : main.output()) {
      const std::string of_output = absl::StrCat(where, ", output ", output);
      const auto found = main_names_.find(output);
      if (found == main_names_.end()) {
        return UnknownTensor(output, MainNames(), of_output, "a tensor of main");
      }
      if (module_.model.values[found->second].call < 0) {
        return Rejected({"W0618", of_output, "a tensor that a node of main computes",
                         "an input of main", "leave it out: the data have it"});
      }
      for (const auto& [name, value] : module_.model.fetched) {
        if (name != output) continue;
        return Rejected({"W0618", of_output, "each output once", "the same output again", ""});
      }
      module_.model.fetched.emplace_back(output, found->second);
    }
    if (!module_.model.fetched.empty()) return absl::OkStatus();
    return Rejected({"W0618", where, "at least one output, the result of a node", "none",
                     "output: \"logits\""});
  }

  // Turns nodes [begin, end) of main into a function of their own that is called once.
  absl::Status OutlineNodes(const weir::proto::Function& main, int begin, int end) {
    std::string name = absl::StrCat(main.name(), ".", num_outlined_++);
    FunctionImporter importer(dims_, by_name_, main.name(), name);
    ModelCall call;
    call.name = name;
    importer.Suggest(MainNames());
    std::set<std::string> wanted;
    for (int i = begin; i < end; ++i)
      wanted.insert(main.node(i).input().begin(), main.node(i).input().end());
    for (const std::string& input : wanted) {
      auto it = main_names_.find(input);
      if (it == main_names_.end()) continue;
      const ModelValue& value = module_.model.values[it->second];
      WEIR_RETURN_IF_ERROR(importer.AddInput(input, {value.type, std::nullopt}));
      call.args.push_back(it->second);
    }
    for (const proto::Parameter& parameter : main.parameter()) {
      if (wanted.count(parameter.name()) == 0) continue;
      used_parameters_.insert(parameter.name());
      call.weights.push_back(main_parameters_.at(parameter.name()).weight);
      WEIR_RETURN_IF_ERROR(importer.AddParameter(parameter));
    }
    for (int i = begin; i < end; ++i) WEIR_RETURN_IF_ERROR(importer.AddNode(main.node(i), i));
    WEIR_RETURN_IF_ERROR(importer.CheckAverages());
    if (auto keep = KeepOf(main))
      WEIR_RETURN_IF_ERROR(
          importer.Keep(*keep, FunctionImporter::Extent::kPart, FunctionWhere(main.name())));
    // The results are the values that later nodes, calls or outputs of main name.
    std::set<std::string> later(main.output().begin(), main.output().end());
    for (int i = end; i < main.node_size(); ++i) {
      later.insert(main.node(i).input().begin(), main.node(i).input().end());
      later.insert(main.node(i).shared().begin(), main.node(i).shared().end());
    }
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
    if (main_names_.count(name) > 0 || main_parameters_.count(name) > 0 ||
        !reserved_.insert(name).second) {
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

  // A call of main reads a Given: a value, or a parameter of main.
  struct Given {
    std::string name;
    int value = -1;   // of the model, or
    int weight = -1;  // of the model
  };

  absl::StatusOr<Given> Find(const std::string& name, const std::string& where) {
    if (auto it = main_names_.find(name); it != main_names_.end()) return Given{name, it->second};
    if (auto it = main_parameters_.find(name); it != main_parameters_.end()) {
      used_parameters_.insert(name);
      return Given{name, -1, it->second.weight};
    }
    return UnknownTensor(name, MainNames(), where, "a tensor defined before this point");
  }

  // Returns the model function for calls of `graph` with such inputs, which is compiled at its
  // first use. An input that is a weight in one call and a value in another makes two model
  // functions.
  absl::StatusOr<int> FunctionFor(const weir::proto::Function& graph,
                                  const std::vector<Given>& inputs) {
    const std::string& name = graph.name();
    std::string key = name;
    for (const Given& input : inputs) {
      absl::StrAppend(&key, input.weight < 0                             ? " value"
                            : module_.model.weights[input.weight].frozen ? " frozen"
                                                                         : " weight");
    }
    if (auto known = imported_.find(key); known != imported_.end()) return known->second;
    FunctionImporter importer(dims_, by_name_, name, name);
    for (int i = 0; i < graph.input_size(); ++i) {
      const proto::TensorDecl& input = graph.input(i);
      if (inputs[i].weight >= 0) {
        WEIR_RETURN_IF_ERROR(
            importer.AddWeightInput(input, i, module_.model.weights[inputs[i].weight].frozen));
        continue;
      }
      std::string input_where = absl::StrCat(FunctionWhere(name), ", input ", input.name());
      WEIR_ASSIGN_OR_RETURN(InputType input_type, ParseInputType(input.type(), dims_, input_where));
      WEIR_RETURN_IF_ERROR(importer.AddInput(input.name(), input_type));
    }
    for (const proto::Parameter& parameter : graph.parameter())
      WEIR_RETURN_IF_ERROR(importer.AddParameter(parameter));
    for (int i = 0; i < graph.node_size(); ++i)
      WEIR_RETURN_IF_ERROR(importer.AddNode(graph.node(i), i));
    WEIR_RETURN_IF_ERROR(importer.CheckAverages());
    if (auto keep = KeepOf(graph)) {
      WEIR_RETURN_IF_ERROR(importer.Keep(*keep, FunctionImporter::Extent::kWhole,
                                         absl::StrCat(FunctionWhere(name), ", keep")));
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
    imported_[key] = index;
    return index;
  }

  // A call of main as the user wrote it: `rounds` calls of the model from `first` on.
  struct CallNode {
    std::string function;
    int first = 0;
    int64_t rounds = 1;
  };

  absl::StatusOr<const weir::proto::Function*> CalledByMain(const weir::proto::Node& node,
                                                            const std::string& where) const {
    if (node.function() == job_.graph().main()) {
      return Rejected({"W0419", where, "calls without recursion", "main calls itself", ""});
    }
    return CalledFunction(by_name_, node, job_.graph().main(), where);
  }

  absl::Status ImportCall(const weir::proto::Node& node) {
    std::string name = node.name().empty() ? node.function() : node.name();
    std::string where = absl::StrCat(FunctionWhere(job_.graph().main()), ", call ", name);
    WEIR_ASSIGN_OR_RETURN(const weir::proto::Function* graph, CalledByMain(node, where));
    WEIR_ASSIGN_OR_RETURN(const int64_t rounds, RoundsOf(node, where));
    const int first = static_cast<int>(module_.model.calls.size());
    if (first + rounds > kCallsMax) {
      return Rejected({"W0428", where,
                       absl::StrCat("at most ", kCallsMax, " calls in main, repetitions counted"),
                       absl::StrCat(first + rounds), "more layers to a function"});
    }
    if (!calls_.emplace(name, CallNode{graph->name(), first, rounds}).second) {
      return Rejected({"W0424", where, "each call name once", absl::StrCat("\"", name, "\" again"),
                       "name: \"...\""});
    }
    std::vector<Given> carried, shared;
    for (const std::string& input : node.input()) {
      WEIR_ASSIGN_OR_RETURN(carried.emplace_back(), Find(input, where));
    }
    for (const std::string& input : node.shared()) {
      WEIR_ASSIGN_OR_RETURN(shared.emplace_back(), Find(input, where));
    }
    WEIR_RETURN_IF_ERROR(CheckRounds(node, rounds, *graph, where));
    const std::vector<std::string> outputs = OutputsOf(node);
    for (int64_t round = 0; round < rounds; ++round) {
      std::vector<Given> inputs = carried;
      inputs.insert(inputs.end(), shared.begin(), shared.end());
      WEIR_RETURN_IF_ERROR(AddRound(node, *graph, name, round, inputs, where));
      carried.clear();
      for (size_t r = 0; r < outputs.size(); ++r) {
        const int result = module_.model.calls.back().results[r];
        carried.push_back({module_.model.values[result].name, result});
      }
    }
    for (size_t r = 0; r < outputs.size(); ++r)
      WEIR_RETURN_IF_ERROR(NameMain(outputs[r], carried[r].value));
    return absl::OkStatus();
  }

  // Adds one call of the model.
  absl::Status AddRound(const weir::proto::Node& node, const weir::proto::Function& graph,
                        const std::string& name, int64_t round, const std::vector<Given>& inputs,
                        const std::string& where) {
    Model& model = module_.model;
    ModelCall call;
    call.name = RoundName(name, calls_.at(name).rounds, round);
    WEIR_ASSIGN_OR_RETURN(call.model_function, FunctionFor(graph, inputs));
    WEIR_RETURN_IF_ERROR(CheckInputs(call, graph, inputs, where));
    for (const Given& input : inputs) {
      if (input.weight < 0) call.args.push_back(input.value);
    }
    WEIR_RETURN_IF_ERROR(AddWeights(node, name, round, inputs, where, &call));
    const Function& function = module_.functions[model.functions[call.model_function].forward];
    const std::vector<std::string> outputs = OutputsOf(node);
    for (size_t r = 0; r < outputs.size(); ++r) {
      model.values.push_back({absl::StrCat(call.name, ".", outputs[r]),
                              function.values[function.results[r].value].type,
                              static_cast<int>(model.calls.size()), static_cast<int>(r)});
      call.results.push_back(static_cast<int>(model.values.size()) - 1);
    }
    model.calls.push_back(std::move(call));
    return absl::OkStatus();
  }

  // Gives a call its weights: those that enter it, those of the call that `weights` names, or new
  // ones.
  absl::Status AddWeights(const weir::proto::Node& node, const std::string& name, int64_t round,
                          const std::vector<Given>& inputs, const std::string& where,
                          ModelCall* call) {
    const Model& model = module_.model;
    std::string owner = call->name;
    const ModelCall* source = nullptr;
    if (!node.weights().empty()) {
      WEIR_ASSIGN_OR_RETURN(const int index, SourceOfWeights(node, name, round, where));
      if (node.weights() == name) owner = name;
      if (index < static_cast<int>(model.calls.size())) source = &model.calls[index];
    }
    const Function& function = module_.functions[model.functions[call->model_function].forward];
    size_t own = 0;  // parameters of the function so far that no caller gives
    for (const ParameterInfo& parameter : function.parameters) {
      if (parameter.input >= 0) {
        call->weights.push_back(inputs[parameter.input].weight);
      } else if (source != nullptr) {
        call->weights.push_back(OwnWeight(*source, own++));
      } else {
        call->weights.push_back(AddWeight(absl::StrCat(owner, ".", parameter.name), parameter));
      }
    }
    return absl::OkStatus();
  }

  // Returns the weight of `call` for the parameter at `position` among those that no caller gives.
  int OwnWeight(const ModelCall& call, size_t position) const {
    const Function& function =
        module_.functions[module_.model.functions[call.model_function].forward];
    for (size_t p = 0; p < function.parameters.size(); ++p) {
      if (function.parameters[p].input < 0 && position-- == 0) return call.weights[p];
    }
    return -1;  // calls of one function of the graph have the same parameters
  }

  // Returns the call of the model whose weights round `round` of call `name` uses; the number of
  // calls so far: the round itself.
  absl::StatusOr<int> SourceOfWeights(const weir::proto::Node& node, const std::string& name,
                                      int64_t round, const std::string& where) const {
    const auto named = calls_.find(node.weights());
    if (named == calls_.end()) {
      std::vector<std::string> names;
      for (const auto& [call, facts] : calls_) names.push_back(call);
      return Rejected({"W0418", where, "`weights` to name this call, or a call above it",
                       absl::StrCat("\"", node.weights(), "\""), Nearest(node.weights(), names)});
    }
    const CallNode& source = named->second;
    if (node.weights() == name) return source.first;
    const int64_t rounds = calls_.at(name).rounds;
    if (source.function != node.function() || (source.rounds != 1 && source.rounds != rounds)) {
      return Rejected(
          {"W0420", where,
           absl::StrCat("`weights` to name a call of function ", node.function(), " with ",
                        rounds == 1 ? "one round" : absl::StrCat("one round or ", rounds)),
           absl::StrCat("\"", node.weights(), "\", a call of ", source.function, " with ",
                        source.rounds, source.rounds == 1 ? " round" : " rounds"),
           "declare parameters in main and name them in `shared` of both calls"});
    }
    return source.first + static_cast<int>(source.rounds == 1 ? 0 : round);
  }

  absl::Status CheckInputs(const ModelCall& call, const weir::proto::Function& graph,
                           const std::vector<Given>& inputs, const std::string& where) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string& input = graph.input(static_cast<int>(i)).name();
      WEIR_ASSIGN_OR_RETURN(const InputType declared,
                            ParseInputType(graph.input(static_cast<int>(i)).type(), dims_, where));
      const sbp::TensorType &want = declared.type, &got = TypeOf(inputs[i]);
      if (want.shape() != got.shape() || want.dtype != got.dtype) {
        return Rejected({"W0426", absl::StrCat(where, ", input ", input), ToText(want), ToText(got),
                         absl::StrCat("make both types agree; ", call.name, " is given \"",
                                      inputs[i].name, "\"")});
      }
    }
    return absl::OkStatus();
  }

  const sbp::TensorType& TypeOf(const Given& given) const {
    return given.weight < 0 ? module_.model.values[given.value].type
                            : main_parameters_.at(given.name).type;
  }

  const proto::Job& job_;
  const Dims& dims_;
  PlanMode mode_;
  Module module_;
  GraphFunctions by_name_;
  std::map<std::string, const proto::Recompute*> recompute_;  // by function
  std::map<std::string, int> imported_;                       // by function and kinds of inputs
  std::map<std::string, MainParameter> main_parameters_;
  std::map<std::string, CallNode> calls_;
  std::map<std::string, int> main_names_;
  std::set<std::string> reserved_, used_parameters_;
  std::string logits_name_;
  int num_outlined_ = 0;
};

// Without training the result of a moving_average is the average.
void ReadAverages(Module* module) {
  for (Function& function : module->functions) {
    for (Node& node : function.nodes) {
      if (node.op != kMovingAverageOp) continue;
      node.op = "scale";
      node.inputs = {node.inputs[1]};
      node.attrs = {{"factor", 1.0}};
    }
  }
}

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

namespace {

// Returns "2 or 4": the divisors of `size` just below and just above `count`, which is none.
std::string DivisorsNear(int64_t size, int64_t count) {
  constexpr int64_t kTriesMax = 1'000'000;
  int64_t below = std::min(size, count);
  while (size % below != 0) --below;
  for (int64_t above = count + 1; above <= std::min(size, count + kTriesMax); ++above) {
    if (size % above == 0) return absl::StrCat(below, " or ", above);
  }
  return absl::StrCat(below);
}

}  // namespace

absl::StatusOr<std::map<std::string, sbp::TensorDim>> ImportDims(const proto::Job& job) {
  WEIR_ASSIGN_OR_RETURN(Dims dims, ImportDimTable(job));
  int64_t micro_batches = job.training().micro_batches();
  if (micro_batches < 0 || micro_batches > 1'000'000) {
    return Rejected({"W0434", "training.micro_batches", "between 1 and 1000000",
                     absl::StrCat(micro_batches), ""});
  }
  if (micro_batches > 1 || !job.training().batch_dim().empty()) {
    WEIR_ASSIGN_OR_RETURN(const std::string batch, BatchDim(job, dims));
    if (micro_batches <= 1) return dims;
    auto it = dims.find(batch);
    if (it->second.size % micro_batches != 0) {
      return Rejected(
          {"W0435", "training.micro_batches",
           absl::StrCat("a number that divides dimension \"", batch, "\""),
           absl::StrCat(it->second.size, " rows over ", micro_batches, " micro-batches"),
           absl::StrCat(DivisorsNear(it->second.size, micro_batches),
                        " micro-batches, or another size of the dimension")});
    }
    it->second.size /= micro_batches;
  }
  return dims;
}

PlanMode ModeOf(const proto::Job& job) {
  return job.graph().without_loss() ? PlanMode::kEvaluate : PlanMode::kTrain;
}

absl::Status CheckHasLoss(const proto::Job& job) {
  if (!job.graph().without_loss()) return absl::OkStatus();
  return Rejected({"W0616", FunctionWhere(job.graph().main()), "a loss to minimise",
                   "a model without a loss (without_loss)",
                   "run the model with `weir eval JOB --outputs FOLDER`, or give it a loss: "
                   "`weir import --loss`"});
}

absl::StatusOr<Module> ImportGraph(const proto::Job& job,
                                   const std::map<std::string, sbp::TensorDim>& dims,
                                   PlanMode mode) {
  WEIR_ASSIGN_OR_RETURN(Module module, GraphImporter(job, dims, mode).Run());
  if (mode != PlanMode::kTrain) ReadAverages(&module);
  WEIR_RETURN_IF_ERROR(InferIndexRanges(job.graph().main(), &module));
  return module;
}

}  // namespace weir::compiler
