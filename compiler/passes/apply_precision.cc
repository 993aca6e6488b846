#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/passes/infer_types.h"
#include "compiler/passes/passes.h"
#include "runtime/base/status.h"

namespace weir::compiler {

namespace {

// The ports of model functions that stay in f32: the function, and its argument or result.
struct WidePorts {
  std::set<std::pair<int, int>> args, results;
};

bool MakesIntegers(const Node& node) { return node.op == "cast" && node.attrs.Str("to") == "i32"; }

// Returns whether the node casts to `half`, the type of the job's precision.
bool IsCastTo(const Node& node, DType half) {
  return node.op == "cast" && node.attrs.Str("to") == Name(half);
}

// Returns whether the results of a node have elements of its operands, unchanged.
bool MovesElements(const Node& node) {
  if (node.op == "cast") return node.attrs.Str("to") == "f32";
  const ops::OpDef* def = ops::OpRegistry::Find(node.op);
  return node.op == "expand" || (def != nullptr && def->schema.moves_elements);
}

// Real numbers that a cast makes integers of, perhaps after their elements were moved. bf16 holds
// whole numbers up to 256 alone, and f16 up to 2,048, so these values stay in f32.
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

// Returns the results of model functions that must be exact, since calls make integers of them.
// Adds the arguments that must be exact to `args`.
std::map<int, std::set<int>> FindExactPorts(const Module& module,
                                            std::set<std::pair<int, int>>* args) {
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

// Data arrives in f32. All calls of a function have the types of the function. So if one call of a
// function reads data and another call reads the result of a call, that result stays in f32, too,
// and so do all its other readers. `exact`: arguments that stay in f32 anyway.
WidePorts FindWidePorts(const Module& module, std::set<std::pair<int, int>> exact) {
  const Model& model = module.model;
  const auto maker = [&](const ModelValue& value) {
    return std::pair<int, int>(model.calls[value.call].model_function, value.result);
  };
  WidePorts wide;
  wide.args = std::move(exact);
  for (size_t before = 1, after = 0; before != after;) {
    before = wide.args.size() + wide.results.size();
    for (const ModelCall& call : model.calls) {
      const Function& function = module.functions[model.functions[call.model_function].forward];
      size_t next = 0;
      for (size_t a = 0; a < function.args.size(); ++a) {
        if (function.args[a].kind != ArgKind::kActivation) continue;
        const ModelValue& value = model.values[call.args[next++]];
        const std::pair<int, int> arg = {call.model_function, static_cast<int>(a)};
        const bool is_data = value.call < 0;
        if (is_data || wide.results.count(maker(value)) > 0) wide.args.insert(arg);
        if (!is_data && wide.args.count(arg) > 0) wide.results.insert(maker(value));
      }
    }
    after = wide.args.size() + wide.results.size();
  }
  return wide;
}

// Returns whether some node reads the value, and every reader casts the value to `half`. Such a
// value needs no other cast.
bool OnlyCastsRead(const Function& function, ops::ValueId value, DType half) {
  bool read = false;
  for (const Node& node : function.nodes) {
    for (ops::ValueId input : node.inputs) {
      if (input != value) continue;
      if (!IsCastTo(node, half)) return false;
      read = true;
    }
  }
  return read;
}

// An op that makes real numbers of integers or masks makes `half`, too, unless its attribute
// names the type.
void MakeNarrowNumbers(DType half, Function* function) {
  for (Node& node : function->nodes) {
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    const auto is_real = [function](ops::ValueId input) {
      return input >= 0 && IsReal(function->values[input].type.dtype);
    };
    if (def == nullptr || std::any_of(node.inputs.begin(), node.inputs.end(), is_real)) continue;
    for (const ops::AttrSchema& attr : def->schema.attrs) {
      if (attr.name == "out_dtype" && node.attrs.Str("out_dtype").empty())
        node.attrs.Set("out_dtype", std::string(Name(half)));
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

// Infers the types of a function's values, and inserts casts where operands of a node do not match:
// a cast to f32 makes f32 of a mask or of integers, and other real operands have the precision of
// the job.
class TypeMatching {
 public:
  TypeMatching(const PassContext& context, Function* function)
      : context_(context), half_(context.precision), function_(*function) {}

  absl::Status Run() {
    std::set<ops::ValueId> wide_sums;
    for (const Node& node : function_.nodes) {
      if (IsWideSum(function_, node)) wide_sums.insert(node.outputs[0]);
    }
    std::vector<Node> given = std::move(function_.nodes);
    function_.nodes.clear();
    for (Node& node : given) {
      if (!node.outputs.empty() && wide_sums.count(node.outputs[0]) > 0 && HasInput(node, half_)) {
        node.attrs.Set("out_dtype", std::string("f32"));
      }
      absl::Status status = Infer(&node);
      if (!status.ok() && node.op == "step_mean") {
        CastInputs(half_, DType::kF32, &node);
        status = Infer(&node);
      } else if (!status.ok() && HasInput(node, half_) && HasInput(node, DType::kF32)) {
        CastInputs(DType::kF32, half_, &node);
        status = Infer(&node);
      }
      WEIR_RETURN_IF_ERROR(status);
      function_.nodes.push_back(std::move(node));
    }
    return absl::OkStatus();
  }

 private:
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
      if (input < 0 || function_.values[input].type.dtype != from) continue;
      const auto [found, is_new] = casts_.emplace(std::pair(input, to), ops::ValueId());
      if (is_new) found->second = AddCast(input, to, &function_);
      input = found->second;
    }
  }

  const PassContext& context_;
  const DType half_;
  Function& function_;
  std::map<std::pair<ops::ValueId, DType>, ops::ValueId> casts_;  // inserted
};

}  // namespace

absl::Status ApplyPrecision(const PassContext& context, Module* module) {
  const DType half = context.precision;
  if (!IsHalf(half)) return absl::OkStatus();
  std::set<std::pair<int, int>> exact_args;
  std::map<int, std::set<int>> exact_results = FindExactPorts(*module, &exact_args);
  const WidePorts wide = FindWidePorts(*module, std::move(exact_args));
  for (size_t f = 0; f < module->model.functions.size(); ++f) {
    Function& function = module->functions[module->model.functions[f].forward];
    const ExactValues exact(function, exact_results[static_cast<int>(f)]);
    std::vector<Node> casts;
    for (size_t a = 0; a < function.args.size(); ++a) {
      Arg& arg = function.args[a];
      if (function.values[arg.value].type.dtype != DType::kF32) continue;
      if (wide.args.count({static_cast<int>(f), static_cast<int>(a)}) == 0) {
        function.values[arg.value].type.dtype = half;
        continue;
      }
      // The value is cast where it enters.
      if (OnlyCastsRead(function, arg.value, half)) continue;
      const auto stays = [&, value = arg.value](const Node& node) {
        return std::count(node.inputs.begin(), node.inputs.end(), value) == 0 ||
               (exact.Has(value) && (exact.IsOnTheWay(node) || IsCastTo(node, half)));
      };
      if (exact.Has(arg.value) && std::all_of(function.nodes.begin(), function.nodes.end(), stays))
        continue;
      Node cast = CastNode(arg.value, half, &function);
      for (Node& node : function.nodes) {
        if (stays(node)) continue;
        for (ops::ValueId& input : node.inputs) {
          if (input == arg.value) input = cast.outputs[0];
        }
      }
      casts.push_back(std::move(cast));
    }
    function.nodes.insert(function.nodes.begin(), casts.begin(), casts.end());
    MakeNarrowNumbers(half, &function);
    WEIR_RETURN_IF_ERROR(TypeMatching(context, &function).Run());
    for (size_t r = 0; r < function.results.size(); ++r) {
      Result& result = function.results[r];
      const Value& value = function.values[result.value];
      // Losses and metrics are reported in f32.
      const bool in_f32 = value.type.dims.empty() ||
                          wide.results.count({static_cast<int>(f), static_cast<int>(r)}) > 0;
      if (in_f32 && value.type.dtype == half) {
        result.value = AddCast(result.value, DType::kF32, &function);
      }
    }
  }
  for (ModelCall& call : module->model.calls) {
    const Function& function =
        module->functions[module->model.functions[call.model_function].forward];
    for (size_t r = 0; r < call.results.size(); ++r) {
      module->model.values[call.results[r]].type = function.values[function.results[r].value].type;
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
