#include "tools/onnx/import_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/safetensors.h"
#include "tools/onnx/model_file.h"
#include "tools/onnx/sharding.h"

namespace weir::onnx {
namespace {

// Builds models of ONNX for tests.
class ModelBuilder {
 public:
  explicit ModelBuilder(int64_t opset = 17) {
    model_.set_ir_version(8);
    model_.add_opset()->set_version(opset);
    graph()->set_name("model");
  }
  proto::OnnxGraph* graph() { return model_.mutable_graph(); }
  const proto::OnnxModel& model() const { return model_; }
  proto::OnnxModel* mutable_model() { return &model_; }

  // A size below 0 is a dimension that is left open.
  ModelBuilder& Input(const std::string& name, Element element,
                      const std::vector<std::string>& dims) {
    proto::OnnxValue* input = graph()->add_input();
    input->set_name(name);
    proto::OnnxTensorType* type = input->mutable_type()->mutable_tensor();
    type->set_element(static_cast<int>(element));
    type->mutable_shape();
    for (const std::string& dim : dims) {
      if (dim[0] >= '0' && dim[0] <= '9')
        type->mutable_shape()->add_dim()->set_size(std::stoll(dim));
      else
        type->mutable_shape()->add_dim()->set_symbol(dim);
    }
    return *this;
  }
  ModelBuilder& Output(const std::string& name) {
    graph()->add_output()->set_name(name);
    return *this;
  }
  ModelBuilder& Weight(const std::string& name, const std::vector<int64_t>& shape) {
    proto::OnnxTensor* tensor = graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_type(static_cast<int>(Element::kF32));
    for (int64_t size : shape) tensor->add_dims(size);
    for (int64_t i = 0; i < Count(shape); ++i)
      tensor->add_floats(0.01f * static_cast<float>(i % 17 - 8));
    return *this;
  }
  ModelBuilder& Integers(const std::string& name, const std::vector<int64_t>& values) {
    proto::OnnxTensor* tensor = graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_type(static_cast<int>(Element::kI64));
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (int64_t value : values) tensor->add_longs(value);
    return *this;
  }
  ModelBuilder& Number(const std::string& name, float value) {
    proto::OnnxTensor* tensor = graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_type(static_cast<int>(Element::kF32));
    tensor->add_floats(value);
    return *this;
  }
  proto::OnnxNode* Node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::string& output) {
    proto::OnnxNode* node = graph()->add_node();
    node->set_op(op);
    node->set_name(absl::StrCat("/", output));
    for (const std::string& input : inputs) node->add_input(input);
    node->add_output(output);
    return node;
  }
  static void Int(proto::OnnxNode* node, const std::string& name, int64_t value) {
    proto::OnnxAttribute* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_i(value);
    attribute->set_type(2);
  }
  static void Ints(proto::OnnxNode* node, const std::string& name,
                   const std::vector<int64_t>& values) {
    proto::OnnxAttribute* attribute = node->add_attribute();
    attribute->set_name(name);
    for (int64_t value : values) attribute->add_ints(value);
    attribute->set_type(7);
  }

 private:
  proto::OnnxModel model_;
};

std::string OpsOf(const WeirGraph& graph) {
  std::string ops;
  for (const GraphNode& node : graph.nodes) absl::StrAppend(&ops, ops.empty() ? "" : " ", node.op);
  return ops;
}

// Returns the operations of a model, or the error.
std::string LoweredOps(const ModelBuilder& builder, std::map<std::string, int64_t> dims = {}) {
  ImportOptions options;
  options.dims = std::move(dims);
  auto lowered = Lower(builder.model(), options);
  return lowered.ok() ? OpsOf(lowered->graph) : std::string(lowered.status().message());
}

TEST(ImportModel, AMultilayerPerceptronBecomesAJobThatTrains) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"batch", "12"}).Output("logits");
  builder.Weight("onnx::Gemm_7", {20, 12}).Weight("up.bias", {20}).Weight("down.weight", {20, 5});
  ModelBuilder::Int(builder.Node("Gemm", {"x", "onnx::Gemm_7", "up.bias"}, "h"), "transB", 1);
  builder.Node("Relu", {"h"}, "r");
  builder.Node("MatMul", {"r", "down.weight"}, "logits");
  ImportOptions options;
  options.loss = "cross_entropy";
  options.dims["batch"] = 7;
  auto imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  const proto::Function& main = imported->job.graph().function(0);
  ASSERT_EQ(main.input_size(), 2);
  EXPECT_TRUE(absl::StartsWith(main.input(0).type(), "f32[batch, ")) << main.input(0).type();
  EXPECT_EQ(main.input(1).type(), "i32[batch]") << "the loss gives the targets the batch";
  EXPECT_EQ(main.output(0), "loss");
  EXPECT_TRUE(main.parameter(0).decay());
  EXPECT_FALSE(main.parameter(1).decay());
  EXPECT_EQ(imported->names, (std::vector<std::string>{"up.weight", "up.bias", "down.weight"}));

  TemporaryFolder folder;
  const std::string path = folder.path() + "/w.safetensors";
  ASSERT_TRUE(WriteWeights(*imported, {}, path).ok());
  auto reader = store::SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->tensors().at("up.weight").shape, (Shape{20, 12}));
}

