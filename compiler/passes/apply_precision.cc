#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/passes/infer_types.h"
#include "compiler/passes/passes.h"
#include "runtime/base/status.h"

namespace weir::compiler {

namespace {

// A port of a model function: the function, and its argument or result.
using Port = std::pair<int, int>;

// The ports of model functions that stay in f32.
struct WidePorts {
  std::set<Port> args, results;
};

bool MakesIntegers(const Node& node) { return node.op == "cast" && node.attrs.Str("to") == "i32"; }

// Returns the type of numbers that are not in f32. A job in f32 has such numbers by its rules
// alone.
DType NarrowType(const PassContext& context) {
  return IsHalf(context.precision) ? context.precision : DType::kBF16;
}

bool IsNarrowCast(const Node& node, DType narrow) {
  return node.op == "cast" && node.attrs.Str("to") == Name(narrow);
}

// Returns whether the node computes in f32, by a rule or because the job does.
bool IsWide(const PassContext& context, const Node& node) {
  return node.precision.value_or(context.precision) == DType::kF32;
}

// Returns whether the results of a node have elements of its operands, unchanged.
bool MovesElements(const Node& node) {
  if (node.op == "cast") return node.attrs.Str("to") == "f32";
  const ops::OpDef* def = ops::OpRegistry::Find(node.op);
  return node.op == "expand" || (def != nullptr && def->schema.moves_elements);
}

// Real numbers that a cast makes integers of, perhaps after their elements were moved. bf16 holds
// whole numbers up to 256 alone, f16 up to 2048, so these values stay in f32.
class ExactValues {
 public:
  // `results`: results of the function that must be exact, because of what their readers do.
  ExactValues(const Function& function, const std::set<int>& results) {
    for (const int result : results) values_.insert(function.results[result].value);
    for (auto node = function.nodes.rbegin(); node != function.nodes.rend(); ++node) {
      if (!IsOnTheWay(*node)) continue;
      for (const ops::ValueId input : node->inputs) {
        if (input >= 0 && function.values[input].type.dtype == DType::kF32) values_.insert(input);
      }
    }
  }

  bool Has(ops::ValueId value) const { return values_.count(value) > 0; }
  // Returns whether the node makes integers, or moves elements of which integers are made.
  bool IsOnTheWay(const Node& node) const {
    return MakesIntegers(node) ||
           (MovesElements(node) &&
            std::any_of(node.outputs.begin(), node.outputs.end(),
                        [this](ops::ValueId output) { return Has(output); }));
  }

 private:
  std::set<ops::ValueId> values_;
};

// The values of a function at the borders between f32 and the narrow type.
struct Borders {
  std::set<ops::ValueId> read_wide;    // by a node in f32
  std::set<ops::ValueId> made_wide;    // by a node in f32, and narrow if the node were narrow
  std::set<ops::ValueId> always_wide;  // f32 in either precision of the node: a loss of each row
  std::set<ops::ValueId> made_narrow;  // arguments and results that were f32 in the user's graph
};

// Returns the types of the node's results if the node computed in the narrow type.
absl::StatusOr<std::vector<sbp::TensorType>> NarrowTypes(const PassContext& context,
                                                         const Function& function,
                                                         const Node& node) {
  const ops::OpDef* def = ops::OpRegistry::Find(node.op);
  if (def == nullptr) return absl::InternalError(absl::StrCat("no op \"", node.op, "\""));
  const DType narrow = NarrowType(context);
  std::vector<sbp::TensorType> types;
  bool has_real = false;
  for (const ops::ValueId input : node.inputs) {
    if (input < 0) continue;
    types.push_back(function.values[input].type);
    if (!IsReal(types.back().dtype)) continue;
    types.back().dtype = narrow;
    has_real = true;
  }
  Attributes attrs = node.attrs;
  for (const ops::AttrSchema& attr : def->schema.attrs) {
    if (!has_real && attr.name == "out_dtype" && attrs.Str("out_dtype").empty())
      attrs.Set("out_dtype", std::string(Name(narrow)));
  }
  return def->infer({attrs, types, context.dims});
}

Borders FindBorders(const PassContext& context, const Function& function) {
  Borders borders;
  for (const Node& node : function.nodes) {
    const bool is_wide = IsWide(context, node);
    for (const ops::ValueId input : node.inputs) {
      if (is_wide && input >= 0) borders.read_wide.insert(input);
    }
    const auto types = NarrowTypes(context, function, node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] < 0) continue;
      // An op that refuses narrow operands makes f32 of whatever it gets.
      const DType type = types.ok() ? types->at(i).dtype : DType::kF32;
      if (type == DType::kF32) borders.always_wide.insert(node.outputs[i]);
      const bool gives_f32 =
          node.precision.has_value() || function.values[node.outputs[i]].type.dtype == DType::kF32;
      if (is_wide && node.op != "cast" && type == NarrowType(context) && gives_f32)
        borders.made_wide.insert(node.outputs[i]);
    }
  }
  return borders;
}

