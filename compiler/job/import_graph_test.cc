// Tests which calls, weights and nodes the importer makes of the functions of a graph.
#include "compiler/job/import_graph.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns a job whose main has the given parameters and nodes, and whose data are x and labels.
proto::Job JobOf(const std::string& parameters_and_nodes) {
  const std::string text = R"(
    graph {
      dim { name: "rows" size: 4 } dim { name: "wide" size: 6 }
      function {
        name: "linear"
        input { name: "a" type: "f32[rows, wide]" }
        parameter { name: "w" type: "f32[wide, wide]" init { normal { std: 0.1 } } decay: true }
        node { name: "y" op: "matmul" input: ["a", "w"] }
        output: "y"
      }
      function {
        name: "given"
        input { name: "a" type: "f32[rows, wide]" } input { name: "w" type: "f32[wide, wide]" }
        parameter { name: "b" type: "f32[wide]" }
        node { name: "y" op: "matmul" input: ["a", "w", "b"] }
        output: "y"
      }
      function {
        name: "pair"
        input { name: "a" type: "f32[rows, wide]" } input { name: "c" type: "f32[rows, wide]" }
        node { name: "up" op: "call" function: "linear" input: "a" repeat: 2 }
        node { name: "down" op: "call" function: "linear" input: "up" output: "z" }
        node { name: "y" op: "add" input: ["z", "c"] }
        output: "y"
      }
      function {
        name: "main"
        input { name: "x" type: "f32[rows, wide]" } input { name: "labels" type: "i32[rows]" }
)" + parameters_and_nodes + R"(
        node { name: "losses" op: "softmax_cross_entropy" input: ["out", "labels"] }
        node { name: "loss" op: "reduce_mean" input: "losses" }
        output: "loss"
      }
      main: "main"
    })";
  proto::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job)) << text;
  return job;
}

absl::StatusOr<Module> Import(const std::string& parameters_and_nodes) {
  const proto::Job job = JobOf(parameters_and_nodes);
  WEIR_ASSIGN_OR_RETURN(const auto dims, ImportDims(job));
  return ImportGraph(job, dims, PlanMode::kTrain);
}

Module Imported(const std::string& parameters_and_nodes) {
  absl::StatusOr<Module> module = Import(parameters_and_nodes);
  EXPECT_TRUE(module.ok()) << module.status();
  return module.ok() ? *std::move(module) : Module();
}

std::string ErrorOf(const std::string& parameters_and_nodes) {
  return std::string(Import(parameters_and_nodes).status().message());
}

// Returns "call: weights" for each call.
std::vector<std::string> WeightsOfCalls(const Module& module) {
  std::vector<std::string> lines;
  for (const ModelCall& call : module.model.calls) {
    std::string line = call.name + ":";
    for (int weight : call.weights) line += " " + module.model.weights[weight].name;
    lines.push_back(line);
  }
  return lines;
}

TEST(ImportGraph, GivesEachRoundWeightsOfItsOwn) {
  const Module module = Imported(
      R"(node { name: "layers" op: "call" function: "linear" input: "x" output: "out" repeat: 2 })");
  EXPECT_THAT(WeightsOfCalls(module),
              ElementsAre("layers.0: layers.0.w", "layers.1: layers.1.w", "main.0:"));
  EXPECT_TRUE(module.model.weights[0].decay);
  EXPECT_EQ(module.model.functions.size(), 2u);
}

TEST(ImportGraph, AParameterOfMainEntersCallsAndNodes) {
  const Module module = Imported(R"(
      parameter { name: "table" type: "f32[wide, wide]" }
      node { name: "first" op: "matmul" input: ["x", "table"] }
      node { name: "layers" op: "call" function: "given" input: "first" shared: "table"
             output: "half" repeat: 2 }
      node { name: "out" op: "matmul" input: ["half", "table"] attr { name: "transpose_w" value { b: true } } })");
  EXPECT_THAT(WeightsOfCalls(module), ElementsAre("main.0: table", "layers.0: table layers.0.b",
                                                  "layers.1: table layers.1.b", "main.1: table"));
  const Function& given = module.functions[module.model.functions[1].forward];
  EXPECT_EQ(given.args[1].kind, ArgKind::kParameter);
  EXPECT_THAT(module.model.calls[1].args, ElementsAre(module.model.calls[0].results[0]));
}

TEST(ImportGraph, AnInputMayBeAWeightInOneCallAndAValueInAnother) {
  const Module module = Imported(R"(
      parameter { name: "table" type: "f32[wide, wide]" }
      input { name: "square" type: "f32[wide, wide]" }
      node { name: "one" op: "call" function: "given" input: ["x", "table"] }
      node { name: "two" op: "call" function: "given" input: ["one", "square"] output: "out" })");
  EXPECT_THAT(WeightsOfCalls(module), ElementsAre("one: table one.b", "two: two.b", "main.0:"));
  EXPECT_NE(module.model.calls[0].model_function, module.model.calls[1].model_function);
}