TEST(ImportModel, WithoutALossTheOutputsOfTheFileAreResults) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"batch", "12"});
  for (const char* output : {"logits", "best", "again", "x"}) builder.Output(output);
  builder.Weight("down.weight", {12, 5});
  builder.Node("MatMul", {"x", "down.weight"}, "logits");
  proto::OnnxNode* const best = builder.Node("ArgMax", {"logits"}, "best");
  ModelBuilder::Int(best, "axis", 1);
  ModelBuilder::Int(best, "keepdims", 0);
  builder.Node("Identity", {"logits"}, "again");
  ImportOptions options;
  options.dims["batch"] = 7;
  auto imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(imported->job.graph().without_loss());
  EXPECT_FALSE(imported->job.has_training());
  const proto::Function& main = imported->job.graph().function(0);
  EXPECT_EQ(std::vector<std::string>(main.output().begin(), main.output().end()),
            (std::vector<std::string>{"logits", "best"}));
  EXPECT_THAT(absl::StrJoin(imported->notes, "; "), testing::HasSubstr("output again is output "
                                                                       "logits"));
  EXPECT_THAT(absl::StrJoin(imported->notes, "; "), testing::HasSubstr("output x is an input"));
  options.output = "best";
  imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->job.graph().function(0).output_size(), 1);
  EXPECT_EQ(imported->job.graph().function(0).output(0), "best");
}

TEST(ImportModel, HardmaxAndTheLastOfEqualElementsAreMadeOfPlaces) {
  ModelBuilder hardmax;
  hardmax.Input("x", Element::kF32, {"3", "4"}).Output("y");
  hardmax.Node("Hardmax", {"x"}, "y");
  EXPECT_EQ(LoweredOps(hardmax), "argmax one_hot");
  for (const int64_t size : {4, 65}) {
    ModelBuilder last;
    last.Input("x", Element::kF32, {"3", absl::StrCat(size)}).Output("y");
    proto::OnnxNode* const node = last.Node("ArgMax", {"x"}, "y");
    ModelBuilder::Int(node, "axis", 1);
    ModelBuilder::Int(node, "keepdims", 0);
    ModelBuilder::Int(node, "select_last_index", 1);
    EXPECT_THAT(LoweredOps(last),
                testing::HasSubstr(size == 4 ? "argmax take cast" : "along a dimension of 65"));
  }
}

TEST(ImportModel, AScatterOverwritesWhereAnIndexPoints) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"3", "5"}).Input("index", Element::kI64, {"3", "2"});
  builder.Input("updates", Element::kF32, {"3", "2"}).Output("y");
  ModelBuilder::Int(builder.Node("ScatterElements", {"x", "index", "updates"}, "y"), "axis", 1);
  EXPECT_EQ(LoweredOps(builder), "scatter_add equal cast scatter_add greater where");
}

TEST(ImportModel, ShapesThatTheModelComputesAreFolded) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"batch", "sequence", "8"}).Output("y");
  builder.Integers("zero", {0})
      .Integers("one", {1})
      .Integers("heads", {2, 4})
      .Integers("axes", {0});
  builder.Node("Shape", {"x"}, "shape");
  builder.Node("Gather", {"shape", "zero"}, "b");
  builder.Node("Gather", {"shape", "one"}, "s");
  ModelBuilder::Int(builder.Node("Concat", {"b", "s", "heads"}, "to"), "axis", 0);
  builder.Node("Reshape", {"x", "to"}, "y");
  EXPECT_EQ(LoweredOps(builder, {{"batch", 3}, {"sequence", 5}}), "reshape");
}