// Returns the results of model functions that must be exact, since calls make integers of them.
// Adds the arguments that must be exact to `args`.
std::map<int, std::set<int>> FindExactPorts(const Module& module, std::set<Port>* args) {
  const Model& model = module.model;
  std::map<int, std::set<int>> results;
  for (bool is_new = true; is_new;) {
    is_new = false;
    for (size_t f = 0; f < model.functions.size(); ++f) {
      const Function& function = module.functions[model.functions[f].forward];
      const ExactValues exact(function, results[static_cast<int>(f)]);
      for (size_t a = 0; a < function.args.size(); ++a) {
        const ops::ValueId value = function.args[a].value;
        if (exact.Has(value) && function.values[value].type.dtype == DType::kF32)
          args->emplace(static_cast<int>(f), static_cast<int>(a));
      }
    }
    for (const ModelCall& call : model.calls) {
      const Function& function = module.functions[model.functions[call.model_function].forward];
      size_t next = 0;
      for (size_t a = 0; a < function.args.size(); ++a) {
        if (function.args[a].kind != ArgKind::kActivation) continue;
        const ModelValue& value = model.values[call.args[next++]];
        if (value.call < 0 || args->count({call.model_function, static_cast<int>(a)}) == 0)
          continue;
        const int maker = model.calls[value.call].model_function;
        is_new = results[maker].insert(value.result).second || is_new;
      }
    }
  }
  return results;
}

Port MakerOf(const Model& model, const ModelValue& value) {
  return {model.calls[value.call].model_function, value.result};
}

// Calls `visit` with each activation that a call reads, and with the argument that it enters.
template <typename Visit>
void ForEachActivation(const Module& module, const Visit& visit) {
  const Model& model = module.model;
  for (const ModelCall& call : model.calls) {
    const Function& function = module.functions[model.functions[call.model_function].forward];
    size_t next = 0;
    for (size_t a = 0; a < function.args.size(); ++a) {
      if (function.args[a].kind != ArgKind::kActivation) continue;
      visit(call.args[next++], Port(call.model_function, static_cast<int>(a)));
    }
  }
}

// Returns the results of model functions that calls read.
std::set<Port> ReadResults(const Module& module) {
  std::set<Port> read;
  ForEachActivation(module, [&](int v, const Port&) {
    const ModelValue& value = module.model.values[v];
    if (value.call >= 0) read.insert(MakerOf(module.model, value));
  });
  return read;
}

// Returns the values of the model that something wants in f32, if they are made in f32: a node in
// f32 of a call, or whoever gets the results of the model.
std::set<int> WantedWide(const Module& module, const std::vector<Borders>& borders) {
  const Model& model = module.model;
  std::set<int> wanted, read;
  ForEachActivation(module, [&](int value, const Port& arg) {
    const Function& function = module.functions[model.functions[arg.first].forward];
    read.insert(value);
    if (borders[arg.first].read_wide.count(function.args[arg.second].value) > 0)
      wanted.insert(value);
  });
  for (const auto& [name, value] : model.fetched) wanted.insert(value);
  if (model.logits >= 0) wanted.insert(model.logits);
  for (size_t v = 0; v < model.values.size(); ++v) {
    if (read.count(static_cast<int>(v)) == 0) wanted.insert(static_cast<int>(v));
  }
  return wanted;
}

// Adds the ports that are in f32 because of the nodes of their own function, or of the nodes that
// read a result. A weight that a node reads in f32 arrives in f32. A tensor travels in f32 if it is
// made in f32 and something wants it in f32; else it travels in the narrow type, which has half the
// bytes.
void AddPortsOfNodes(const Module& module, const std::vector<Borders>& borders, WidePorts* wide) {
  const Model& model = module.model;
  const std::set<int> wanted = WantedWide(module, borders);
  for (size_t f = 0; f < model.functions.size(); ++f) {
    const Function& function = module.functions[model.functions[f].forward];
    for (size_t a = 0; a < function.args.size(); ++a) {
      if (function.args[a].kind == ArgKind::kParameter &&
          borders[f].read_wide.count(function.args[a].value) > 0)
        wide->args.emplace(static_cast<int>(f), static_cast<int>(a));
    }
    for (size_t r = 0; r < function.results.size(); ++r) {
      const ops::ValueId value = function.results[r].value;
      const sbp::TensorType& type = function.values[value].type;
      // Losses and metrics are reported in f32.
      if (IsReal(type.dtype) && (type.dims.empty() || borders[f].always_wide.count(value) > 0))
        wide->results.emplace(static_cast<int>(f), static_cast<int>(r));
    }
  }
  for (const int v : wanted) {
    const ModelValue& value = model.values[v];
    if (value.call < 0) continue;
    const Port maker = MakerOf(model, value);
    const Function& function = module.functions[model.functions[maker.first].forward];
    if (borders[maker.first].made_wide.count(function.results[maker.second].value) > 0)
      wide->results.insert(maker);
  }
}

