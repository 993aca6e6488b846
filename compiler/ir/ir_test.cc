#include "compiler/ir/ir.h"

#include "compiler/ir/job_rhythm.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"
#include "compiler/ir/stage_shape.h"
#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

TEST(Function, KnowsWhichNodeMakesAValueAndWhichArgumentItIs) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  const ops::ValueId w = maker.Parameter("w", "f32[wide, classes]");
  const ops::ValueId logits = maker.Node("logits", "matmul", {x, w});
  const ops::ValueId labels = maker.Input("labels", "i32[batch]");
  const std::vector<ops::ValueId> losses =
      maker.Nodes(3, "losses", "softmax_cross_entropy", {logits, labels});
  const Function& function = maker.function;
  EXPECT_EQ(function.ProducerOf(x), -1);
  EXPECT_EQ(function.ProducerOf(logits), 0);
  EXPECT_EQ(function.ProducerOf(losses[2]), 1);
  EXPECT_EQ(function.ArgOf(x), 0);
  EXPECT_EQ(function.ArgOf(labels), 2);
  EXPECT_EQ(function.ArgOf(logits), -1);
}

TEST(FunctionText, ShowsArgumentsNodesAndResultsWithTypesLayoutsAndReasons) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch, wide]");
  const ops::ValueId w = maker.Parameter("w", "f32[wide, deep]");
  const ops::ValueId seed = maker.function.AddValue("seed", TypeOf("f32[]"));
  maker.function.args.push_back({seed, ArgKind::kFixed});
  const ops::ValueId y = maker.Node("y", "matmul", {x, w});
  maker.Return(y);
  maker.function.results.push_back({seed, ResultKind::kNatural, {}, true});
  const sbp::Mesh mesh = MeshOf("dp=2");
  EXPECT_EQ(ToText(maker.function, mesh),
            "function f\n"
            "  arg %x: f32[batch=4, wide=4]\n"
            "  parameter %w: f32[wide=4, deep=8]\n"
            "  fixed %seed: f32[]\n"
            "  %y: f32[batch=4, deep=8] = matmul(%x, %w) {activation: \"none\", transpose_w: "
            "false}\n"
            "  return %y: f32[batch=4, deep=8]\n"
            "  return per step %seed: f32[]\n");
  for (Value& value : maker.function.values) value.layout = {sbp::Sbp::B()};
  maker.function.values[y].layout = {sbp::Sbp::S(0)};
  maker.function.values[y].why = {{LayoutReason::Kind::kRule, "batch -> dp", 0}};
  EXPECT_THAT(
      ToText(maker.function, mesh),
      ::testing::AllOf(::testing::HasSubstr("  arg %x: f32[batch=4, wide=4] [dp: B]\n"),
                       ::testing::HasSubstr("  # dp: rule batch -> dp\n"),
                       ::testing::HasSubstr("  return %y: f32[batch=4, deep=8] [dp: S(0)]\n")));
}

TEST(FunctionText, ShowsAnAbsentOperandAsADash) {
  FunctionMaker maker("f");
  const ops::ValueId x = maker.Input("x", "f32[batch]");
  maker.Node("y", "relu", {x});
  maker.function.nodes[0].inputs.push_back(-1);
  EXPECT_THAT(ToText(maker.function, sbp::Mesh()), ::testing::HasSubstr("= relu(%x, -)"));
}

TEST(ProgramText, IsEmptyBeforeThereIsAProgram) {
  EXPECT_EQ(ProgramText(SmallClassifier(), MeshOf("dp=2")), "");
}

TEST(ProgramText, ShowsVariablesAndItemsWithPlacesRatesFeedsAndStates) {
  const sbp::Mesh mesh = MeshOf("dp=2");
  const sbp::TensorType type = TypeOf("f32[wide]");
  Module module;
  module.functions.emplace_back().name = "update";
  const auto value = [&](const char* name, int64_t stage) {
    ProgramValue made;
    made.name = name;
    made.type = type;
    made.layout = {sbp::Sbp::B()};
    made.stage = stage;
    return module.AddValue(made);
  };
  const int x = value("x", 0), there = value("x", 1), w = value("w", 1);
  module.values[there].delay = 2;
  module.variables.push_back({"w", type, {}, true, 1, {sbp::Sbp::S(0)}, w});
  ProgramItem source, boxing, call, sink;
  source.kind = ItemKind::kSource;
  source.outputs = {x};
  source.feed = "images";
  boxing.kind = ItemKind::kBoxing;
  boxing.inputs = {x};
  boxing.outputs = {there};
  call.function = 0;
  call.inputs = {there};
  call.outputs = {w};
  call.frequency = Frequency::kUpdate;
  call.states = {{"w/adam_m", "w", {sbp::Sbp::S(0)}}, {"w/adam_v", "w", {sbp::Sbp::B()}}};
  sink.kind = ItemKind::kSink;
  sink.inputs = {w};
  sink.frequency = Frequency::kAfterUpdate;
  module.items = {source, boxing, call, sink};
  EXPECT_EQ(ProgramText(module, mesh),
            "program\n"
            "  variable w: f32[wide=4] [dp: S(0)] @1 decay\n"
            "  %x: f32[wide=4] [dp: B] @0 = source() feed images\n"
            "  %x: f32[wide=4] [dp: B] @1 = boxing(%x [dp: B] @0) read 2 later\n"
            "  %w: f32[wide=4] [dp: B] @1 = call update(%x [dp: B] @1) state w/adam_m [dp: S(0)], "
            "w/adam_v [dp: B] per update\n"
            "  sink(%w [dp: B] @1) after update\n");
  module.items = {sink};
  module.items[0].frequency = Frequency::kStep;
  EXPECT_THAT(ProgramText(module, mesh), ::testing::HasSubstr("sink(%w [dp: B] @1) per step\n"));
}