// softmax(q k^T / 2 + mask) v, for [b, s, heads, d] in x.
ModelBuilder AttentionModel(bool causal) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"3", "5", "2", "4"}).Output("y").Number("half", 0.5f);
  for (const char* name : {"q", "k", "v"})
    ModelBuilder::Ints(builder.Node("Transpose", {"x"}, name), "perm", {0, 2, 1, 3});
  ModelBuilder::Ints(builder.Node("Transpose", {"k"}, "kt"), "perm", {0, 1, 3, 2});
  builder.Node("MatMul", {"q", "kt"}, "scores");
  builder.Node("Mul", {"scores", "half"}, "scaled");
  proto::OnnxTensor* mask = builder.graph()->add_initializer();
  mask->set_name("mask");
  mask->set_type(static_cast<int>(Element::kBool));
  for (int64_t size : {1, 1, 5, 5}) mask->add_dims(size);
  for (int i = 0; i < 25; ++i) mask->add_ints(i % 5 > i / 5 || (!causal && i == 10) ? 1 : 0);
  builder.Number("hidden", -INFINITY);
  builder.Node("Where", {"mask", "hidden", "scaled"}, "masked");
  builder.Node("Softmax", {"masked"}, "p");
  builder.Node("MatMul", {"p", "v"}, "o");
  ModelBuilder::Ints(builder.Node("Transpose", {"o"}, "y"), "perm", {0, 2, 1, 3});
  return builder;
}

TEST(ImportModel, AttentionUnderTheCausalMaskIsOneOperationWithoutTransposes) {
  ImportOptions options;
  const ModelBuilder builder = AttentionModel(true);
  auto lowered = Lower(builder.model(), options);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(OpsOf(lowered->graph), "attention");
  EXPECT_TRUE(lowered->graph.nodes[0].attrs.Bool("causal"));
  EXPECT_EQ(lowered->graph.nodes[0].attrs.Real("scale"), 0.5);
}

TEST(ImportModel, AttentionUnderAnotherMaskReadsTheMask) {
  const ModelBuilder builder = AttentionModel(false);
  auto lowered = Lower(builder.model(), {});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(OpsOf(lowered->graph), "attention");
  const GraphNode& attention = lowered->graph.nodes[0];
  EXPECT_FALSE(attention.attrs.Bool("causal"));
  ASSERT_EQ(attention.inputs.size(), 4u);
  const Tensor* mask = lowered->graph.ConstantOf(attention.inputs[3]);
  ASSERT_NE(mask, nullptr);
  EXPECT_EQ(mask->reals[10], -INFINITY);
  EXPECT_EQ(mask->reals[11], 0);
}

TEST(ImportModel, AMeanOverTargetsThatCountCountsThoseOfTheStep) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"4", "5"}).Input("labels", Element::kI64, {"4"}).Output("y");
  ModelBuilder::Int(builder.Node("SoftmaxCrossEntropyLoss", {"x", "labels"}, "y"), "ignore_index",
                    -100);
  EXPECT_EQ(LoweredOps(builder),
            "softmax_cross_entropy not_equal cast reduce_sum step_mean reduce_sum div");
}

TEST(ImportModel, ChosenPlacesAreIndicesOfOthers) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"4", "5"}).Output("y");
  builder.Node("ArgMax", {"x"}, "best");
  builder.Node("GatherElements", {"x", "best"}, "y");
  EXPECT_EQ(LoweredOps(builder), "argmax reshape gather");
}

TEST(ImportModel, ScatteredElementsMustBeAdded) {
  for (const char* reduction : {"add", "mul"}) {
    ModelBuilder builder;
    builder.Input("x", Element::kF32, {"4", "5"}).Input("i", Element::kI64, {"4", "5"}).Output("y");
    proto::OnnxNode* node = builder.Node("ScatterElements", {"x", "i", "x"}, "y");
    proto::OnnxAttribute* attr = node->add_attribute();
    attr->set_name("reduction");
    attr->set_type(3);
    attr->set_s(reduction);
    const std::string lowered = LoweredOps(builder);
    if (std::string(reduction) == "add") {
      EXPECT_EQ(lowered, "scatter_add add");
    } else {
      EXPECT_TRUE(absl::StrContains(lowered, "reduction \"mul\"; Weir has \"add\"")) << lowered;
    }
  }
}