// Data arrives in f32. All calls of a function have the types of the function. So if one call of a
// function reads data and another call reads the result of a call, that result stays in f32, too,
// and so do all its other readers. `wide`: ports that are in f32 anyway.
WidePorts WithOtherCalls(const Module& module, WidePorts wide) {
  const Model& model = module.model;
  for (size_t before = 1, after = 0; before != after;) {
    before = wide.args.size() + wide.results.size();
    ForEachActivation(module, [&](int v, const Port& arg) {
      const ModelValue& value = model.values[v];
      const bool is_data = value.call < 0;
      if (is_data || wide.results.count(MakerOf(model, value)) > 0) wide.args.insert(arg);
      if (!is_data && wide.args.count(arg) > 0) wide.results.insert(MakerOf(model, value));
    });
    after = wide.args.size() + wide.results.size();
  }
  return wide;
}

// Returns whether some node reads the value, and every reader casts the value to the narrow type.
// Such a value needs no other cast.
bool OnlyCastsRead(const Function& function, ops::ValueId value, DType narrow) {
  bool read = false;
  for (const Node& node : function.nodes) {
    for (ops::ValueId input : node.inputs) {
      if (input != value) continue;
      if (!IsNarrowCast(node, narrow)) return false;
      read = true;
    }
  }
  return read;
}

// A narrow op that makes real numbers of integers or masks makes narrow numbers, too, unless its
// attribute names the type.
void MakeNarrowNumbers(const PassContext& context, Function* function) {
  for (Node& node : function->nodes) {
    if (IsWide(context, node)) continue;
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    const auto is_real = [function](ops::ValueId input) {
      return input >= 0 && IsReal(function->values[input].type.dtype);
    };
    if (def == nullptr || std::any_of(node.inputs.begin(), node.inputs.end(), is_real)) continue;
    for (const ops::AttrSchema& attr : def->schema.attrs) {
      if (attr.name == "out_dtype" && node.attrs.Str("out_dtype").empty())
        node.attrs.Set("out_dtype", std::string(Name(NarrowType(context))));
    }
  }
}

// Returns a node that casts `value`, and makes the value that it gives.
Node CastNode(ops::ValueId value, DType to, Function* function) {
  const std::string type(Name(to));
  sbp::TensorType cast_type = function->values[value].type;
  cast_type.dtype = to;
  Node node;
  node.name = absl::StrCat(function->values[value].name, ".", type);
  node.op = "cast";
  node.inputs = {value};
  node.outputs = {function->AddValue(node.name, cast_type)};
  node.attrs.Set("to", type);
  node.where = absl::StrCat("function ", function->name, ", node ", node.name);
  return node;
}

// Appends such a node, and returns the value that it gives.
ops::ValueId AddCast(ops::ValueId value, DType to, Function* function) {
  function->nodes.push_back(CastNode(value, to, function));
  return function->nodes.back().outputs[0];
}

// Returns whether the value is a result of the function, and no node reads it.
bool IsOnlyResult(const Function& function, ops::ValueId value) {
  const auto reads = [value](const Node& node) {
    return std::count(node.inputs.begin(), node.inputs.end(), value) > 0;
  };
  return std::none_of(function.nodes.begin(), function.nodes.end(), reads) &&
         std::any_of(function.results.begin(), function.results.end(),
                     [value](const Result& result) { return result.value == value; });
}

// Returns whether some node reads the value, and every reader is a step_mean, which computes in
// f32.
bool OnlyStepMeansRead(const Function& function, ops::ValueId value) {
  bool read = false;
  for (const Node& node : function.nodes) {
    if (std::count(node.inputs.begin(), node.inputs.end(), value) == 0) continue;
    if (node.op != "step_mean") return false;
    read = true;
  }
  return read;
}