TEST(ImportGraph, CallsUseTheWeightsOfOtherCalls) {
  const Module module = Imported(R"(
      node { name: "a" op: "call" function: "linear" input: "x" repeat: 2 }
      node { name: "b" op: "call" function: "linear" input: "a" repeat: 2 weights: "a" }
      node { name: "c" op: "call" function: "linear" input: "b" repeat: 2 weights: "c" }
      node { name: "d" op: "call" function: "linear" input: "c" }
      node { name: "e" op: "call" function: "linear" input: "d" output: "out" repeat: 2 weights: "d" })");
  EXPECT_THAT(WeightsOfCalls(module),
              ElementsAre("a.0: a.0.w", "a.1: a.1.w", "b.0: a.0.w", "b.1: a.1.w", "c.0: c.w",
                          "c.1: c.w", "d: d.w", "e.0: d.w", "e.1: d.w", "main.0:"));
}

TEST(ImportGraph, InlinesCallsInsideFunctions) {
  const Module module = Imported(R"(
      node { name: "p" op: "call" function: "pair" input: "x" shared: "x" output: "out" })");
  EXPECT_THAT(WeightsOfCalls(module), ElementsAre("p: p.up.0.w p.up.1.w p.down.w", "main.0:"));
  const Function& pair = module.functions[module.model.functions[0].forward];
  std::vector<std::string> nodes, values;
  for (const Node& node : pair.nodes) {
    nodes.push_back(node.name);
    values.push_back(pair.values[node.outputs[0]].name);
  }
  EXPECT_THAT(nodes, ElementsAre("up.0.y", "up.1.y", "down.y", "y"));
  EXPECT_THAT(values, ElementsAre("up.0.y", "up", "z", "y"));
}

TEST(ImportGraph, RefusesWhatCallsCannotBeGiven) {
  EXPECT_THAT(ErrorOf(R"(
      parameter { name: "x" type: "f32[wide, wide]" }
      node { name: "out" op: "call" function: "linear" input: "x" })"),
              HasSubstr("W0404"));
  EXPECT_THAT(ErrorOf(R"(
      parameter { name: "table" type: "f32[wide]" }
      node { name: "out" op: "call" function: "given" input: ["x", "table"] })"),
              HasSubstr("W0426"));
  EXPECT_THAT(ErrorOf(R"(
      node { name: "a" op: "call" function: "linear" input: "x" }
      node { name: "out" op: "call" function: "pair" input: ["a", "a"] weights: "a" })"),
              HasSubstr("W0420"));
}

TEST(ImportGraph, AMovingAverageIsAParameterWithOneReader) {
  const std::string mean = R"(
      node { name: "mean" op: "reduce_mean" input: "x" attr { name: "axes" value { ints { values: [0] } } } })";
  const std::string average = R"(parameter { name: "average" type: "f32[wide]" })";
  const std::string follow =
      R"( node { name: "m" op: "moving_average" input: ["mean", "average"] })";
  const Module module =
      Imported(average + mean + follow + R"( node { name: "out" op: "sub" input: ["x", "m"] })");
  ASSERT_EQ(module.functions[0].parameters.size(), 1u);
  EXPECT_FLOAT_EQ(module.functions[0].parameters[0].momentum, 0.1f);
  EXPECT_THAT(ErrorOf(mean + R"(
      node { name: "m" op: "moving_average" input: ["mean", "mean"] }
      node { name: "out" op: "sub" input: ["x", "m"] })"),
              HasSubstr("W0317"));
  EXPECT_THAT(ErrorOf(average + mean + follow + R"(
      node { name: "centred" op: "sub" input: ["x", "m"] }
      node { name: "out" op: "add" input: ["centred", "average"] })"),
              HasSubstr("W0317"));
}

TEST(ImportGraph, WithoutTrainingTheResultOfAMovingAverageIsTheAverage) {
  const proto::Job job = JobOf(R"(
      parameter { name: "average" type: "f32[wide]" }
      node { name: "mean" op: "reduce_mean" input: "x" attr { name: "axes" value { ints { values: [0] } } } }
      node { name: "m" op: "moving_average" input: ["mean", "average"] }
      node { name: "out" op: "sub" input: ["x", "m"] })");
  const auto dims = ImportDims(job);
  ASSERT_TRUE(dims.ok());
  const absl::StatusOr<Module> module = ImportGraph(job, *dims, PlanMode::kEvaluate);
  ASSERT_TRUE(module.ok()) << module.status();
  const Function& function = module->functions[0];
  const Node& m = function.nodes[1];
  EXPECT_EQ(m.op, "scale");
  ASSERT_EQ(m.inputs.size(), 1u);
  EXPECT_EQ(function.values[m.inputs[0]].name, "average");
}

}  // namespace
}  // namespace weir::compiler