TEST(ImportModel, AllThatIsMissingIsNamedAtOnce) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"3"}).Output("y");
  builder.Node("NonZero", {"x"}, "a");
  builder.Node("Det", {"a"}, "b");
  builder.Node("Det", {"a"}, "c");
  builder.Node("Relu", {"x"}, "y");
  const std::string error = LoweredOps(builder);
  for (const char* part : {"W0833", "node /a (NonZero)", "node /b and 1 more (Det)", "weir ops"})
    EXPECT_TRUE(absl::StrContains(error, part)) << part << " in " << error;
}

TEST(ImportModel, OpenDimensionsAreAskedForTogether) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"batch", "sequence"}).Output("y");
  builder.Node("Relu", {"x"}, "y");
  const std::string error = LoweredOps(builder);
  for (const char* part : {"W0834", "--dim \"batch=8\" --dim \"sequence=8\""})
    EXPECT_TRUE(absl::StrContains(error, part)) << part << " in " << error;
  const std::string unknown = LoweredOps(builder, {{"batch", 1}, {"sequence", 2}, {"seqence", 3}});
  for (const char* part : {"W0834", "batch, sequence, x[0], x[1]", "--dim \"sequence=8\""})
    EXPECT_TRUE(absl::StrContains(unknown, part)) << part << " in " << unknown;
}

TEST(ImportModel, ConstantsThatTheModelDoesNotHaveAreRefused) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"4", "3"}).Output("y");
  builder.Weight("bias", {3});
  builder.Node("Add", {"x", "bias"}, "y");
  const auto error_of = [&](const std::string& constant) {
    ImportOptions options;
    options.constants = {constant};
    return std::string(ImportModel(builder.model(), options).status().message());
  };
  EXPECT_TRUE(absl::StrContains(error_of("bais"), "W0837")) << error_of("bais");
  EXPECT_TRUE(absl::StrContains(error_of("bais"), "Try: --constant bias")) << error_of("bais");
  EXPECT_TRUE(absl::StrContains(error_of("weights.*"), "W0837")) << error_of("weights.*");
  for (const char* known : {"bias", "bi*"})
    EXPECT_FALSE(absl::StrContains(error_of(known), "W0837")) << error_of(known);
}

TEST(ImportModel, CyclesAndUnknownNamesAreRefused) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"3"}).Output("y");
  builder.Node("Add", {"x", "y"}, "z");
  builder.Node("Relu", {"z"}, "y");
  EXPECT_TRUE(absl::StrContains(LoweredOps(builder), "W0835")) << LoweredOps(builder);
}

TEST(ImportModel, HugeConstantsAreRefusedBeforeTheyAreMade) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"3"}).Output("y");
  builder.Integers("shape", {1 << 20, 1 << 20, 1 << 20});
  builder.Node("ConstantOfShape", {"shape"}, "c");
  builder.Node("Add", {"x", "c"}, "y");
  EXPECT_TRUE(absl::StrContains(LoweredOps(builder), "at most")) << LoweredOps(builder);
}

TEST(ImportModel, FunctionsOfTheFileStandInThePlacesOfTheirCalls) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"3"}).Output("y");
  proto::OnnxFunction* function = builder.mutable_model()->add_function();
  function->set_name("Twice");
  function->set_domain("local");
  function->add_input("a");
  function->add_output("b");
  proto::OnnxNode* inner = function->add_node();
  inner->set_op("Elu");
  inner->add_input("a");
  inner->add_output("t");
  proto::OnnxAttribute* alpha = inner->add_attribute();
  alpha->set_name("alpha");
  alpha->set_reference("strength");
  inner = function->add_node();
  inner->set_op("Add");
  inner->add_input("t");
  inner->add_input("t");
  inner->add_output("b");
  proto::OnnxNode* call = builder.Node("Twice", {"x"}, "y");
  call->set_domain("local");
  proto::OnnxAttribute* strength = call->add_attribute();
  strength->set_name("strength");
  strength->set_f(0.25f);
  auto lowered = Lower(builder.model(), {});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(OpsOf(lowered->graph), "elu add");
  EXPECT_EQ(lowered->graph.nodes[0].attrs.Real("alpha"), 0.25);

  inner = function->add_node();
  inner->set_op("Twice");
  inner->set_domain("local");
  inner->add_input("a");
  inner->add_output("c");
  EXPECT_TRUE(absl::StrContains(LoweredOps(builder), "W0835")) << "a function that calls itself";
}

