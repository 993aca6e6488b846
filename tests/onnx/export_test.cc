// Holds exported operations to the operations of Weir: each example of an operation that a job may
// use, written as a model of ONNX and read again, computes what the operation computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "ops/testing/layout_law.h"
#include "ops/testing/op_cases.h"
#include "tests/onnx/graph_run.h"
#include "tools/onnx/export_model.h"
#include "tools/onnx/import_model.h"

namespace weir::onnx {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

void SetValue(const AttrValue& value, proto::Attr* attr) {
  if (const auto* i = std::get_if<int64_t>(&value)) attr->set_i(*i);
  if (const auto* f = std::get_if<double>(&value)) attr->set_f(*f);
  if (const auto* b = std::get_if<bool>(&value)) attr->set_b(*b);
  if (const auto* s = std::get_if<std::string>(&value)) attr->set_s(*s);
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
    for (int64_t item : *ints) attr->mutable_ints()->add_values(item);
  }
}

// Returns a job whose `main` has the operation of a case, with result `y`, beside a loss.
proto::Job JobOf(const ops::OpCase& op_case) {
  proto::Job job;
  proto::Graph* graph = job.mutable_graph();
  proto::Dim* sample = graph->add_dim();
  sample->set_name("sample");
  sample->set_size(2);
  graph->set_main("main");
  job.mutable_training()->set_batch_dim("sample");
  proto::Function* main = graph->add_function();
  main->set_name("main");
  proto::TensorDecl* other = main->add_input();
  other->set_name("other");
  other->set_type("f32[sample]");
  proto::Node* node = main->add_node();
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    proto::TensorDecl* input = main->add_input();
    input->set_name(absl::StrCat("x", i));
    input->set_type(op_case.inputs[i]);
    node->add_input(input->name());
  }
  node->set_name("y");
  node->set_op(op_case.op);
  for (const auto& [name, value] : op_case.attrs.map()) {
    proto::NamedAttr* attr = node->add_attr();
    attr->set_name(name);
    SetValue(value, attr->mutable_value());
  }
  proto::Node* loss = main->add_node();
  loss->set_name("loss");
  loss->set_op("reduce_mean");
  loss->add_input("other");
  main->add_output("loss");
  return job;
}

Tensor ToTensor(const ops::HostTensor& host, const sbp::TensorType& type) {
  Tensor tensor;
  tensor.element = type.dtype == DType::kI32    ? Element::kI32
                   : type.dtype == DType::kBool ? Element::kBool
                                                : Element::kF32;
  for (const sbp::TensorDim& dim : type.dims) tensor.shape.push_back(dim.size);
  for (int64_t i = 0; i < host.size(); ++i) {
    if (tensor.is_real())
      tensor.reals.push_back(static_cast<float>(host.Get(i)));
    else
      tensor.integers.push_back(static_cast<int64_t>(host.Get(i)));
  }
  return tensor;
}

// The importer has no translation of what these are written as.
bool IsOnlyWritten(const std::string& op) {
  static const std::set<std::string> ops = {"accuracy",    "argmax",      "gather", "one_hot",
                                            "scatter_add", "segment_sum", "take",   "top_k"};
  return ops.count(op) > 0;
}

// An exported model has no bf16, no f16 and no dropout, and an importer drops casts among real
// numbers. ONNX has no sum of segments, and no exported model reads a cache, keeps positions as an
// operand, or updates an average.
bool IsLeftOut(const ops::OpCase& op_case) {
  const ops::OpDef* def = ops::OpRegistry::Find(op_case.op);
  return def == nullptr || def->schema.internal || op_case.op == "dropout" ||
         op_case.op == "segment_sum" || op_case.op == "attention_cached" ||
         (op_case.op == "rotary" && op_case.inputs.size() > 1) ||
         absl::StrContains(op_case.attrs.Str("to"), "f16") || op_case.op == "step_mean" ||
         op_case.op == "moving_average" ||
         std::any_of(op_case.inputs.begin(), op_case.inputs.end(),
                     [](const std::string& type) { return absl::StrContains(type, "f16"); });
}

