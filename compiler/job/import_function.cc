#include "compiler/job/import_function.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/at_positions.h"
#include "ops/defs/type_text.h"
#include "runtime/base/name_parts.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"

namespace weir::compiler {
namespace {

constexpr size_t kCallDepthMax = 16;

absl::StatusOr<sbp::TensorType> ParseTensorType(const std::string& text, const Dims& dims,
                                                const std::string& where) {
  absl::StatusOr<sbp::TensorType> type = ops::ParseType(text, dims);
  if (!type.ok()) return At(where, type.status());
  return type;
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

std::vector<std::string> NamesOf(const std::map<std::string, ops::ValueId>& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  return names;
}

std::string NodeWhere(const std::string& function, const weir::proto::Node& node, int index) {
  return absl::StrCat(
      FunctionWhere(function), ", node ",
      node.name().empty() ? absl::StrCat("node ", index, " (", node.op(), ")") : node.name());
}

// More names of functions are not listed in an error.
constexpr size_t kFunctionsShown = 16;

// Returns the function that a wrong name means: the nearest one, or the only one; "": unknown.
std::string MeantFunction(const std::string& name, const std::vector<std::string>& functions) {
  std::string meant = Nearest(name, functions);
  if (meant.empty() && functions.size() == 1) meant = functions[0];
  return meant;
}

}  // namespace

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

absl::Status UnknownTensorToKeep(const std::string& name, const std::vector<std::string>& known,
                                 const std::string& where) {
  return Rejected({"W0488", where, "names of tensors of the function",
                   absl::StrCat("\"", name, "\""), Nearest(name, known)});
}

absl::Status UnknownTensor(const std::string& name, const std::vector<std::string>& known,
                           const std::string& where, const std::string& expected,
                           const std::string& otherwise) {
  const std::string found = absl::StrCat("\"", name, "\"");
  if (const std::vector<std::string> parts = GluedNames(name, known); !parts.empty()) {
    return Rejected({"W0407", where, expected,
                     found + ", which is several names without commas between them",
                     absl::StrCat("[\"", absl::StrJoin(parts, "\", \""), "\"]")});
  }
  const std::string near = Nearest(name, known);
  return Rejected(
      {"W0407", where, expected, found, near.empty() ? otherwise : absl::StrCat("\"", near, "\"")});
}

std::string FunctionWhere(const std::string& function) {
  return absl::StrCat("function ", function);
}

absl::Status NoMain(const proto::Job& job) {
  std::vector<std::string> names;
  for (const proto::Function& function : job.graph().function()) names.push_back(function.name());
  const std::string& main = job.graph().main();
  const std::string meant = MeantFunction(main, names);
  const bool lists = !names.empty() && names.size() <= kFunctionsShown;
  return Rejected(
      {"W0410", "graph",
       absl::StrCat("`main` to name a function",
                    lists ? absl::StrCat(" of the graph (", absl::StrJoin(names, ", "), ")") : ""),
       main.empty() ? "nothing" : absl::StrCat("\"", main, "\""),
       meant.empty() ? "" : absl::StrCat("main: \"", meant, "\"")});
}

absl::StatusOr<const weir::proto::Function*> CalledFunction(const GraphFunctions& functions,
                                                            const weir::proto::Node& node,
                                                            const std::string& caller,
                                                            const std::string& where) {
  const auto it = functions.find(node.function());
  if (it != functions.end()) return it->second;
  // A function that calls the caller would be a recursion.
  std::vector<std::string> names;
  for (const auto& [name, function] : functions) {
    const bool calls = std::any_of(function->node().begin(), function->node().end(),
                                   [&](const proto::Node& other) {
                                     return other.op() == "call" && other.function() == caller;
                                   });
    if (name != caller && !calls) names.push_back(name);
  }
  const std::string meant = MeantFunction(node.function(), names);
  return Rejected({"W0418", where, "`function` to name a function of the graph",
                   node.function().empty() ? "none" : absl::StrCat("\"", node.function(), "\""),
                   !meant.empty() ? absl::StrCat("function: \"", meant, "\"")
                   : names.empty() || names.size() > kFunctionsShown
                       ? ""
                       : "one of " + absl::StrJoin(names, ", ")});
}

absl::StatusOr<int64_t> RoundsOf(const weir::proto::Node& node, const std::string& where) {
  if (node.repeat() >= 0 && node.repeat() <= kCallsMax) return std::max<int64_t>(1, node.repeat());
  return Rejected({"W0423", where, absl::StrCat("repeat between 1 and ", kCallsMax),
                   absl::StrCat(node.repeat()), ""});
}

absl::Status CheckRounds(const weir::proto::Node& node, int64_t rounds,
                         const weir::proto::Function& function, const std::string& where) {
  if (function.output().empty()) {
    return Rejected(
        {"W0421", FunctionWhere(function.name()), "at least one output", "none", "output: \"y\""});
  }
  const size_t outputs = OutputsOf(node).size();
  const int given = node.input_size() + node.shared_size();
  if (given != function.input_size() || static_cast<int>(outputs) != function.output_size()) {
    return Rejected({"W0425", where,
                     absl::StrCat(Plural(function.input_size(), "input"), " and ",
                                  Plural(function.output_size(), "output"), ", as function ",
                                  function.name(), " has"),
                     absl::StrCat(Plural(given, "input"), " and ",
                                  Plural(static_cast<int64_t>(outputs), "output")),
                     ""});
  }
  if (rounds == 1 || node.input_size() == static_cast<int>(outputs)) return absl::OkStatus();
  return Rejected({"W0425", where,
                   absl::StrCat("in `input` as many names as outputs, ", outputs,
                                ": a repeated call feeds its outputs to the inputs of its next "
                                "round"),
                   absl::StrCat(node.input_size()),
                   "name in `shared` what all rounds read unchanged"});
}

std::vector<std::string> OutputsOf(const weir::proto::Node& node) {
  if (node.output_size() > 0) return {node.output().begin(), node.output().end()};
  return {node.name().empty() ? node.function() : node.name()};
}

std::string RoundName(const std::string& call, int64_t rounds, int64_t round) {
  return rounds == 1 ? call : absl::StrCat(call, ".", round);
}

FunctionImporter::FunctionImporter(const Dims& dims, const GraphFunctions& functions,
                                   std::string graph_function, std::string name)
    : dims_(dims),
      functions_(functions),
      graph_function_(std::move(graph_function)),
      scope_{graph_function_, ""},
      inlined_{graph_function_} {
  function_.name = std::move(name);
}

absl::Status FunctionImporter::Define(const std::string& name, ops::ValueId value,
                                      const std::string& where, Scope* scope) {
  if (name.empty())
    return Rejected({"W0403", where, "a name for every tensor", "an empty name", ""});
  if (!scope->names.emplace(name, value).second ||
      !defined_.insert(absl::StrCat(scope->prefix, name)).second) {
    return Rejected({"W0404", where, "each tensor name once in a function",
                     absl::StrCat("\"", name, "\" again"), ""});
  }
  return absl::OkStatus();
}

absl::Status FunctionImporter::AddArg(const std::string& name, const sbp::TensorType& type,
                                      ArgKind kind, std::optional<IndexRange> declared,
                                      Scope* scope) {
  const ops::ValueId value = function_.AddValue(absl::StrCat(scope->prefix, name), type);
  function_.args.push_back({value, kind, std::move(declared)});
  return Define(name, value, FunctionWhere(scope->function), scope);
}

absl::Status FunctionImporter::AddInput(const std::string& name, const InputType& type) {
  return AddArg(name, type.type, ArgKind::kActivation, type.range, &scope_);
}

absl::Status FunctionImporter::AddParameter(const weir::proto::Parameter& parameter) {
  return AddParameter(parameter, &scope_);
}

absl::Status FunctionImporter::AddParameter(const weir::proto::Parameter& parameter, Scope* scope) {
  const std::string where =
      absl::StrCat(FunctionWhere(scope->function), ", parameter ", parameter.name());
  WEIR_ASSIGN_OR_RETURN(sbp::TensorType type, ParseTensorType(parameter.type(), dims_, where));
  if (!IsReal(type.dtype)) {
    return Rejected({"W0405", where, "a real element type (f32)", ToText(type), "f32[...]"});
  }
  type.dtype = DType::kF32;
  WEIR_RETURN_IF_ERROR(CheckInitializer(parameter.init(), where));
  WEIR_RETURN_IF_ERROR(AddArg(parameter.name(), type, ArgKind::kParameter, std::nullopt, scope));
  function_.parameters.push_back({absl::StrCat(scope->prefix, parameter.name()), parameter.init(),
                                  parameter.decay(), parameter.frozen(),
                                  static_cast<int>(function_.args.size()) - 1});
  return absl::OkStatus();
}

absl::Status FunctionImporter::AddWeightInput(const weir::proto::TensorDecl& input, int index,
                                              bool frozen) {
  const std::string where = absl::StrCat(FunctionWhere(graph_function_), ", input ", input.name());
  WEIR_ASSIGN_OR_RETURN(InputType type, ParseInputType(input.type(), dims_, where));
  WEIR_RETURN_IF_ERROR(AddArg(input.name(), type.type, ArgKind::kParameter, std::nullopt, &scope_));
  ParameterInfo parameter;
  parameter.name = input.name();
  parameter.frozen = frozen;
  parameter.arg = static_cast<int>(function_.args.size()) - 1;
  parameter.input = index;
  function_.parameters.push_back(std::move(parameter));
  return absl::OkStatus();
}

absl::Status FunctionImporter::AddNode(const weir::proto::Node& node, int index) {
  return AddNode(node, index, &scope_);
}

absl::Status FunctionImporter::AddNode(const weir::proto::Node& node, int index, Scope* scope) {
  return node.op() == "call" ? Inline(node, scope) : AddOp(node, index, scope);
}

absl::Status FunctionImporter::AddOp(const weir::proto::Node& node, int index, Scope* scope) {
  const std::string where = NodeWhere(scope->function, node, index);
  WEIR_ASSIGN_OR_RETURN(const ops::OpDef* def, ops::OpRegistry::FindForUser(node.op(), where));
  if (static_cast<int64_t>(function_.nodes.size()) >= kNodesMax) {
    return Rejected({"W0413", where,
                     absl::StrCat("at most ", kNodesMax,
                                  " nodes in a function, those of inlined "
                                  "calls counted"),
                     "one more", "call the functions from main"});
  }
  Node out;
  out.name = absl::StrCat(scope->prefix,
                          node.name().empty() ? absl::StrCat(node.op(), "_", index) : node.name());
  out.op = node.op();
  out.where = where;
  out.rng_key = KeyOf(out.name.data(), out.name.size());
  out.rng_key = MixKey(out.rng_key, KeyOf(graph_function_.data(), graph_function_.size()));
  WEIR_ASSIGN_OR_RETURN(out.attrs, ImportAttributes(node.attr(), where));
  // A forgotten comma makes two inputs one, so the names are looked up before the inputs are
  // counted.
  std::vector<sbp::TensorType> types;
  for (const std::string& input : node.input()) {
    WEIR_ASSIGN_OR_RETURN(ops::ValueId value, Lookup(input, where, *scope));
    out.inputs.push_back(value);
    types.push_back(function_.values[value].type);
  }
  int num_outputs = node.output().empty() ? 1 : node.output_size();
  WEIR_RETURN_IF_ERROR(
      ops::CheckSchema(def->schema, node.input_size(), num_outputs, &out.attrs, where));
  absl::StatusOr<std::vector<sbp::TensorType>> inferred = def->infer({out.attrs, types, dims_});
  if (!inferred.ok()) return At(where, inferred.status());
  for (int i = 0; i < num_outputs; ++i) {
    std::string output = node.output().empty() ? node.name() : node.output(i);
    if (inferred->at(i).num_elements() < 0 || inferred->at(i).num_elements() > (int64_t{1} << 46)) {
      return Rejected(
          {"W0406", where, "a result of fewer than 2^46 elements", ToText(inferred->at(i)), ""});
    }
    ops::ValueId value = function_.AddValue(absl::StrCat(scope->prefix, output), inferred->at(i));
    out.outputs.push_back(value);
    WEIR_RETURN_IF_ERROR(Define(output, value, where, scope));
    if (i > 0 && ops::KeepsOutputs(node.op()))
      function_.states[value] = function_.values[value].name;
  }
  if (out.op == kMovingAverageOp) WEIR_RETURN_IF_ERROR(MarkAverage(out));
  function_.nodes.push_back(std::move(out));
  return absl::OkStatus();
}

absl::Status FunctionImporter::MarkAverage(const Node& node) {
  const ops::ValueId average = node.inputs[1];
  const int arg = function_.ArgOf(average);
  for (ParameterInfo& parameter : function_.parameters) {
    if (parameter.arg != arg || arg < 0) continue;
    parameter.momentum = static_cast<float>(node.attrs.Real("momentum"));
    return absl::OkStatus();
  }
  return Rejected({"W0317", node.where, "a parameter as the average",
                   absl::StrCat("\"", function_.values[average].name, "\", which is none"),
                   "declare a parameter of the function with the type of the statistic"});
}

absl::Status FunctionImporter::CheckAverages() const {
  for (const ParameterInfo& parameter : function_.parameters) {
    if (parameter.momentum == 0) continue;
    const ops::ValueId average = function_.args[parameter.arg].value;
    std::vector<std::string> readers;
    for (const Node& node : function_.nodes) {
      for (const ops::ValueId input : node.inputs) {
        if (input == average) readers.push_back(absl::StrCat("\"", node.name, "\""));
      }
    }
    if (readers.size() == 1) continue;
    return Rejected(
        {"W0317", absl::StrCat(FunctionWhere(graph_function_), ", parameter ", parameter.name),
         "one reader of a moving average, the node moving_average", absl::StrJoin(readers, ", "),
         "give each moving_average a parameter of its own"});
  }
  return absl::OkStatus();
}

absl::Status FunctionImporter::Inline(const weir::proto::Node& node, Scope* scope) {
  const std::string call = node.name().empty() ? node.function() : node.name();
  const std::string where = absl::StrCat(FunctionWhere(scope->function), ", call ", call);
  WEIR_ASSIGN_OR_RETURN(const weir::proto::Function* called,
                        CalledFunction(functions_, node, scope->function, where));
  if (std::find(inlined_.begin(), inlined_.end(), called->name()) != inlined_.end()) {
    return Rejected({"W0419", where, "calls without recursion",
                     absl::StrCat(absl::StrJoin(inlined_, " calls "), " calls ", called->name()),
                     ""});
  }
  if (inlined_.size() > kCallDepthMax) {
    return Rejected({"W0419", where,
                     absl::StrCat("calls at most ", kCallDepthMax, " deep within each other"),
                     absl::StrJoin(inlined_, " calls "), ""});
  }
  if (!node.weights().empty()) {
    return Rejected({"W0420", where, "`weights` in calls of main only",
                     absl::StrCat("weights: \"", node.weights(), "\""),
                     "to read one parameter in several calls, declare it in this function and name "
                     "it in `input` or `shared` of the calls"});
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t rounds, RoundsOf(node, where));
  std::vector<ops::ValueId> carried, shared;
  for (const std::string& input : node.input()) {
    WEIR_ASSIGN_OR_RETURN(carried.emplace_back(), Lookup(input, where, *scope));
  }
  for (const std::string& input : node.shared()) {
    WEIR_ASSIGN_OR_RETURN(shared.emplace_back(), Lookup(input, where, *scope));
  }
  WEIR_RETURN_IF_ERROR(CheckRounds(node, rounds, *called, where));
  inlined_.push_back(called->name());
  for (int64_t round = 0; round < rounds; ++round) {
    std::vector<ops::ValueId> inputs = carried;
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    WEIR_ASSIGN_OR_RETURN(
        carried, AddRound(*called, absl::StrCat(scope->prefix, RoundName(call, rounds, round), "."),
                          inputs, where));
  }
  inlined_.pop_back();
  const std::vector<std::string> outputs = OutputsOf(node);
  for (size_t r = 0; r < outputs.size(); ++r) {
    // The result of the call has the name that the caller gives it, as the result of an op has.
    if (function_.ProducerOf(carried[r]) >= 0)
      function_.values[carried[r]].name = absl::StrCat(scope->prefix, outputs[r]);
    WEIR_RETURN_IF_ERROR(Define(outputs[r], carried[r], where, scope));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ops::ValueId>> FunctionImporter::AddRound(
    const weir::proto::Function& called, const std::string& prefix,
    const std::vector<ops::ValueId>& inputs, const std::string& where) {
  Scope scope{called.name(), prefix};
  for (int i = 0; i < called.input_size(); ++i) {
    const proto::TensorDecl& input = called.input(i);
    const std::string input_where =
        absl::StrCat(FunctionWhere(called.name()), ", input ", input.name());
    WEIR_ASSIGN_OR_RETURN(InputType want, ParseInputType(input.type(), dims_, input_where));
    const Value& got = function_.values[inputs[i]];
    if (want.type.shape() != got.type.shape() || want.type.dtype != got.type.dtype) {
      return Rejected(
          {"W0426", absl::StrCat(where, ", input ", input.name()), ToText(want.type),
           ToText(got.type),
           absl::StrCat("make both types agree; the call is given \"", got.name, "\"")});
    }
    WEIR_RETURN_IF_ERROR(Define(input.name(), inputs[i], FunctionWhere(called.name()), &scope));
  }
  for (const weir::proto::Parameter& parameter : called.parameter())
    WEIR_RETURN_IF_ERROR(AddParameter(parameter, &scope));
  for (int i = 0; i < called.node_size(); ++i)
    WEIR_RETURN_IF_ERROR(AddNode(called.node(i), i, &scope));
  std::vector<ops::ValueId> results;
  for (const std::string& output : called.output()) {
    WEIR_ASSIGN_OR_RETURN(
        results.emplace_back(),
        Lookup(output, absl::StrCat(FunctionWhere(called.name()), ", output ", output), scope));
  }
  return results;
}

absl::StatusOr<ops::ValueId> FunctionImporter::Lookup(const std::string& name,
                                                      const std::string& where) const {
  return Lookup(name, where, scope_);
}

absl::StatusOr<ops::ValueId> FunctionImporter::Lookup(const std::string& name,
                                                      const std::string& where,
                                                      const Scope& scope) const {
  auto it = scope.names.find(name);
  if (it != scope.names.end()) return it->second;
  std::vector<std::string> known = NamesOf(scope.names);
  if (&scope == &scope_) known.insert(known.end(), suggested_.begin(), suggested_.end());
  return UnknownTensor(name, known, where, "a tensor defined before this point",
                       "tensors must be defined above their use; a graph has no cycles (loops are "
                       "delays, which parameters have by nature)");
}

absl::Status FunctionImporter::Keep(const std::vector<std::string>& names, Extent extent,
                                    const std::string& where) {
  std::map<std::string, ops::ValueId> values;
  for (size_t v = 0; v < function_.values.size(); ++v)
    values.emplace(function_.values[v].name, static_cast<ops::ValueId>(v));
  function_.keep.emplace();
  for (const std::string& name : names) {
    auto it = values.find(name);
    if (it != values.end()) {
      function_.keep->push_back(it->second);
    } else if (extent == Extent::kWhole) {
      return UnknownTensorToKeep(name, NamesOf(values), where);
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