// ---- files

TEST(ModelFile, DamagedAndHugeFilesAreRefused) {
  EXPECT_TRUE(absl::StrContains(ParseModel("not a model", "m").status().message(), "W0830"));
  EXPECT_TRUE(absl::StrContains(ParseModel("", "m").status().message(), "W0830"));
  // Empty nodes: two bytes each, and a message each.
  std::string nodes;
  for (int i = 0; i < kMessagesMax + 1; ++i) nodes += std::string("\x0a\x00", 2);
  std::string model = "\x3a";
  for (uint64_t length = nodes.size();; length >>= 7) {
    model += static_cast<char>(length < 0x80 ? length : (length & 0x7f) | 0x80);
    if (length < 0x80) break;
  }
  const std::string error(ParseModel(model + nodes, "m").status().message());
  EXPECT_TRUE(absl::StrContains(error, "W0830")) << error;
}

proto::OnnxTensor External(const std::string& location, const std::string& offset = "0") {
  proto::OnnxTensor tensor;
  tensor.add_dims(2);
  tensor.set_type(static_cast<int>(Element::kF32));
  tensor.set_place(1);
  for (const auto& [key, value] : {std::pair{"location", location}, {"offset", offset}}) {
    proto::OnnxEntry* entry = tensor.add_external();
    entry->set_key(key);
    entry->set_value(value);
  }
  return tensor;
}

TEST(ModelFile, ElementsInOtherFilesStayInTheFolderOfTheModel) {
  TemporaryFolder outside, folder;
  const float values[] = {1, 2, 3};
  for (const std::string& path : {outside.path(), folder.path()})
    std::ofstream(path + "/data", std::ios::binary)
        .write(reinterpret_cast<const char*>(values), sizeof(values));
  const ExternalFiles files{folder.path()};
  auto read = Decode(External("data", "4"), files, 100, "w");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->reals, (std::vector<float>{2, 3}));
  std::filesystem::create_symlink(outside.path() + "/data", folder.path() + "/link");
  const std::string other =
      "../" + std::filesystem::path(outside.path()).filename().string() + "/data";
  for (const std::string& location :
       {other, outside.path() + "/data", std::string("link"), std::string()}) {
    const auto refused = Decode(External(location), files, 100, "w");
    EXPECT_TRUE(absl::StrContains(refused.status().message(), "W0832"))
        << location << ": " << refused.status();
  }
  EXPECT_TRUE(absl::StrContains(Decode(External("data", "8"), files, 100, "w").status().message(),
                                "W0832"));
  EXPECT_TRUE(absl::StrContains(Decode(External("data", "-4"), files, 100, "w").status().message(),
                                "W0832"));
  EXPECT_EQ(Decode(External("none"), files, 100, "w").status().code(), absl::StatusCode::kNotFound);
}

TEST(ModelFile, ShapesThatDoNotFitTheElementsAreRefused) {
  proto::OnnxTensor tensor;
  tensor.set_type(static_cast<int>(Element::kF32));
  for (int i = 0; i < 8; ++i) tensor.add_dims(int64_t{1} << 20);
  EXPECT_TRUE(absl::StrContains(Decode(tensor, {}, 100, "w").status().message(), "W0831"));
  tensor.clear_dims();
  tensor.add_dims(-1);
  EXPECT_TRUE(absl::StrContains(Decode(tensor, {}, 100, "w").status().message(), "W0831"));
  tensor.set_dims(0, 3);
  tensor.add_floats(1);
  EXPECT_TRUE(absl::StrContains(Decode(tensor, {}, 100, "w").status().message(), "W0831"));
}