std::vector<Tensor> InputsOf(const ops::OpExample& example) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < example.inputs.size(); ++i)
    inputs.push_back(ToTensor(example.inputs[i], example.input_types[i]));
  return inputs;
}

// Returns "" if the case comes back as it was, else what differs.
std::string RoundTrip(const ops::OpCase& op_case) {
  ExportOptions options;
  options.outputs = {"y"};
  auto exported = ExportModel(JobOf(op_case), options);
  if (!exported.ok()) {
    const std::string text(exported.status().message());
    const bool is_known = absl::StrContains(text, "smoothed labels") ||
                          absl::StrContains(text, "several ignored labels") ||
                          absl::StrContains(text, "ignored labels");
    return absl::StrContains(text, "W0927") && is_known ? "" : text;
  }
  if (IsOnlyWritten(op_case.op)) return "";
  const auto lowered = Lower(exported->model, {});
  if (!lowered.ok()) return std::string(lowered.status().message());
  auto example = ops::MakeExample(op_case, 7);
  if (!example.ok()) return std::string(example.status().message());
  example->outputs.erase(example->outputs.begin() + 1, example->outputs.end());
  example->output_types.erase(example->output_types.begin() + 1, example->output_types.end());
  std::map<std::string, Tensor> inputs;
  const std::vector<Tensor> tensors = InputsOf(*example);
  for (size_t i = 0; i < tensors.size(); ++i) inputs[absl::StrCat("x", i)] = tensors[i];
  const sbp::TensorType type = example->output_types[0];
  const Attributes attrs = example->attrs;
  const auto whole =
      ops::MakeLawSubject(op_case.name, *std::move(example), {op_case.op, attrs, 0, 0, 20, 1, {}});
  if (!whole.ok()) return std::string(whole.status().message());
  const auto values = RunGraph(lowered->graph, inputs, nullptr);
  if (!values.ok()) return std::string(values.status().message());
  if (lowered->outputs.size() != 1 || lowered->outputs[0].value < 0) return "no output";
  Tensor expected = ToTensor(whole->whole[0], type);
  const std::vector<int64_t> shape = lowered->graph.shape(lowered->outputs[0].value);
  if (shape != expected.shape) return "another shape";
  return DifferenceFrom(expected, (*values)[lowered->outputs[0].value]);
}

TEST(ExportedOps, ComputeWhatTheOperationsOfAJobCompute) {
  std::set<std::string> seen;
  for (const ops::OpCase& op_case : ops::OpCases()) {
    if (IsLeftOut(op_case)) continue;
    seen.insert(op_case.op);
    const std::string difference = RoundTrip(op_case);
    EXPECT_EQ(difference, "") << op_case.name;
  }
  EXPECT_THAT(seen, Contains("attention"));
  EXPECT_THAT(seen, Contains("conv"));
}

constexpr char kJob[] = R"(
  graph {
    dim { name: "batch" size: 4 }
    dim { name: "sequence" size: 6 }
    dim { name: "hidden" size: 8 }
    dim { name: "vocab" size: 10 }
    main: "main"
    function {
      name: "block"
      input { name: "x" type: "f32[batch, sequence, hidden]" }
      parameter { name: "w" type: "f32[hidden, hidden]" }
      node { name: "flat" op: "reshape" input: "x"
             attr { name: "to" value { s: "batch*sequence, hidden" } } }
      node { name: "p" op: "matmul" input: "flat" input: "w" }
      node { name: "y" op: "reshape" input: "p"
             attr { name: "to" value { s: "batch, sequence, hidden" } } }
      output: "y"
    }
    function {
      name: "main"
      input { name: "tokens" type: "i32[batch, sequence]" }
      input { name: "targets" type: "i32[batch, sequence]" }
      parameter { name: "table" type: "f32[vocab, hidden]" }
      node { name: "embedded" op: "embedding" input: "table" input: "tokens" }
      node { name: "layers" op: "call" function: "block" input: "embedded" repeat: 2 }
      node { name: "logits" op: "matmul" input: "layers" input: "table"
             attr { name: "transpose_w" value { b: true } } }
      node { name: "losses" op: "softmax_cross_entropy" input: "logits" input: "targets" }
      node { name: "loss" op: "reduce_mean" input: "losses" }
      output: "loss"
    }
  })";