// The number of times by a count over the micro-batches of the steps between two updates.
TEST(LogicalPlan, CountsWhatHappensFromOneUpdateToTheNext) {
  for (int64_t micro_batches : {1, 3}) {
    for (int64_t every : {1, 4}) {
      LogicalPlan plan;
      plan.micro_batches = micro_batches;
      plan.updates.every = every;
      int64_t acts = 0, steps = 0, updates = 0;
      for (int64_t step = 0; step < every; ++step, ++steps) {
        for (int64_t k = 0; k < micro_batches; ++k) ++acts;
        if (step + 1 == every) ++updates;
      }
      EXPECT_EQ(TimesPerUpdate(plan, Frequency::kMicroBatch), acts);
      EXPECT_EQ(TimesPerUpdate(plan, Frequency::kStep), steps);
      EXPECT_EQ(TimesPerUpdate(plan, Frequency::kUpdate), updates);
      EXPECT_EQ(TimesPerUpdate(plan, Frequency::kAfterUpdate), updates);
    }
  }
}

TEST(RankTensor, OnlyAWeightThatIsReadHereAndADelayHaveTokensFromTheStart) {
  RankTensor tensor;
  EXPECT_EQ(InitialTokens(tensor), 0);
  tensor.delay = 3;
  EXPECT_EQ(InitialTokens(tensor), 3);
  tensor.delay = 0;
  tensor.variable = 0;
  EXPECT_EQ(InitialTokens(tensor), 0) << "nobody would ever take the token";
  tensor.consumers = {ActorId(4)};
  EXPECT_EQ(InitialTokens(tensor), 1);
}

TEST(JobRhythm, FindsOnlyStationsAtWhichAnActorActs) {
  JobRhythm rhythm;
  rhythm.stations.resize(3);
  rhythm.stations[1] = {{10, 2, 1, 5, 0}, {0, 0, 0, 0, 0}, {30, 2, 1, 6, 0}};
  ASSERT_NE(rhythm.Find({1, 2}), nullptr);
  EXPECT_EQ(rhythm.Find({1, 2})->start_ns, 30);
  for (const Station& none : {Station{1, 1}, Station{1, 3}, Station{1, -1}, Station{0, 0},
                              Station{2, 0}, Station{3, 0}, Station{-1, 0}})
    EXPECT_EQ(rhythm.Find(none), nullptr) << none.item << "." << none.index;
}

TEST(JobRhythm, TextShowsTimesAndSolvedSlotsAndLeavesOutEmptyPlaces) {
  JobRhythm rhythm;
  rhythm.iteration_ns = 100;
  rhythm.micro_batch_ns = 40;
  rhythm.stations = {{{0, 0, 0, 0, 0}, {10, 2, 1, 5, 7}}};
  rhythm.slots[{{0, 1}, {{3, 0}, {4, 0}}, 2, 0}] = 6;
  EXPECT_EQ(ToText(rhythm),
            "iteration 100 ns, micro-batch 40 ns\n"
            "  station 0.1 starts at 10 + 2 a micro-batch + 1 a chunk, takes 5 ns, messages 7 ns\n"
            "  outputs of 0.1 for 2 readers, slots 6\n");
}

TEST(StageShape, TextShowsStationsTensorsOrdersAndTheGate) {
  StageShape shape;
  shape.graph.stage = 1;
  RankActor actor;
  actor.name = "forward layers.0";
  actor.station = {2, 3};
  actor.acts_per_step = 4;
  shape.graph.actors = {actor};
  shape.tensors[{{2, 3}, 0}] = {{{5, 0}, {6, 1}}, 2};
  shape.orders = {{{2, 3}, {{7, 0}}, 1}};
  shape.gate = {{8, 0}, {9, 0}};
  EXPECT_EQ(ToText(std::vector<StageShape>{shape}),
            "stage 1\n"
            "  station 2.3 'forward layers.0', 4 acts a step\n"
            "  output 0 of 2.3 read by 5.0 6.1, slots 2\n"
            "  2.3 before 7.0, lag 1\n"
            "  gate 8.0 before 9.0\n");
}

}  // namespace
}  // namespace weir::compiler