// `rounds` blocks x + relu(x w + b) * gate, whose weights are numbered and whose gate is shared.
ModelBuilder LayeredModel(int rounds) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"6", "8"}).Output("logits");
  builder.Weight("gate", {8}).Weight("head", {8, 5});
  std::string x = "x";
  builder.Weight("stem", {8, 8});
  builder.Node("MatMul", {x, "stem"}, "stemmed");
  x = "stemmed";
  for (int r = 0; r < rounds; ++r) {
    const std::string block = absl::StrCat("net.blocks.", r, ".");
    builder.Weight(absl::StrCat(block, "w"), {8, 8}).Weight(absl::StrCat(block, "b"), {8});
    builder.Node("MatMul", {x, absl::StrCat(block, "w")}, absl::StrCat("p", r));
    builder.Node("Add", {absl::StrCat("p", r), absl::StrCat(block, "b")}, absl::StrCat("q", r));
    builder.Node("Relu", {absl::StrCat("q", r)}, absl::StrCat("r", r));
    builder.Node("Mul", {absl::StrCat("r", r), "gate"}, absl::StrCat("s", r));
    builder.Node("Add", {x, absl::StrCat("s", r)}, absl::StrCat("y", r));
    x = absl::StrCat("y", r);
  }
  builder.Node("MatMul", {x, "head"}, "logits");
  return builder;
}

std::vector<std::string> CallsOf(const proto::Job& job) {
  std::vector<std::string> calls;
  for (const proto::Node& node : job.graph().function(0).node()) {
    if (node.op() == "call") calls.push_back(node.name());
  }
  return calls;
}

TEST(ImportModel, BlocksThatRepeatAreCallsOfOneFunctionAndKeepTheNamesOfTheirWeights) {
  const ModelBuilder builder = LayeredModel(3);
  ImportOptions options;
  options.loss = "cross_entropy";
  const auto imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(CallsOf(imported->job),
            (std::vector<std::string>{"net.blocks.0", "net.blocks.1", "net.blocks.2"}));
  ASSERT_EQ(imported->job.graph().function_size(), 2);
  const proto::Function& layer = imported->job.graph().function(1);
  EXPECT_EQ(layer.parameter_size(), 2);
  EXPECT_EQ(layer.input_size(), 2) << "the value that goes through, and the gate";
  for (const char* name : {"gate", "head", "stem", "net.blocks.0.w", "net.blocks.2.b"})
    EXPECT_EQ(std::count(imported->names.begin(), imported->names.end(), name), 1) << name;
  EXPECT_EQ(imported->names.size(), 9u);
}

TEST(ImportModel, BlocksAreNoLayersIfSomethingElseReadsInsideThem) {
  ModelBuilder builder = LayeredModel(2);
  builder.Node("MatMul", {"r0", "head"}, "other");
  builder.Node("Add", {"logits", "other"}, "sum");
  builder.graph()->mutable_output(0)->set_name("sum");
  ImportOptions options;
  options.loss = "cross_entropy";
  const auto imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_TRUE(CallsOf(imported->job).empty());
}

TEST(ImportModel, AnInnerWeightThatTwoBlocksShareKeepsThemApart) {
  ModelBuilder builder = LayeredModel(3);
  // The second block reads the weight of the first.
  for (proto::OnnxNode& node : *builder.graph()->mutable_node()) {
    for (std::string& input : *node.mutable_input()) {
      if (input == "net.blocks.1.w") input = "net.blocks.0.w";
    }
  }
  ImportOptions options;
  options.loss = "cross_entropy";
  const auto imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_LT(CallsOf(imported->job).size(), 3u);
}

// A file for inference: the logits, a softmax, and an output that Weir cannot compute.
ModelBuilder Classifier() {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"6", "5"}).Output("chances").Output("odd");
  builder.Weight("w", {5, 4});
  builder.Node("MatMul", {"x", "w"}, "logits");
  builder.Node("Softmax", {"logits"}, "chances");
  builder.Node("Unheard", {"chances"}, "odd");
  return builder;
}

TEST(ImportModel, CrossEntropyReadsWhatASoftmaxAtTheEndReads) {
  ImportOptions options;
  options.loss = "cross_entropy";
  std::vector<std::string> jobs;
  for (const char* output : {"logits", "chances"}) {
    options.output = output;
    ModelBuilder builder = Classifier();
    const auto imported = ImportModel(builder.model(), options);
    ASSERT_TRUE(imported.ok()) << imported.status();
    jobs.push_back(imported->job.DebugString());
    EXPECT_THAT(jobs.back(), ::testing::Not(::testing::HasSubstr("\"softmax\"")));
  }
  EXPECT_EQ(jobs[0], jobs[1]);
}

