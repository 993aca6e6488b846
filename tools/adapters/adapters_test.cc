// The edit of the graph, its reading back, and files of weights with adapters. Whole runs are in
// tests/training/adapters_test.cc and tests/oracle/adapters_test.py.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/compile.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/adapters/adapter_files.h"
#include "tools/adapters/add_adapters.h"
#include "tools/adapters/find_adapters.h"
#include "tools/adapters/graph_weights.h"
#include "tools/zoo/gpt.h"

namespace weir::adapters {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A function with one product of each kind, called twice, and a head that is stored transposed.
constexpr char kJob[] = R"(
  graph {
    dim { name: "batch" size: 4 }
    dim { name: "hidden" size: 6 }
    dim { name: "wide" size: 8 unit: 2 }
    dim { name: "classes" size: 5 }
    function {
      name: "layer"
      input { name: "x" type: "f32[batch, hidden]" }
      parameter { name: "up" type: "f32[hidden, wide]" init { normal { std: 0.5 } } decay: true }
      parameter { name: "up_bias" type: "f32[wide]" }
      parameter { name: "down" type: "f32[wide, hidden]" init { normal { std: 0.5 } } }
      parameter { name: "gain" type: "f32[hidden, hidden]" init { ones: true } frozen: true }
      node { name: "h" op: "matmul" input: ["x", "up", "up_bias"]
             attr { name: "activation" value { s: "gelu" } } }
      node { name: "d" op: "matmul" input: ["h", "down"] }
      node { name: "g" op: "reduce_sum" input: "gain" attr { name: "axes" value { ints { values: 0 } } } }
      node { name: "scaled" op: "mul" input: ["d", "g"] }
      node { name: "y" op: "add" input: ["x", "scaled"] }
      output: "y"
    }
    function {
      name: "main"
      input { name: "x" type: "f32[batch, hidden]" }
      input { name: "labels" type: "i32[batch]" }
      parameter { name: "head" type: "f32[classes, hidden]" init { normal { std: 0.5 } } }
      node { name: "layers" op: "call" function: "layer" input: "x" output: "encoded" repeat: 2 }
      node { name: "logits" op: "matmul" input: ["encoded", "head"]
             attr { name: "transpose_w" value { b: true } } }
      node { name: "losses" op: "softmax_cross_entropy" input: ["logits", "labels"] }
      node { name: "loss" op: "reduce_mean" input: "losses" }
      output: "loss"
    }
    main: "main"
  }
  data { synthetic {} }
  training { steps: 1 optimizer { sgd {} } schedule { learning_rate: 0.1 } }
)";