proto::Job ParsedJob(const std::string& text) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

std::vector<std::string> NamesOf(const ExportedModel& exported) {
  std::vector<std::string> names;
  for (const ExportedWeight& weight : exported.weights) names.push_back(weight.name);
  std::sort(names.begin(), names.end());
  return names;
}

TEST(ExportModel, WritesWhatTheLossReadsWithCallsWrittenOutAndSharedWeightsOnce) {
  const auto exported = ExportModel(ParsedJob(kJob), {});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const proto::OnnxGraph& graph = exported->model.graph();
  ASSERT_EQ(graph.input_size(), 1);
  EXPECT_EQ(graph.input(0).name(), "tokens");
  ASSERT_EQ(graph.output_size(), 1);
  EXPECT_EQ(graph.output(0).name(), "logits");
  EXPECT_THAT(NamesOf(*exported), ElementsAre("layers.0.w", "layers.1.w", "table"));
  EXPECT_EQ(exported->model.opset(0).version(), kExportedOpset);
}

TEST(ExportModel, LeavesBatchAndSequenceOpenSoThatOtherSizesAreRead) {
  auto exported = ExportModel(ParsedJob(kJob), {});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->open, ElementsAre("batch", "sequence"));
  for (ExportedWeight& weight : exported->weights) {
    for (proto::OnnxTensor& tensor : *exported->model.mutable_graph()->mutable_initializer()) {
      if (tensor.name() != weight.name) continue;
      tensor.set_raw(std::string(NumElements(weight.shape) * sizeof(float), '\0'));
    }
  }
  ImportOptions options;
  options.dims = {{"batch", 3}, {"sequence", 5}};
  const auto lowered = Lower(exported->model, options);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_THAT(lowered->graph.shape(lowered->outputs[0].value), ElementsAre(3, 5, 10));
}

// An importer takes initializers of real numbers for weights, and would train the angles.
TEST(ExportModel, AnglesOfPositionsAreNoWeights) {
  auto exported = ExportModel(ParsedJob(R"(
    graph {
      dim { name: "batch" size: 4 }
      dim { name: "sequence" size: 6 }
      main: "main"
      function {
        name: "main"
        input { name: "x" type: "f32[batch, sequence, heads=2, width=4]" }
        input { name: "targets" type: "i32[batch, sequence, heads=2]" }
        parameter { name: "w" type: "f32[width=4, vocab=5]" }
        node { name: "turned" op: "rotary" input: "x" }
        node { name: "logits" op: "matmul" input: "turned" input: "w" }
        node { name: "losses" op: "softmax_cross_entropy" input: "logits" input: "targets" }
        node { name: "loss" op: "reduce_mean" input: "losses" }
        output: "loss"
      }
    })"),
                              {});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(NamesOf(*exported), ElementsAre("w"));
  for (proto::OnnxTensor& tensor : *exported->model.mutable_graph()->mutable_initializer()) {
    if (tensor.name() == "w") tensor.set_raw(std::string(4 * 5 * sizeof(float), '\0'));
  }
  ImportOptions options;
  options.dims = {{"batch", 3}, {"sequence", 5}};
  const auto lowered = Lower(exported->model, options);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::vector<std::string> trained;
  for (const GraphParameter& parameter : lowered->graph.parameters) {
    if (parameter.trained) trained.push_back(parameter.name);
  }
  EXPECT_THAT(trained, ElementsAre("w"));
  EXPECT_GT(lowered->graph.parameters.size(), 1u);
}