TEST(ImportModel, NodesThatTheChosenOutputDoesNotNeedAreLeftOut) {
  ModelBuilder builder = Classifier();
  ImportOptions options;
  options.loss = "mse";
  options.output = "odd";
  EXPECT_THAT(ImportModel(builder.model(), options).status().message(),
              testing::HasSubstr("Unheard"));
  options.output = "nothing";
  EXPECT_THAT(ImportModel(builder.model(), options).status().message(),
              testing::HasSubstr("Unheard"));
  options.output = "chances";
  EXPECT_TRUE(ImportModel(builder.model(), options).ok());
}

TEST(ImportModel, WeightsWrittenAsConstantNodesAreTrained) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"6", "5"}).Output("y");
  builder.Weight("w", {5, 4}).Weight("six", {1});
  for (const proto::OnnxTensor& tensor : builder.graph()->initializer()) {
    proto::OnnxAttribute* const value =
        builder.Node("Constant", {}, tensor.name())->add_attribute();
    value->set_name("value");
    *value->mutable_t() = tensor;
  }
  builder.graph()->clear_initializer();
  builder.Node("MatMul", {"x", "w"}, "product");
  builder.Node("Div", {"product", "six"}, "y");
  proto::OnnxModel model = builder.model();
  EXPECT_EQ(MakeWeightsOfConstants(&model), 1);
  EXPECT_EQ(MakeWeightsOfConstants(&model), 0) << "a model with a weight stays as it is";
  ImportOptions options;
  options.loss = "mse";
  const auto imported = ImportModel(model, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->names, testing::ElementsAre("w"));
  EXPECT_TRUE(imported->weights[0].trained);
}

TEST(ImportModel, TrainingLeavesTheStatisticsOfBatchNormalisationAlone) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"6", "5"}).Output("y");
  for (const char* name : {"factor", "offset", "mean", "variance"}) builder.Weight(name, {5});
  builder.Node("BatchNormalization", {"x", "factor", "offset", "mean", "variance"}, "y");
  const auto lowered = Lower(builder.model(), {});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::map<std::string, bool> trained;
  for (const GraphParameter& parameter : lowered->graph.parameters)
    trained[parameter.name] = parameter.trained;
  EXPECT_EQ(trained,
            (std::map<std::string, bool>{
                {"factor", true}, {"mean", false}, {"offset", true}, {"variance", false}}));
}

TEST(ImportModel, AModelMadeForTrainingUpdatesTheStatisticsOfBatchNormalisation) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"6", "5"}).Output("y");
  for (const char* name : {"factor", "offset", "mean", "variance"}) builder.Weight(name, {5});
  proto::OnnxNode* const node =
      builder.Node("BatchNormalization", {"x", "factor", "offset", "mean", "variance"}, "y");
  ModelBuilder::Int(node, "training_mode", 1);
  proto::OnnxAttribute* const momentum = node->add_attribute();
  momentum->set_name("momentum");
  momentum->set_type(1);  // a real number
  momentum->set_f(0.75);
  ImportOptions options;
  options.loss = "mse";
  const auto imported = ImportModel(builder.model(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<std::string> averages;
  for (const proto::Node& made : imported->job.graph().function(0).node()) {
    if (made.op() != "moving_average") continue;
    averages.push_back(made.input(1));
    EXPECT_EQ(made.attr(0).value().f(), 0.25);
  }
  EXPECT_THAT(averages, testing::ElementsAre("mean", "variance"));
  for (const proto::Parameter& parameter : imported->job.graph().function(0).parameter())
    EXPECT_FALSE(parameter.frozen() || parameter.decay()) << parameter.name();
}

// Returns a perceptron of two weights.
proto::OnnxModel Perceptron() {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"8", "6"}).Output("y");
  builder.Weight("up", {6, 16}).Weight("down", {16, 4});
  builder.Node("MatMul", {"x", "up"}, "h");
  builder.Node("Relu", {"h"}, "r");
  builder.Node("MatMul", {"r", "down"}, "y");
  return builder.model();
}

