#include <set>

#include "absl/strings/str_cat.h"
#include "compiler/passes/infer_types.h"
#include "compiler/passes/passes.h"

namespace weir::compiler {

namespace {

// The arguments of each model function that some call feeds with data.
std::set<std::pair<int, int>> FedArgs(const Module& module) {
  std::set<std::pair<int, int>> fed;
  for (const ModelCall& call : module.model.calls) {
    const Function& function = module.functions[module.model.functions[call.model_function].forward];
    size_t next = 0;
    for (size_t a = 0; a < function.args.size(); ++a) {
      if (function.args[a].kind != ArgKind::kActivation) continue;
      if (module.model.values[call.args[next++]].call < 0) fed.insert({call.model_function, static_cast<int>(a)});
    }
  }
  return fed;
}

}  // namespace

absl::Status ApplyPrecision(const PassContext& context, Module* module) {
  if (context.precision != DType::kBF16) return absl::OkStatus();
  const std::set<std::pair<int, int>> fed_args = FedArgs(*module);
  for (size_t f = 0; f < module->model.functions.size(); ++f) {
    Function& function = module->functions[module->model.functions[f].forward];
    std::vector<Node> casts;
    for (size_t a = 0; a < function.args.size(); ++a) {
      Arg& arg = function.args[a];
      TensorType type = function.values[arg.value].type;
      if (type.dtype != DType::kF32) continue;
      if (fed_args.count({static_cast<int>(f), static_cast<int>(a)}) == 0) {
        function.values[arg.value].type.dtype = DType::kBF16;
        continue;
      }
      // Data arrives in f32: cast it where it enters.
      type.dtype = DType::kBF16;
      ValueId cast = function.AddValue(absl::StrCat(function.values[arg.value].name, ".bf16"), type);
      for (Node& node : function.nodes) {
        for (ValueId& input : node.inputs) {
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
    WEIR_RETURN_IF_ERROR(InferTypes(context, &function));
    for (Result& result : function.results) {
      // Losses and metrics are reported in f32.
      Value& value = function.values[result.value];
      if (value.type.dims.empty() && value.type.dtype == DType::kBF16) {
        TensorType type = value.type;
        type.dtype = DType::kF32;
        ValueId cast = function.AddValue(absl::StrCat(value.name, ".f32"), type);
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
    const Function& function = module->functions[module->model.functions[call.model_function].forward];
    for (size_t r = 0; r < call.results.size(); ++r) {
      module->model.values[call.results[r]].type = function.values[function.results[r].value].type;
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::compiler