proto::Job JobOf(const std::string& text) {
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

AdapterOptions Options(int64_t rank, double alpha = 0, std::vector<std::string> on = {},
                       std::vector<std::string> train = {}) {
  return {rank, alpha, std::move(on), std::move(train)};
}

std::string ErrorOf(const AdapterOptions& options, const std::string& text = kJob) {
  proto::Job job = JobOf(text);
  const std::string before = job.SerializeAsString();
  const absl::Status status = AddAdapters(options, &job).status();
  EXPECT_EQ(job.SerializeAsString(), before) << "an error leaves the job as it was";
  return std::string(status.message());
}

proto::Job Edited(const AdapterOptions& options, const std::string& text = kJob) {
  proto::Job job = JobOf(text);
  const auto added = AddAdapters(options, &job);
  EXPECT_TRUE(added.ok()) << added.status();
  return job;
}

// The weights of a job by name, as the compiler has them.
weights::WeightTypes TypesOf(const proto::Job& job) {
  compiler::CompileOptions options;
  options.mode = compiler::PlanMode::kEvaluate;
  options.program_only = true;
  const auto plan = compiler::CompileJob(job, options);
  weights::WeightTypes types;
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return types;
  for (const compiler::Variable& variable : (*plan)->module.variables)
    types[variable.name] = {variable.type.dtype, variable.type.shape()};
  return types;
}

// Nodes as "name = op(inputs)", with the attributes that matter here.
std::vector<std::string> NodesOf(const proto::Function& function) {
  std::vector<std::string> lines;
  for (const proto::Node& node : function.node()) {
    std::string line = absl::StrCat(node.name(), " = ", node.op(), "(");
    for (int i = 0; i < node.input_size(); ++i)
      absl::StrAppend(&line, i == 0 ? "" : ", ", node.input(i));
    absl::StrAppend(&line, ")");
    for (const proto::NamedAttr& attr : node.attr()) {
      if (attr.name() == "factor") absl::StrAppend(&line, " * ", attr.value().f());
      if (attr.name() == "activation") absl::StrAppend(&line, " ", attr.value().s());
      if (attr.name() == "transpose_w" && attr.value().b()) absl::StrAppend(&line, " transposed");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> ParametersOf(const proto::Function& function) {
  std::vector<std::string> lines;
  for (const proto::Parameter& parameter : function.parameter())
    lines.push_back(
        absl::StrCat(parameter.name(), " ", parameter.type(), parameter.frozen() ? " frozen" : ""));
  return lines;
}

TEST(AddAdapters, EachProductGetsASecondPathBeforeItsActivation) {
  const proto::Job job = Edited(Options(2, 6));
  const proto::Function& layer = job.graph().function(0);
  EXPECT_THAT(ParametersOf(layer),
              ElementsAre("up f32[hidden, wide] frozen", "up.lora_a f32[hidden, lora_rank]",
                          "up.lora_b f32[lora_rank, wide]", "up_bias f32[wide] frozen",
                          "down f32[wide, hidden] frozen", "down.lora_a f32[wide, lora_rank]",
                          "down.lora_b f32[lora_rank, hidden]", "gain f32[hidden, hidden] frozen"));
  EXPECT_THAT(
      NodesOf(layer),
      ElementsAre("h.base = matmul(x, up, up_bias)", "h.down = matmul(x, up.lora_a)",
                  "h.scaled = scale(h.down) * 3", "h.up = matmul(h.scaled, up.lora_b)",
                  "h.pre = add(h.base, h.up)", "h = gelu(h.pre)", "d.base = matmul(h, down)",
                  "d.down = matmul(h, down.lora_a)", "d.scaled = scale(d.down) * 3",
                  "d.up = matmul(d.scaled, down.lora_b)", "d = add(d.base, d.up)",
                  "g = reduce_sum(gain)", "scaled = mul(d, g)", "y = add(x, scaled)"));
  EXPECT_EQ(job.graph().dim(4).name(), "lora_rank");
  EXPECT_EQ(job.graph().dim(4).size(), 2);
  const proto::Parameter& a = layer.parameter(1);
  EXPECT_DOUBLE_EQ(a.init().uniform().high(), 1 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(a.init().uniform().low(), -1 / std::sqrt(6.0));
  EXPECT_TRUE(layer.parameter(2).init().zeros());
  EXPECT_TRUE(a.decay());
}

TEST(AddAdapters, ATransposedWeightHasTransposedAdapters) {
  const proto::Job job = Edited(Options(2));
  const proto::Function& main = job.graph().function(1);
  EXPECT_THAT(ParametersOf(main),
              ElementsAre("head f32[classes, hidden] frozen", "head.lora_a f32[lora_rank, hidden]",
                          "head.lora_b f32[classes, lora_rank]"));
  // An alpha that is not given is the rank, and then there is nothing to scale.
  EXPECT_THAT(
      NodesOf(main),
      ElementsAre("layers = call(x)", "logits.base = matmul(encoded, head) transposed",
                  "logits.down = matmul(encoded, head.lora_a) transposed",
                  "logits.up = matmul(logits.down, head.lora_b) transposed",
                  "logits = add(logits.base, logits.up)",
                  "losses = softmax_cross_entropy(logits, labels)", "loss = reduce_mean(losses)"));
  EXPECT_DOUBLE_EQ(main.parameter(1).init().uniform().high(), 1 / std::sqrt(6.0))
      << "the input of the product, whatever the order of the dimensions";
}

TEST(AddAdapters, ThePatternsChooseWeightsAndWhatElseTrains) {
  proto::Job job = JobOf(kJob);
  const auto added = AddAdapters(Options(2, 0, {"layers.?.up*"}, {"*bias", "*gain"}), &job);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_THAT(added->weights, ElementsAre("layers.0.up", "layers.1.up"));
  EXPECT_THAT(ParametersOf(job.graph().function(0)),
              ElementsAre("up f32[hidden, wide] frozen", "up.lora_a f32[hidden, lora_rank]",
                          "up.lora_b f32[lora_rank, wide]", "up_bias f32[wide]",
                          "down f32[wide, hidden] frozen", "gain f32[hidden, hidden] frozen"))
      << "what the job freezes stays frozen";
  EXPECT_EQ(added->trained, 2 * (2 * (6 + 8) + 8));
  EXPECT_EQ(added->frozen, 2 * (48 + 48 + 36) + 30);
}

TEST(AddAdapters, TheEditedJobCompilesAndHasTheWeightsThatTheEditNames) {
  const proto::Job job = Edited(Options(3));
  const weights::WeightTypes types = TypesOf(job);
  const auto listed = WeightsOfGraph(job.graph());
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::set<std::string> names, compiled;
  for (const GraphWeight& weight : *listed) names.insert(weight.name);
  for (const auto& [name, type] : types) compiled.insert(name);
  EXPECT_EQ(names, compiled);
  EXPECT_EQ(types.at("layers.1.down.lora_a").shape, (Shape{8, 3}));
}

// Functions within functions, weights that two calls share, and one set for all rounds.
constexpr char kNestedJob[] = R"(
  graph {
    dim { name: "batch" size: 4 }
    dim { name: "hidden" size: 6 }
    function {
      name: "leaf"
      input { name: "x" type: "f32[batch, hidden]" }
      parameter { name: "w" type: "f32[hidden, hidden]" init { normal { std: 0.5 } } }
      node { name: "y" op: "matmul" input: ["x", "w"] }
      output: "y"
    }
    function {
      name: "branch"
      input { name: "x" type: "f32[batch, hidden]" }
      parameter { name: "v" type: "f32[hidden, hidden]" init { normal { std: 0.5 } } }
      node { name: "a" op: "call" function: "leaf" input: "x" repeat: 2 }
      node { name: "b" op: "call" function: "leaf" input: "a" output: "c" }
      node { name: "y" op: "matmul" input: ["c", "v"] }
      output: "y"
    }
    function {
      name: "main"
      input { name: "x" type: "f32[batch, hidden]" }
      input { name: "y" type: "f32[batch, hidden]" }
      node { name: "one" op: "call" function: "branch" input: "x" output: "x1" repeat: 2 }
      node { name: "two" op: "call" function: "branch" input: "x1" output: "x2" repeat: 2 weights: "one" }
      node { name: "three" op: "call" function: "branch" input: "x2" output: "x3" repeat: 3 weights: "three" }
      node { op: "call" function: "leaf" input: "x3" output: "x4" }
      node { name: "difference" op: "sub" input: ["x4", "y"] }
      node { name: "squares" op: "square" input: "difference" }
      node { name: "loss" op: "reduce_mean" input: "squares" }
      output: "loss"
    }
    main: "main"
  }
  data { synthetic {} }
  training { steps: 1 optimizer { sgd {} } schedule { learning_rate: 0.1 } }
)";

TEST(AddAdapters, CallsWithinCallsAndSharedWeightsHaveTheNamesOfTheCompiler) {
  proto::Job job = JobOf(kNestedJob);
  const auto added = AddAdapters(Options(2), &job);
  ASSERT_TRUE(added.ok()) << added.status();
  std::set<std::string> adapted(added->weights.begin(), added->weights.end()), base, names;
  for (const auto& [name, type] : TypesOf(JobOf(kNestedJob))) base.insert(name);
  EXPECT_EQ(adapted, base) << "all weights are matrices of products";
  EXPECT_EQ(base.count("one.1.a.0.w"), 1u);
  EXPECT_EQ(base.count("three.b.w"), 1u);
  const auto found = FindAdapters(job.graph());
  ASSERT_TRUE(found.ok()) << found.status();
  for (const Adapter& adapter : *found) names.insert({adapter.weight, adapter.a, adapter.b});
  std::set<std::string> compiled;
  for (const auto& [name, type] : TypesOf(job)) compiled.insert(name);
  EXPECT_EQ(names, compiled);
}

TEST(AddAdapters, AResultBeforeTheActivationAndATakenNameStay) {
  const std::string text = absl::StrReplaceAll(
      kJob,
      {{"node { name: \"h\" op", "node { name: \"h\" output: [\"h\", \"h.base\"] op"},
       {"dim { name: \"classes\"", "dim { name: \"lora_rank\" size: 7 } dim { name: \"classes\""}});
  const proto::Job job = Edited(Options(2, 0, {"*.up"}), text);
  EXPECT_THAT(NodesOf(job.graph().function(0)),
              ::testing::IsSupersetOf({"h.base_2 = matmul(x, up, up_bias)",
                                       "h.base = add(h.base_2, h.up)", "h = gelu(h.base)"}));
  EXPECT_EQ(job.graph().dim(5).name(), "lora_rank_2");
  TypesOf(job);
}

TEST(AddAdapters, WhatCannotBeDoneIsRefusedWithWhatCan) {
  EXPECT_THAT(ErrorOf(Options(2, 0, {"layers.0.upp"})),
              AllOf(HasSubstr("W0850"), HasSubstr("--on layers.0.up")));
  EXPECT_THAT(ErrorOf(Options(2, 0, {"nothing at all"})),
              AllOf(HasSubstr("W0850"), HasSubstr("head"), HasSubstr("layers.0.down")));
  EXPECT_THAT(ErrorOf(Options(2, 0, {}, {"*.nothing"})), HasSubstr("W0850 at --train"));
  EXPECT_THAT(ErrorOf(Options(2, 0, {"layers.0.*"})),
              AllOf(HasSubstr("W0850"), HasSubstr("layers.0.up fits and layers.1.up does not"),
                    HasSubstr("*.up")));
  EXPECT_THAT(ErrorOf(Options(2, 0, {"*.up_bias"})),
              AllOf(HasSubstr("W0851"), HasSubstr("which has 1 dimension")));
  EXPECT_THAT(ErrorOf(Options(2, 0, {"*.gain"})),
              AllOf(HasSubstr("W0851"), HasSubstr("node g (reduce_sum)")));
  EXPECT_THAT(ErrorOf(Options(6, 0, {"*.up", "head"})),
              AllOf(HasSubstr("W0851"), HasSubstr("at most 5"), HasSubstr("head [6, 5]")));
  EXPECT_THAT(ErrorOf(Options(9)), AllOf(HasSubstr("W0851"), HasSubstr("at most 5")));
  EXPECT_THAT(ErrorOf(Options(0)), HasSubstr("W0851"));
  EXPECT_THAT(ErrorOf(Options(2, -1)), HasSubstr("W0851"));
  proto::Job job = Edited(Options(2));
  EXPECT_THAT(std::string(AddAdapters(Options(2), &job).status().message()),
              AllOf(HasSubstr("W0852"), HasSubstr("head.lora_a")));
}

// As the last layer of a model of few classes.
TEST(AddAdapters, AWeightThatIsSmallerThanTheRankGetsNoneUnlessItIsNamed) {
  proto::Job job = JobOf(kJob);
  const auto added = AddAdapters(Options(6), &job);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_THAT(added->weights,
              ElementsAre("layers.0.up", "layers.1.up", "layers.0.down", "layers.1.down"));
  EXPECT_THAT(added->too_small, ElementsAre("head"));
  EXPECT_THAT(NoteOfTooSmall(*added), HasSubstr("a dimension of head is below the rank"));
  EXPECT_THAT(ParametersOf(job.graph().function(1)),
              ElementsAre("head f32[classes, hidden] frozen"));

  job = JobOf(kJob);
  const auto trained = AddAdapters(Options(6, 0, {}, {"head"}), &job);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_THAT(trained->too_small, IsEmpty());
  EXPECT_EQ(NoteOfTooSmall(*trained), "");
  EXPECT_THAT(ParametersOf(job.graph().function(1)), ElementsAre("head f32[classes, hidden]"));
}

// A table that the embedding reads, too, would change there as well when it is merged.
TEST(AddAdapters, ATiedTableGetsNone) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 8;
  options.heads = 2;
  options.vocab = 16;
  options.sequence = 4;
  options.tied_embeddings = true;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto added = AddAdapters(Options(2), &*job);
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(added->weights.size(), 12u) << "q, k, v, o, up and down of two layers";
  EXPECT_THAT(
      std::string(AddAdapters(Options(2, 0, {"token_table"}), &*(job = zoo::GptJob(options)))
                      .status()
                      .message()),
      AllOf(HasSubstr("W0851"), HasSubstr("embedding")));
}

TEST(FindAdapters, TheNodesSayWhatAnAdapterAdds) {
  const proto::Job job = Edited(Options(2, 5));
  const auto found = FindAdapters(job.graph());
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->size(), 5u);
  EXPECT_EQ((*found)[0].weight, "head");
  EXPECT_TRUE((*found)[0].is_transposed);
  EXPECT_EQ((*found)[1].weight, "layers.0.up");
  EXPECT_EQ((*found)[4].b, "layers.1.down.lora_b");
  EXPECT_FALSE((*found)[4].is_transposed);
  for (const Adapter& adapter : *found) EXPECT_DOUBLE_EQ(adapter.factor, 2.5);
  EXPECT_THAT(*FindAdapters(JobOf(kJob).graph()), IsEmpty());
}

TEST(FindAdapters, AnotherUseOfAdaptersIsRefused) {
  const proto::Job job = Edited(Options(2, 5));
  const auto refused = [&](const std::function<void(proto::Function*)>& change) {
    proto::Job changed = job;
    change(changed.mutable_graph()->mutable_function(0));
    const absl::Status status = FindAdapters(changed.graph()).status();
    return std::string(status.message());
  };
  const auto node = [](proto::Function* function, const std::string& name) {
    for (proto::Node& one : *function->mutable_node()) {
      if (one.name() == name) return &one;
    }
    return static_cast<proto::Node*>(nullptr);
  };
  // Each of these computes something else than a sum of a weight and its adapters.
  const std::vector<std::function<void(proto::Function*)>> changes = {
      [&](auto* f) { node(f, "d.down")->set_input(0, "x"); },
      [&](auto* f) { node(f, "d")->set_op("sub"); },
      [&](auto* f) { node(f, "d.up")->set_input(1, "up.lora_b"); },
      [&](auto* f) { node(f, "scaled")->set_input(0, "d.base"); },
      [&](auto* f) {
        proto::NamedAttr* attr = node(f, "d.base")->add_attr();
        attr->set_name("activation");
        attr->mutable_value()->set_s("relu");
      },
      [&](auto* f) {
        proto::Node again = *node(f, "d.base");
        again.set_name("again");
        *f->add_node() = again;
      },
  };
  for (size_t i = 0; i < changes.size(); ++i)
    EXPECT_THAT(refused(changes[i]), HasSubstr("W0852")) << "change " << i;
  EXPECT_EQ(refused([](auto*) {}), "");
}

using Tensors = std::map<std::string, std::vector<float>>;

class AdapterFilesTest : public ::testing::Test {
 protected:
  // Writes the weights of the job whose names pass `keep`, each element a number of its own.
  template <typename F>
  std::shared_ptr<const store::SafetensorsReader> Write(const std::string& name, float first,
                                                        F&& keep) {
    std::vector<store::SafetensorsWriter::Entry> entries;
    for (const auto& [weight, type] : types_) {
      if (keep(weight)) entries.push_back({weight, type.dtype, type.shape});
    }
    const std::string path = folder_.PathFor(name);
    auto writer = store::SafetensorsWriter::Create(path, entries, {}).value();
    for (size_t i = 0; i < writer->entries().size(); ++i) {
      std::vector<float> values(static_cast<size_t>(NumElements(writer->entries()[i].shape)));
      for (float& value : values) value = std::sin(first += 1);
      EXPECT_EQ(writer->Write(i, values.data()), absl::OkStatus());
    }
    EXPECT_EQ(writer->Commit(), absl::OkStatus());
    return store::SafetensorsReader::Open(path).value();
  }

  Tensors Read(const std::string& name) {
    const auto file = store::SafetensorsReader::Open(folder_.PathFor(name)).value();
    Tensors tensors;
    for (const auto& [tensor, stored] : file->tensors()) {
      tensors[tensor].resize(static_cast<size_t>(NumElements(stored.shape)));
      EXPECT_EQ(
          file->Read(tensor, TensorSlice::Whole(DType::kF32, stored.shape), tensors[tensor].data()),
          absl::OkStatus());
    }
    return tensors;
  }

  static bool IsBase(const std::string& name) { return name.find(".lora_") == std::string::npos; }

  const TemporaryFolder folder_;
  const proto::Job job_ = Edited(Options(2, 5, {}, {"*bias"}));
  const weights::WeightTypes types_ = TypesOf(job_);
  const AdaptedJob adapted_ = AdaptedJobOf(job_.graph(), types_).value();
};

TEST_F(AdapterFilesTest, SmallAndLargeFilesGiveOneAnother) {
  const auto all = Write("all.safetensors", 0, [](const std::string&) { return true; });
  const auto base = Write("base.safetensors", 1000, IsBase);
  const auto from = AdaptedWeights::Open(adapted_, all, nullptr, {});
  ASSERT_TRUE(from.ok()) << from.status();
  ASSERT_EQ(WriteAdapters(adapted_, *from, folder_.PathFor("small.safetensors")), absl::OkStatus());
  const Tensors small = Read("small.safetensors"), whole = Read("all.safetensors");
  EXPECT_EQ(small.size(), 12u) << "five pairs of adapters, and the bias of two layers";
  EXPECT_EQ(small.count("layers.0.up"), 0u);
  for (const auto& [name, values] : small) EXPECT_EQ(values, whole.at(name)) << name;

  const auto joined = AdaptedWeights::Open(
      adapted_, base, store::SafetensorsReader::Open(folder_.PathFor("small.safetensors")).value(),
      {});
  ASSERT_TRUE(joined.ok()) << joined.status();
  ASSERT_EQ(WriteJoined(adapted_, *joined, folder_.PathFor("joined.safetensors")),
            absl::OkStatus());
  const Tensors both = Read("joined.safetensors"), first = Read("base.safetensors");
  EXPECT_EQ(both.size(), types_.size());
  for (const auto& [name, values] : both)
    EXPECT_EQ(values, small.count(name) > 0 ? small.at(name) : first.at(name)) << name;
}

TEST_F(AdapterFilesTest, AMergedWeightIsTheWeightAndTheScaledProduct) {
  const auto all = Write("all.safetensors", 0, [](const std::string&) { return true; });
  const auto from = AdaptedWeights::Open(adapted_, all, nullptr, {});
  ASSERT_TRUE(from.ok()) << from.status();
  ASSERT_EQ(WriteMerged(adapted_, *from, folder_.PathFor("merged.safetensors")), absl::OkStatus());
  const Tensors whole = Read("all.safetensors"), merged = Read("merged.safetensors");
  EXPECT_EQ(merged.size(), TypesOf(JobOf(kJob)).size())
      << "the weights of the job without adapters";
  EXPECT_EQ(merged.at("layers.1.up_bias"), whole.at("layers.1.up_bias"));
  EXPECT_EQ(merged.at("layers.0.gain"), whole.at("layers.0.gain"));
  const auto expect = [&](const std::string& weight, const std::string& left,
                          const std::string& right) {
    const Shape& shape = types_.at(weight).shape;
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < shape[1]; ++j) {
        double sum = whole.at(weight)[i * shape[1] + j];
        for (int64_t k = 0; k < 2; ++k)
          sum += 2.5 * whole.at(left)[i * 2 + k] * whole.at(right)[k * shape[1] + j];
        EXPECT_NEAR(merged.at(weight)[i * shape[1] + j], sum, 1e-6) << weight << i << " " << j;
      }
    }
  };
  expect("layers.0.up", "layers.0.up.lora_a", "layers.0.up.lora_b");
  expect("layers.1.down", "layers.1.down.lora_a", "layers.1.down.lora_b");
  expect("head", "head.lora_b", "head.lora_a");
}

TEST_F(AdapterFilesTest, WhatDoesNotBelongTogetherIsRefused) {
  const auto error = [&](const std::shared_ptr<const store::SafetensorsReader>& weights,
                         const std::shared_ptr<const store::SafetensorsReader>& adapters) {
    return std::string(AdaptedWeights::Open(adapted_, weights, adapters, {}).status().message());
  };
  const auto base = Write("base.safetensors", 0, IsBase);
  EXPECT_THAT(error(base, nullptr), AllOf(HasSubstr("W0853"), HasSubstr("--adapters")));
  EXPECT_THAT(error(base, base), AllOf(HasSubstr("W0853"), HasSubstr("and 9 more")));
  const auto half = Write("half.safetensors", 0, [](const std::string& name) {
    return IsBase(name) || name == "head.lora_a";
  });
  EXPECT_THAT(error(half, nullptr), AllOf(HasSubstr("W0071"), HasSubstr("no head.lora_b")));
  EXPECT_THAT(std::string(AdaptedJobOf(JobOf(kJob).graph(), {}).status().message()),
              HasSubstr("W0852"));
}

}  // namespace
}  // namespace weir::adapters