TEST(ImportModel, FrozenInitializersStayParametersThatTrainingLeavesAlone) {
  ImportOptions options;
  options.loss = "mse";
  options.frozen = {"u*"};
  const auto imported = ImportModel(Perceptron(), options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::map<std::string, bool> frozen;
  for (const proto::Parameter& parameter : imported->job.graph().function(0).parameter())
    frozen[parameter.name()] = parameter.frozen();
  EXPECT_EQ(frozen, (std::map<std::string, bool>{{"down", false}, {"up", true}}));
  options.frozen = {"left"};
  EXPECT_THAT(std::string(ImportModel(Perceptron(), options).status().message()),
              testing::HasSubstr("--freeze left"));
}

TEST(Sharding, IsWrittenForEachReaderAndReadAsRules) {
  proto::OnnxModel model = Perceptron();
  ModelSharding sharding{.num_devices = 8, .num_stages = 2};
  sharding.tensors["x"] = {{2, 1}, {{0, 1}, {2, 3}}, 0};
  sharding.tensors["up"] = {{1, 2}, {{0, 2}, {1, 3}}, 0};
  sharding.tensors["down"] = {{1, 1}, {{4, 5, 6, 7}}, 1};
  AddSharding(sharding, &model);
  EXPECT_EQ(model.ir_version(), kShardingIrVersion);
  EXPECT_EQ(model.configuration(0).devices(), 8);
  std::vector<int> stages;
  for (const proto::OnnxNode& node : model.graph().node())
    stages.push_back(node.configuration(0).stage());
  EXPECT_THAT(stages, testing::ElementsAre(0, 0, 1));
  const proto::OnnxSharding& up = model.graph().node(0).configuration(0).sharding(1);
  EXPECT_EQ(up.tensor(), "up");
  EXPECT_THAT(up.device(), testing::ElementsAre(-1, -2));
  EXPECT_THAT(up.group(1).device(), testing::ElementsAre(1, 3));
  EXPECT_EQ(up.dim(0).axis(), 1);
  EXPECT_EQ(up.dim(0).part(0).shards(), 2);

  ImportOptions options;
  options.loss = "mse";
  const auto imported = ImportModel(model, options);
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<std::string> axes;
  for (const proto::Rule& rule : imported->job.rule()) axes.push_back(rule.axis());
  EXPECT_THAT(axes, testing::ElementsAre("dp", "tp"));
  EXPECT_THAT(imported->notes, testing::Contains(testing::HasSubstr("that the file hints at")));
}

TEST(Sharding, HintsThatMakeNoSenseAreLeftOut) {
  proto::OnnxModel model = Perceptron();
  proto::OnnxSharding* const sharding =
      model.mutable_graph()->mutable_node(0)->add_configuration()->add_sharding();
  sharding->set_tensor("up");
  for (int64_t shards : {int64_t{0}, int64_t{-4}, int64_t{1} << 62}) {
    proto::OnnxShardedDim* const dim = sharding->add_dim();
    dim->set_axis(1);
    dim->add_part()->set_shards(shards);
    dim->add_part()->set_shards(shards);
  }
  EXPECT_TRUE(ShardingHints(model).empty());
  sharding->mutable_dim(0)->set_axis(77);
  sharding->mutable_dim(0)->mutable_part(0)->set_shards(2);
  sharding->mutable_dim(0)->mutable_part(1)->set_shards(3);
  ASSERT_EQ(ShardingHints(model).size(), 1u);
  EXPECT_EQ(ShardingHints(model)[0].shards, 6);
  ImportOptions options;
  options.loss = "mse";
  EXPECT_TRUE(ImportModel(model, options).ok()) << "an axis that the tensor lacks is left out";
}

TEST(ImportModel, LossesByLabelsLeaveTheWeightsOfClassesAsTheyAre) {
  ModelBuilder builder;
  builder.Input("x", Element::kF32, {"6", "5"})
      .Input("labels", Element::kI64, {"6"})
      .Output("loss");
  builder.Weight("per_class", {5});
  builder.Node("LogSoftmax", {"x"}, "logs");
  builder.Node("NegativeLogLikelihoodLoss", {"logs", "labels", "per_class"}, "loss");
  const auto lowered = Lower(builder.model(), {});
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  for (const GraphParameter& parameter : lowered->graph.parameters)
    EXPECT_FALSE(parameter.trained) << parameter.name;
}

}  // namespace
}  // namespace weir::onnx
