#include "compiler/testing/small_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "ops/defs/type_text.h"

namespace weir::compiler {

const std::map<std::string, sbp::TensorDim>& TestDims() {
  static const auto* dims = new std::map<std::string, sbp::TensorDim>{
      {"batch", {"batch", 4, 1}}, {"rows", {"rows", 6, 1}},       {"wide", {"wide", 4, 1}},
      {"deep", {"deep", 8, 1}},   {"classes", {"classes", 4, 1}}, {"heads", {"heads", 8, 4}}};
  return *dims;
}

sbp::TensorType TypeOf(const std::string& text) {
  absl::StatusOr<sbp::TensorType> type = ops::ParseType(text, TestDims());
  EXPECT_TRUE(type.ok()) << type.status();
  return type.value_or(sbp::TensorType());
}

sbp::Mesh MeshOf(const std::string& text) {
  absl::StatusOr<sbp::Mesh> mesh = sbp::Mesh::Parse(text);
  EXPECT_TRUE(mesh.ok()) << mesh.status();
  return mesh.value_or(sbp::Mesh());
}

LayoutRules RulesOf(const sbp::Mesh& stage_mesh, const Pairs& rules, const Pairs& layouts) {
  LayoutRules made(stage_mesh);
  for (const auto& [dim, axis] : rules) {
    const int index = stage_mesh.AxisIndex(axis);
    if (index >= 0 && stage_mesh.size(index) > 1) made.AddRule(dim, index, RuleScope::kAll);
  }
  for (const auto& [tensor, sbp] : layouts) {
    absl::StatusOr<sbp::Layout> layout = sbp::ParseLayout(sbp, stage_mesh);
    EXPECT_TRUE(layout.ok() && made.AddOverride(tensor, *layout)) << tensor << ": " << sbp;
  }
  return made;
}

ops::ValueId FunctionMaker::Input(const std::string& name, const std::string& type) {
  const ops::ValueId value = function.AddValue(name, TypeOf(type));
  function.args.push_back({value, ArgKind::kActivation});
  return value;
}

ops::ValueId FunctionMaker::Parameter(const std::string& name, const std::string& type) {
  const ops::ValueId value = function.AddValue(name, TypeOf(type));
  function.parameters.push_back({name, {}, false, false, static_cast<int>(function.args.size())});
  function.args.push_back({value, ArgKind::kParameter});
  return value;
}

std::vector<ops::ValueId> FunctionMaker::Nodes(int num_outputs, const std::string& name,
                                               const std::string& op,
                                               const std::vector<ops::ValueId>& inputs,
                                               Attributes attrs) {
  compiler::Node node;
  node.name = name;
  node.op = op;
  node.inputs = inputs;
  node.rng_key = 100 + function.nodes.size();
  node.where = absl::StrCat("function ", function.name, ", node ", name);
  std::vector<sbp::TensorType> types;
  for (ops::ValueId input : inputs) types.push_back(function.values[input].type);
  if (op == kBoxingOp) {
    types = {function.values[inputs[0]].type};
  } else {
    const ops::OpDef* def = ops::OpRegistry::Find(op);
    EXPECT_NE(def, nullptr) << op;
    const absl::Status schema =
        ops::CheckSchema(def->schema, static_cast<int>(inputs.size()),
                         static_cast<int>(def->schema.outputs.size()), &attrs, node.where);
    EXPECT_TRUE(schema.ok()) << schema;
    absl::StatusOr<std::vector<sbp::TensorType>> inferred = def->infer({attrs, types, TestDims()});
    EXPECT_TRUE(inferred.ok()) << inferred.status();
    types = inferred.value_or(std::vector<sbp::TensorType>(num_outputs));
  }
  node.attrs = std::move(attrs);
  for (int i = 0; i < num_outputs; ++i) {
    node.outputs.push_back(function.AddValue(i == 0 ? name : absl::StrCat(name, ".", i), types[i]));
  }
  function.nodes.push_back(node);
  return node.outputs;
}

int ModelMaker::Add(Function function) {
  ModelFunction model_function;
  model_function.forward = static_cast<int>(module.functions.size());
  model_function.num_results = static_cast<int>(function.results.size());
  module.functions.push_back(std::move(function));
  module.model.functions.push_back(std::move(model_function));
  return static_cast<int>(module.model.functions.size()) - 1;
}

int ModelMaker::Data(const std::string& name, const std::string& type) {
  module.model.values.push_back({name, TypeOf(type)});
  return static_cast<int>(module.model.values.size()) - 1;
}

std::vector<int> ModelMaker::Call(const std::string& name, int model_function,
                                  const std::vector<int>& args) {
  Model& model = module.model;
  const Function& function = module.functions[model.functions[model_function].forward];
  ModelCall call;
  call.model_function = model_function;
  call.name = name;
  call.args = args;
  for (const ParameterInfo& parameter : function.parameters) {
    call.weights.push_back(static_cast<int>(model.weights.size()));
    const bool of_main = name == function.name;
    model.weights.push_back(
        {of_main ? parameter.name : absl::StrCat(name, ".", parameter.name), parameter.init});
  }
  for (size_t r = 0; r < function.results.size(); ++r) {
    const Value& value = function.values[function.results[r].value];
    call.results.push_back(static_cast<int>(model.values.size()));
    model.values.push_back({absl::StrCat(name, ".", value.name), value.type,
                            static_cast<int>(model.calls.size()), static_cast<int>(r)});
  }
  model.calls.push_back(call);
  return call.results;
}

Module SmallClassifier() {
  FunctionMaker layer("layer");
  const ops::ValueId x = layer.Input("x", "f32[batch, wide]");
  const ops::ValueId w = layer.Parameter("w", "f32[wide, deep]");
  const ops::ValueId v = layer.Parameter("v", "f32[deep, wide]");
  const ops::ValueId h = layer.Node("h", "matmul", {x, w});
  const ops::ValueId r = layer.Node("r", "relu", {h});
  const ops::ValueId m = layer.Node("m", "matmul", {r, v});
  layer.Return(layer.Node("y", "add", {x, m}));
  FunctionMaker end("main.1");
  const ops::ValueId z = end.Input("z", "f32[batch, wide]");
  const ops::ValueId labels = end.Input("labels", "i32[batch]");
  const ops::ValueId out = end.Parameter("out", "f32[wide, classes]");
  const ops::ValueId logits = end.Node("logits", "matmul", {z, out});
  const ops::ValueId losses = end.Node("losses", "softmax_cross_entropy", {logits, labels});
  end.Return(end.Node("loss", "reduce_mean", {losses}));
  ModelMaker maker;
  const int layers = maker.Add(layer.function), last = maker.Add(end.function);
  const int data = maker.Data("x", "f32[batch, wide]"),
            classes = maker.Data("labels", "i32[batch]");
  const int first = maker.Call("layers.0", layers, {data})[0];
  const int second = maker.Call("layers.1", layers, {first})[0];
  Model& model = maker.module.model;
  model.loss = maker.Call("main.1", last, {second, classes})[0];
  model.metrics = {{"loss", model.loss}};
  return std::move(maker.module);
}

ops::ValueId Find(const Function& function, const std::string& name) {
  for (size_t v = 0; v < function.values.size(); ++v) {
    if (function.values[v].name == name) return static_cast<ops::ValueId>(v);
  }
  ADD_FAILURE() << "function " << function.name << " has no value " << name;
  return 0;
}

std::vector<std::string> NodeLines(const Function& function) {
  const auto name = [&](std::string* out, ops::ValueId value) {
    absl::StrAppend(out, value < 0 ? "-" : function.values[value].name);
  };
  std::vector<std::string> lines;
  for (const Node& node : function.nodes) {
    lines.push_back(absl::StrCat(absl::StrJoin(node.outputs, ", ", name), " = ", node.op, "(",
                                 absl::StrJoin(node.inputs, ", ", name), ")"));
  }
  return lines;
}

namespace {

std::string TextOf(const std::vector<ModelFunction::BackwardArg>& args) {
  return absl::StrJoin(args, " ", [](std::string* out, const ModelFunction::BackwardArg& arg) {
    absl::StrAppend(out, static_cast<int>(arg.kind), ":", arg.index);
  });
}

}  // namespace

std::string EverythingOf(const Module& module, const sbp::Mesh& stage_mesh) {
  std::string text;
  for (const Function& function : module.functions) {
    absl::StrAppend(&text, ToText(function, stage_mesh), "  kinds");
    for (const Arg& arg : function.args) absl::StrAppend(&text, " ", static_cast<int>(arg.kind));
    for (const Result& result : function.results) {
      absl::StrAppend(&text, " ", static_cast<int>(result.kind),
                      result.layout.empty() ? "" : ToText(result.layout, stage_mesh));
    }
    absl::StrAppend(&text, "\n  keys");
    for (const Node& node : function.nodes)
      absl::StrAppend(&text, " ", node.name, ":", node.rng_key);
    for (const auto& [value, name] : function.states)
      absl::StrAppend(&text, "\n  state ", function.values[value].name, " ", name);
    absl::StrAppend(&text, "\n");
  }
  for (const ModelFunction& f : module.model.functions) {
    absl::StrAppend(
        &text, "model function ", f.forward, " ", f.backward, " ", f.weight_gradient, ", results ",
        f.num_results, ", needs ",
        absl::StrJoin(std::vector<int>(f.arg_needs_grad.begin(), f.arg_needs_grad.end()), " "),
        ", backward (", TextOf(f.backward_args), ") -> ", absl::StrJoin(f.backward_results, " "),
        ", weights (", TextOf(f.weight_gradient_args), ") -> ",
        absl::StrJoin(f.weight_gradient_results, " "), "\n");
  }
  for (const ModelValue& value : module.model.values)
    absl::StrAppend(&text, "model value ", value.name, ": ", ToText(value.type), "\n");
  for (const ModelCall& call : module.model.calls) {
    absl::StrAppend(&text, "call ", call.name, " of ", call.model_function, " (",
                    absl::StrJoin(call.args, " "), ") -> ", absl::StrJoin(call.results, " "),
                    ", part ", call.part, " on ", call.stage, "\n");
  }
  for (const ProgramValue& value : module.values) {
    absl::StrAppend(&text, "value ", value.name, ", rate ", static_cast<int>(value.frequency),
                    ", variable ", value.variable, ", delay ", value.delay, " of ",
                    value.gradient_of, "\n");
  }
  for (const ProgramItem& item : module.items) {
    absl::StrAppend(&text, "item ", item.name, ", phase ", static_cast<int>(item.phase),
                    ", instance ", item.instance, ", part ", item.part, "\n");
  }
  return text + ProgramText(module, stage_mesh);
}

}  // namespace weir::compiler
