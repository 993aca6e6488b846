#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/passes/infer_types.h"
#include "compiler/passes/passes.h"

namespace weir::compiler {

namespace {

// The ports of model functions that stay in f32: the function, and its argument or result.
struct WidePorts {
  std::set<std::pair<int, int>> args, results;
};

// Data arrives in f32. All calls of a function have the types of the function. So if one call of a
// function reads data and another call reads the result of a call, that result stays in f32, too,
// and so do all its other readers.
WidePorts FindWidePorts(const Module& module) {
  const Model& model = module.model;
  const auto maker = [&](const ModelValue& value) {
    return std::pair<int, int>(model.calls[value.call].model_function, value.result);
  };
  WidePorts wide;
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

// Returns whether some node reads the value, and every reader casts the value to bf16. Such a value
// needs no other cast.
bool OnlyCastsRead(const Function& function, ops::ValueId value) {
  bool read = false;
  for (const Node& node : function.nodes) {
    for (ops::ValueId input : node.inputs) {
      if (input != value) continue;
      if (node.op != "cast" || node.attrs.Str("to") != "bf16") return false;
      read = true;
    }
  }
  return read;
}

// An op that makes real numbers of integers or masks makes bf16, too, unless its attribute names
// the type.
void MakeNarrowNumbers(Function* function) {
  for (Node& node : function->nodes) {
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    const auto is_real = [function](ops::ValueId input) {
      return input >= 0 && IsReal(function->values[input].type.dtype);
    };
    if (def == nullptr || std::any_of(node.inputs.begin(), node.inputs.end(), is_real)) continue;
    for (const ops::AttrSchema& attr : def->schema.attrs) {
      if (attr.name == "out_dtype" && node.attrs.Str("out_dtype").empty())
        node.attrs.Set("out_dtype", std::string("bf16"));
    }
  }
}

}  // namespace

absl::Status ApplyPrecision(const PassContext& context, Module* module) {
  if (context.precision != DType::kBF16) return absl::OkStatus();
  const WidePorts wide = FindWidePorts(*module);
  for (size_t f = 0; f < module->model.functions.size(); ++f) {
    Function& function = module->functions[module->model.functions[f].forward];
    std::vector<Node> casts;
    for (size_t a = 0; a < function.args.size(); ++a) {
      Arg& arg = function.args[a];
      sbp::TensorType type = function.values[arg.value].type;
      if (type.dtype != DType::kF32) continue;
      if (wide.args.count({static_cast<int>(f), static_cast<int>(a)}) == 0) {
        function.values[arg.value].type.dtype = DType::kBF16;
        continue;
      }
      // The value is cast where it enters.
      if (OnlyCastsRead(function, arg.value)) continue;
      type.dtype = DType::kBF16;
      ops::ValueId cast =
          function.AddValue(absl::StrCat(function.values[arg.value].name, ".bf16"), type);
      for (Node& node : function.nodes) {
        for (ops::ValueId& input : node.inputs) {
          if (input == arg.value) input = cast;
        }
      }
      Node node;
      node.name = function.values[cast].name;
      node.op = "cast";
      node.inputs = {arg.value};
      node.outputs = {cast};
      node.attrs.Set("to", std::string("bf16"));
      node.where = absl::StrCat("function ", function.name, ", node ", node.name);
      casts.push_back(std::move(node));
    }
    function.nodes.insert(function.nodes.begin(), casts.begin(), casts.end());
    MakeNarrowNumbers(&function);
    WEIR_RETURN_IF_ERROR(InferTypes(context, &function));
    for (size_t r = 0; r < function.results.size(); ++r) {
      Result& result = function.results[r];
      const Value& value = function.values[result.value];
      // Losses and metrics are reported in f32.
      const bool in_f32 = value.type.dims.empty() ||
                          wide.results.count({static_cast<int>(f), static_cast<int>(r)}) > 0;
      if (in_f32 && value.type.dtype == DType::kBF16) {
        sbp::TensorType type = value.type;
        type.dtype = DType::kF32;
        ops::ValueId cast = function.AddValue(absl::StrCat(value.name, ".f32"), type);
        Node node;
        node.name = function.values[cast].name;
        node.op = "cast";
        node.inputs = {result.value};
        node.outputs = {cast};
        node.attrs.Set("to", std::string("f32"));
        node.where = absl::StrCat("function ", function.name, ", node ", node.name);
        function.nodes.push_back(std::move(node));
        result.value = cast;
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