TEST(ExportModel, IntegersAreOfTheTypeAskedFor) {
  const std::string text = R"(
    graph {
      dim { name: "batch" size: 4 }
      main: "main"
      function {
        name: "main"
        input { name: "ids" type: "i32[batch]" }
        input { name: "targets" type: "i32[batch]" }
        parameter { name: "w" type: "f32[vocab=7, classes=5]" }
        node { name: "known" op: "less" input: "ids" attr { name: "value" value { f: 6 } } }
        node { name: "weight" op: "cast" input: "known" attr { name: "to" value { s: "f32" } } }
        node { name: "logits" op: "embedding" input: "w" input: "ids" }
        node { name: "best" op: "argmax" input: "logits" attr { name: "axis" value { i: 1 } } }
        node { name: "losses" op: "softmax_cross_entropy" input: "logits" input: "targets" }
        node { name: "counted" op: "mul" input: "losses" input: "weight" }
        node { name: "loss" op: "reduce_mean" input: "counted" }
        output: "loss"
      }
    })";
  for (const bool i64 : {false, true}) {
    ExportOptions options;
    options.outputs = {"weight", "best"};
    options.i64 = i64;
    const auto exported = ExportModel(ParsedJob(text), options);
    ASSERT_TRUE(exported.ok()) << exported.status();
    const int integers = static_cast<int>(i64 ? Element::kI64 : Element::kI32);
    const proto::OnnxGraph& graph = exported->model.graph();
    ASSERT_EQ(graph.input_size(), 1);
    EXPECT_EQ(graph.input(0).type().tensor().element(), integers);
    ASSERT_EQ(graph.output_size(), 2);
    EXPECT_EQ(graph.output(1).type().tensor().element(), integers) << "places";
    int numbers = 0;
    for (const proto::OnnxTensor& tensor : graph.initializer()) {
      if (tensor.dims_size() > 0 || tensor.type() == static_cast<int>(Element::kF32)) continue;
      EXPECT_EQ(tensor.type(), integers) << tensor.name();
      ++numbers;
    }
    EXPECT_EQ(numbers, 1) << "the number that ids are compared with";
  }
}

TEST(ExportModel, ClosesADimensionThatAWeightHasAndSaysSo) {
  std::string text = kJob;
  text.replace(text.find("f32[vocab, hidden]"), 18,
               "f32[vocab, hidden]\" } parameter { name: "
               "\"places\" type: \"f32[sequence, hidden]");
  const std::string call =
      "node { name: \"layers\" op: \"call\" function: \"block\" input: \"embedded\"";
  text.replace(text.find(call), call.size(),
               "node { name: \"placed\" op: \"add\" input: \"embedded\" input: \"places\" } "
               "node { name: \"layers\" op: \"call\" function: \"block\" input: \"placed\"");
  const auto exported = ExportModel(ParsedJob(text), {});
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->open, ElementsAre("batch"));
  ASSERT_EQ(exported->notes.size(), 1u);
  EXPECT_THAT(exported->notes[0], HasSubstr("sequence keeps the size 6, which weight places has"));
}

TEST(ExportModel, NamesTheTensorAndTheDimensionThatTheJobLacks) {
  ExportOptions options;
  options.outputs = {"logit"};
  auto exported = ExportModel(ParsedJob(kJob), options);
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("W0928"));
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("--output logits"));
  options.outputs = {};
  options.fixed = {"batc"};
  exported = ExportModel(ParsedJob(kJob), options);
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("--fixed batch"));
  options.fixed = {"batch", "sequence"};
  exported = ExportModel(ParsedJob(kJob), options);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_TRUE(exported->open.empty());
}

TEST(ExportModel, ListsEveryOperationThatOnnxLacks) {
  std::string text = kJob;
  text.replace(text.find("input: \"targets\" }"), 18,
               "input: \"targets\" attr { name: \"label_smoothing\" value { f: 0.1 } } }");
  ExportOptions options;
  options.outputs = {"loss"};
  const auto exported = ExportModel(ParsedJob(text), options);
  EXPECT_THAT(std::string(exported.status().message()), HasSubstr("W0927"));
  EXPECT_THAT(std::string(exported.status().message()),
              HasSubstr("node losses (softmax_cross_entropy): smoothed labels"));
}

}  // namespace
}  // namespace weir::onnx