// Returns whether a node sums or averages what is reported, or what counts over a step. Such a sum
// keeps the digits of its f32 arithmetic.
bool IsWideSum(const Function& function, const Node& node) {
  if (node.op != "reduce_sum" && node.op != "reduce_mean") return false;
  if (!node.attrs.Str("out_dtype").empty()) return false;
  const ops::ValueId sum = node.outputs[0];
  return OnlyStepMeansRead(function, sum) ||
         (function.values[sum].type.dims.empty() && IsOnlyResult(function, sum));
}

// Infers the types of a function's values, and inserts casts where the operands of a node do not
// match: all real operands of a node in f32 are f32. A narrow node gets narrow operands in the
// place of those that nodes in f32 made. Else a cast to f32 makes f32 of a mask or of integers, and
// if other real operands are narrow, that becomes narrow, too.
class TypeMatching {
 public:
  TypeMatching(const PassContext& context, Borders borders, const ExactValues& exact,
               Function* function)
      : context_(context),
        borders_(std::move(borders)),
        exact_(exact),
        narrow_(NarrowType(context)),
        function_(*function) {}

  absl::Status Run() {
    std::set<ops::ValueId> wide_sums;
    for (const Node& node : function_.nodes) {
      if (IsWideSum(function_, node)) wide_sums.insert(node.outputs[0]);
    }
    std::vector<Node> given = std::move(function_.nodes);
    function_.nodes.clear();
    for (Node& node : given) {
      const bool is_sum = !node.outputs.empty() && wide_sums.count(node.outputs[0]) > 0;
      WEIR_RETURN_IF_ERROR(IsWide(context_, node) ? MatchWide(&node) : MatchNarrow(is_sum, &node));
      function_.nodes.push_back(std::move(node));
    }
    return absl::OkStatus();
  }

 private:
  // In a job in f32, numbers that the user's graph itself has in bf16 stay as they are, unless a
  // rule speaks of their reader.
  absl::Status MatchWide(Node* node) {
    for (ops::ValueId& input : node->inputs) {
      if (node->op == "cast" || input < 0 || function_.values[input].type.dtype != narrow_)
        continue;
      if (node->precision.has_value() || borders_.made_narrow.count(input) > 0)
        input = Cast(input, DType::kF32);
    }
    return Infer(node);
  }

  // `is_sum`: IsWideSum of the node.
  absl::Status MatchNarrow(bool is_sum, Node* node) {
    const bool takes_any =
        is_sum || node->op == "cast" || node->op == "step_mean" || exact_.IsOnTheWay(*node);
    if (!takes_any) CastBorders(node);
    if (is_sum && HasInput(*node, narrow_)) node->attrs.Set("out_dtype", std::string("f32"));
    absl::Status status = Infer(node);
    if (!status.ok() && node->op == "step_mean") {
      CastInputs(narrow_, DType::kF32, node);
      status = Infer(node);
    } else if (!status.ok() && HasInput(*node, narrow_) && HasInput(*node, DType::kF32)) {
      CastInputs(DType::kF32, narrow_, node);
      status = Infer(node);
    }
    if (status.ok()) {
      borders_.made_narrow.insert(node->outputs.begin(), node->outputs.end());
      return status;
    }
    if (!node->precision.has_value()) return status;
    return Rejected({"W0862", node->where,
                     absl::StrCat("an operation that computes in ", Name(narrow_)),
                     absl::StrCat("op \"", node->op, "\", which does not: ", status.message()),
                     "a rule with precision: F32 for it, in front of the rule that it fits"});
  }

  // Casts the operands that nodes in f32 made.
  void CastBorders(Node* node) {
    for (ops::ValueId& input : node->inputs) {
      if (borders_.made_wide.count(input) > 0 && function_.values[input].type.dtype == DType::kF32)
        input = Cast(input, narrow_);
    }
  }

  absl::Status Infer(Node* node) {
    Function of_node;
    of_node.values = std::move(function_.values);
    of_node.nodes.push_back(std::move(*node));
    const absl::Status status = InferTypes(context_, &of_node);
    *node = std::move(of_node.nodes.back());
    function_.values = std::move(of_node.values);
    return status;
  }

  bool HasInput(const Node& node, DType dtype) const {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](ops::ValueId input) {
      return input >= 0 && function_.values[input].type.dtype == dtype;
    });
  }

  void CastInputs(DType from, DType to, Node* node) {
    for (ops::ValueId& input : node->inputs) {
      if (input >= 0 && function_.values[input].type.dtype == from) input = Cast(input, to);
    }
  }

  // Returns the value in another type. All readers share the cast.
  ops::ValueId Cast(ops::ValueId value, DType to) {
    const auto [found, is_new] = casts_.emplace(std::pair(value, to), ops::ValueId());
    if (is_new) found->second = AddCast(value, to, &function_);
    return found->second;
  }

  const PassContext& context_;
  Borders borders_;
  const ExactValues& exact_;
  const DType narrow_;
  Function& function_;
  std::map<std::pair<ops::ValueId, DType>, ops::ValueId> casts_;  // inserted
};

// Gives the arguments of a function their types. Returns the casts of arguments in f32 that narrow
// nodes read: such a value is cast where it enters. `wide`: the arguments that are in f32.
std::vector<Node> CastArguments(const PassContext& context, const ExactValues& exact,
                                const std::set<int>& wide, Borders* borders, Function* function) {
  const DType narrow = NarrowType(context);
  std::vector<Node> casts;
  for (size_t a = 0; a < function->args.size(); ++a) {
    const ops::ValueId value = function->args[a].value;
    if (function->values[value].type.dtype != DType::kF32) continue;
    if (wide.count(static_cast<int>(a)) == 0) {
      function->values[value].type.dtype = narrow;
      borders->made_narrow.insert(value);
      continue;
    }
    if (OnlyCastsRead(*function, value, narrow)) continue;
    const bool keeps_casts = exact.Has(value) || borders->read_wide.count(value) > 0;
    const auto stays = [&](const Node& node) {
      return std::count(node.inputs.begin(), node.inputs.end(), value) == 0 ||
             IsWide(context, node) || (exact.Has(value) && exact.IsOnTheWay(node)) ||
             (keeps_casts && IsNarrowCast(node, narrow));
    };
    if (std::all_of(function->nodes.begin(), function->nodes.end(), stays)) continue;
    Node cast = CastNode(value, narrow, function);
    for (Node& node : function->nodes) {
      if (stays(node)) continue;
      for (ops::ValueId& input : node.inputs) {
        if (input == value) input = cast.outputs[0];
      }
    }
    casts.push_back(std::move(cast));
  }
  return casts;
}

// Gives the results of function `f` the types of their ports.
void CastResults(const WidePorts& wide, const std::set<Port>& read, DType narrow, int f,
                 Function* function) {
  for (size_t r = 0; r < function->results.size(); ++r) {
    Result& result = function->results[r];
    const DType type = function->values[result.value].type.dtype;
    const Port port(f, static_cast<int>(r));
    const bool in_f32 = wide.results.count(port) > 0;
    if (in_f32 && type == narrow) {
      result.value = AddCast(result.value, DType::kF32, function);
    } else if (!in_f32 && type == DType::kF32 && read.count(port) > 0) {
      result.value = AddCast(result.value, narrow, function);
    }
  }
}

// Returns whether some node of the model is narrow.
bool HasNarrowNodes(const PassContext& context, const Module& module) {
  if (IsHalf(context.precision)) return true;
  for (const ModelFunction& function : module.model.functions) {
    for (const Node& node : module.functions[function.forward].nodes) {
      if (!IsWide(context, node)) return true;
    }
  }
  return false;
}

}  // namespace

absl::Status ApplyPrecision(const PassContext& context, Module* module) {
  if (!HasNarrowNodes(context, *module)) return absl::OkStatus();
  const Model& model = module->model;
  std::vector<Borders> borders;
  for (const ModelFunction& function : model.functions)
    borders.push_back(FindBorders(context, module->functions[function.forward]));
  WidePorts ports;
  std::map<int, std::set<int>> exact_results = FindExactPorts(*module, &ports.args);
  AddPortsOfNodes(*module, borders, &ports);
  const WidePorts wide = WithOtherCalls(*module, std::move(ports));
  const std::set<Port> read = ReadResults(*module);
  for (size_t f = 0; f < model.functions.size(); ++f) {
    Function& function = module->functions[model.functions[f].forward];
    const ExactValues exact(function, exact_results[static_cast<int>(f)]);
    std::set<int> wide_args;
    for (const auto& [of, arg] : wide.args) {
      if (of == static_cast<int>(f)) wide_args.insert(arg);
    }
    const std::vector<Node> casts =
        CastArguments(context, exact, wide_args, &borders[f], &function);
    function.nodes.insert(function.nodes.begin(), casts.begin(), casts.end());
    MakeNarrowNumbers(context, &function);
    WEIR_RETURN_IF_ERROR(TypeMatching(context, std::move(borders[f]), exact, &function).Run());
    CastResults(wide, read, NarrowType(context), static_cast<int>(f), &function);
  }
  for (ModelCall& call : module->model.calls) {
    const Function& function = module->functions[model.functions[call.model_function].forward];
    for (size_t r = 0; r < call.results.size(); ++r) {
      module->model.values[call.results[r]].type = function.values[function.results[r].value].type;
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
