#include "compiler/passes/place_calls.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/passes/assign_stages.h"
#include "compiler/testing/small_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/random.h"

namespace weir::compiler {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Place = PipelineSettings::Place;
using Places = std::vector<Place>;

PipelineSchedule ScheduleOn(int64_t stages, ScheduleKind kind = ScheduleKind::kOneFOneB) {
  return ScheduleOf({.schedule = kind}, stages, 8);
}

// Two towers and a join: a.0, a.1 of function "left"; b.0, b.1 of "right"; join of "end".
Module Towers() {
  ModelMaker maker;
  const auto function = [&](const std::string& name, int num_inputs) {
    FunctionMaker made(name);
    ops::ValueId at = made.Input("x", "f32[batch, wide]");
    for (int i = 1; i < num_inputs; ++i) {
      const ops::ValueId other = made.Input(absl::StrCat("x", i), "f32[batch, wide]");
      at = made.Node(absl::StrCat("sum", i), "add", {at, other});
    }
    made.Return(made.Node("y", "relu", {at}));
    return maker.Add(made.function);
  };
  const int left = function("left", 1), right = function("right", 1), end = function("end", 2);
  int a = maker.Data("images", "f32[batch, wide]"), b = maker.Data("words", "f32[batch, wide]");
  for (const char* name : {"a.0", "a.1"}) a = maker.Call(name, left, {a})[0];
  for (const char* name : {"b.0", "b.1"}) b = maker.Call(name, right, {b})[0];
  maker.Call("join", end, {a, b});
  return std::move(maker.module);
}

std::vector<int64_t> StagesOf(const Module& module) {
  std::vector<int64_t> stages;
  for (const ModelCall& call : module.model.calls) {
    EXPECT_EQ(call.part, call.stage);
    stages.push_back(call.stage);
  }
  return stages;
}

std::string Flaw(const Places& places, int64_t stages) {
  Module module = Towers();
  PipelineSchedule schedule = ScheduleOn(stages);
  const absl::Status status = PlaceCalls(places, &schedule, &module);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(PlaceCalls, TowersStandSideBySideBeforeTheirJoin) {
  for (const Places& places :
       {Places{{"a*", "", 0}, {"b*", "", 1}, {"join", "", 2}},
        Places{{"", "left", 0}, {"", "right", 1}, {"", "end", 2}},
        Places{{"a.0", "", 0}, {"", "r*t", 1}, {"j*n*", "", 2}, {"*", "", 0}}}) {
    Module module = Towers();
    PipelineSchedule schedule = ScheduleOn(3);
    ASSERT_TRUE(PlaceCalls(places, &schedule, &module).ok());
    EXPECT_THAT(StagesOf(module), ElementsAre(0, 0, 1, 1, 2));
    EXPECT_THAT(schedule.stages_before, ElementsAre(IsEmpty(), IsEmpty(), ElementsAre(0, 1)));
    EXPECT_THAT(schedule.stages_after, ElementsAre(1, 1, 0));
    EXPECT_THAT(schedule.in_flight, ElementsAre(2, 2, 1)) << "a chain would hold 3, 2 and 1";
    EXPECT_FALSE(schedule.is_chain());
    // The second time gives the same.
    ASSERT_TRUE(PlaceCalls(places, &schedule, &module).ok());
    EXPECT_THAT(StagesOf(module), ElementsAre(0, 0, 1, 1, 2));
    EXPECT_THAT(schedule.in_flight, ElementsAre(2, 2, 1));
  }
}

TEST(PlaceCalls, ALongTowerCountsByItsWay) {
  Module module = Towers();
  PipelineSchedule schedule = ScheduleOn(4);
  ASSERT_TRUE(PlaceCalls({{"a.0", "", 3}, {"a.1", "", 0}, {"b*", "", 1}, {"join", "", 2}},
                         &schedule, &module)
                  .ok());
  EXPECT_THAT(schedule.stages_after, ElementsAre(1, 1, 0, 2));
  EXPECT_EQ(schedule.stages_in_a_row(), 3);
  EXPECT_THAT(schedule.PartsBefore(2), ElementsAre(0, 1));
  EXPECT_THAT(schedule.PartsAfter(3), ElementsAre(0));
}

TEST(PlaceCalls, TheFirstPlaceThatMatchesCounts) {
  Module module = Towers();
  PipelineSchedule schedule = ScheduleOn(2);
  ASSERT_TRUE(PlaceCalls({{"a.0", "", 0}, {"*", "", 1}}, &schedule, &module).ok());
  EXPECT_THAT(StagesOf(module), ElementsAre(0, 1, 1, 1, 1));
}

TEST(PlaceCalls, OtherCallsFollowWhatTheyReadOrElseTheirReaders) {
  Module module = Towers();
  PipelineSchedule schedule = ScheduleOn(2);
  ASSERT_TRUE(PlaceCalls({{"a.1", "", 1}, {"b.0", "", 0}}, &schedule, &module).ok());
  EXPECT_THAT(StagesOf(module), ElementsAre(1, 1, 0, 0, 0)) << "join reads b.1 last";
}

TEST(PlaceCalls, OneStageTakesAllWhateverThePlaces) {
  Module module = Towers();
  PipelineSchedule schedule = ScheduleOn(1);
  ASSERT_TRUE(PlaceCalls({{"b*", "", 5}}, &schedule, &module).ok());
  EXPECT_THAT(StagesOf(module), ElementsAre(0, 0, 0, 0, 0));
  EXPECT_FALSE(schedule.is_placed());
}

TEST(PlaceCalls, FlawsAreNamed) {
  EXPECT_THAT(Flaw({{"a.2", "", 0}}, 2),
              AllOf(HasSubstr("W0453"), HasSubstr("call \"a.2\""), HasSubstr("Try: \"a.")));
  EXPECT_THAT(Flaw({{"", "lefd", 0}}, 2), AllOf(HasSubstr("W0453"), HasSubstr("Try: \"left\"")));
  EXPECT_THAT(Flaw({{"c*", "", 0}}, 2), HasSubstr("W0453"));
  EXPECT_THAT(Flaw({{"a*", "", 2}}, 2),
              AllOf(HasSubstr("W0454"), HasSubstr("0 to 1"), HasSubstr("Try: --mesh pp=3")));
  EXPECT_THAT(Flaw({{"a*", "", -1}}, 2), HasSubstr("W0454"));
  EXPECT_THAT(Flaw({{"a*", "", 99}}, 2), HasSubstr("Try: stage: 1")) << "more stages than calls";
  EXPECT_THAT(Flaw({{"a*", "", 0}, {"b*", "", 1}, {"a.1", "", 1}}, 2),
              AllOf(HasSubstr("W0461 at pipeline.place of call \"a.1\""),
                    HasSubstr("a.1 is on stage 0"), HasSubstr("in front of the other")));
  EXPECT_THAT(Flaw({{"*", "", 1}}, 2), AllOf(HasSubstr("W0455"), HasSubstr("none on stage 0")));
  EXPECT_THAT(Flaw({{"a.0", "", 0}, {"a.1", "", 1}, {"join", "", 0}, {"b*", "", 0}}, 2),
              AllOf(HasSubstr("W0456"), HasSubstr("a.1 on stage 1 reads a.0 on stage 0"),
                    HasSubstr("join on stage 0 reads a.1 on stage 1")));
}

// A longer circle that some stages only lead to or follow: the text shows the circle alone.
TEST(PlaceCalls, TheTextOfACircleShowsTheCircleAlone) {
  ModelMaker maker;
  FunctionMaker relu("f");
  relu.Return(relu.Node("y", "relu", {relu.Input("x", "f32[batch, wide]")}));
  const int f = maker.Add(relu.function);
  int at = maker.Data("x", "f32[batch, wide]");
  Places places;
  const int64_t stage_of[] = {0, 1, 2, 3, 1, 4};  // 1 -> 2 -> 3 -> 1
  for (int c = 0; c < 6; ++c) {
    at = maker.Call(absl::StrCat("c", c), f, {at})[0];
    places.push_back({absl::StrCat("c", c), "", stage_of[c]});
  }
  PipelineSchedule schedule = ScheduleOn(5);
  const std::string text(PlaceCalls(places, &schedule, &maker.module).message());
  EXPECT_THAT(text, AllOf(HasSubstr("c2 on stage 2 reads c1 on stage 1"),
                          HasSubstr("c3 on stage 3 reads c2 on stage 2"),
                          HasSubstr("c4 on stage 1 reads c3 on stage 3")));
  EXPECT_EQ(text.find("on stage 0"), std::string::npos);
  EXPECT_EQ(text.find("on stage 4"), std::string::npos);
}

// Against the definition: stages_after is the longest way, by trying all ways.
TEST(PlaceCalls, RandomGraphsCountTheirLongestWays) {
  int placed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    uint64_t n = 0;
    const auto below = [&](int64_t limit) {
      return static_cast<int64_t>(UniformAt(seed, n++) * static_cast<float>(limit));
    };
    ModelMaker maker;
    FunctionMaker sum("sum");
    const ops::ValueId a = sum.Input("a", "f32[batch, wide]"),
                       b = sum.Input("b", "f32[batch, wide]");
    sum.Return(sum.Node("y", "add", {a, b}));
    const int f = maker.Add(sum.function);
    std::vector<int> values = {maker.Data("x", "f32[batch, wide]")};
    const int64_t stages = 2 + below(4);
    Places places;
    std::vector<std::pair<int64_t, int64_t>> reads;
    for (int c = 0; c < 8; ++c) {
      const int64_t first = below(static_cast<int64_t>(values.size())),
                    second = below(static_cast<int64_t>(values.size()));
      if (first > 0) reads.emplace_back(first - 1, c);
      if (second > 0) reads.emplace_back(second - 1, c);
      values.push_back(maker.Call(absl::StrCat("c", c), f, {values[first], values[second]})[0]);
      places.push_back({absl::StrCat("c", c), "", below(stages)});
    }
    PipelineSchedule schedule = ScheduleOn(stages);
    const absl::Status status = PlaceCalls(places, &schedule, &maker.module);
    // Repeated relaxation: a longest way has fewer steps than there are stages, unless there is a
    // circle.
    std::vector<int64_t> after(stages, 0);
    bool changed = true;
    for (int64_t round = 0; round <= stages && changed; ++round) {
      changed = false;
      for (const auto& [from, to] : reads) {
        const int64_t x = places[from].stage, y = places[to].stage;
        if (x == y || after[x] >= after[y] + 1) continue;
        after[x] = after[y] + 1;
        changed = true;
      }
    }
    if (status.ok()) {
      ++placed;
      EXPECT_FALSE(changed) << "seed " << seed;
      EXPECT_EQ(schedule.stages_after, after) << "seed " << seed;
      for (int64_t s = 0; s < stages; ++s)
        EXPECT_EQ(schedule.in_flight[s], std::min<int64_t>(8, after[s] + 1));
    } else if (status.message().find("W0456") != std::string::npos) {
      EXPECT_TRUE(changed) << "seed " << seed;
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr("W0455")) << "seed " << seed;
    }
  }
  EXPECT_GE(placed, 30);
}

TEST(GiveStagesTheirFunctions, AFunctionOnStagesWithDifferentRulesHasACopyForEach) {
  Module module = Towers();
  module.model.calls[1].stage = 2;  // a.1: the function "left" is on stages 0 and 2
  module.model.calls[2].stage = module.model.calls[3].stage = 1;
  LayoutRules rules(MeshOf("tp=2"));
  GiveStagesTheirFunctions(rules, &module);
  EXPECT_EQ(module.functions.size(), 3u) << "no rule is for a stage";
  rules.AddRule("wide", 0, RuleScope::kAll, {2});
  EXPECT_EQ(rules.FirstWithRulesOf(1), 0);
  EXPECT_EQ(rules.FirstWithRulesOf(2), 2);
  for (int time = 0; time < 2; ++time) {
    GiveStagesTheirFunctions(rules, &module);
    ASSERT_EQ(module.functions.size(), 4u);
    EXPECT_EQ(module.functions[3].name, "left@2");
    EXPECT_EQ(module.functions[3].rules_of_stage, 2);
    EXPECT_EQ(module.functions[0].rules_of_stage, 0);
    EXPECT_EQ(module.model.functions[module.model.calls[1].model_function].forward, 3);
    EXPECT_EQ(module.model.functions[module.model.calls[0].model_function].forward, 0);
  }
  EXPECT_EQ(rules.OnStage(2).Find("wide", 0, RuleScope::kActivations), 0);
  EXPECT_EQ(rules.OnStage(0).Find("wide", 0, RuleScope::kActivations), -1);
}

TEST(GiveStagesTheirFunctions, AFunctionOnStagesOfUnequalMeshesHasACopyForEach) {
  Module module = Towers();
  module.model.calls[1].stage = 2;  // a.1: the function "left" is on stages 0 and 2
  module.model.calls[2].stage = module.model.calls[3].stage = 1;
  LayoutRules rules(MeshOf("dp=2,tp=4"));
  rules.AddRule("wide", 0, RuleScope::kAll);
  rules.AddRule("wide", 1, RuleScope::kAll);
  EXPECT_EQ(rules.FirstWithMeshOf(1), -1);
  rules.SetMeshes({MeshOf("dp=2,tp=1"), MeshOf("dp=2,tp=1"), MeshOf("dp=1,tp=4")});
  EXPECT_TRUE(rules.DifferByStage());
  EXPECT_EQ(rules.FirstWithMeshOf(1), 0);
  EXPECT_EQ(rules.FirstWithRulesOf(2), 2);
  GiveStagesTheirFunctions(rules, &module);
  ASSERT_EQ(module.functions.size(), 4u);
  EXPECT_EQ(module.functions[3].name, "left@2");
  EXPECT_EQ(module.functions[3].stage_of_mesh(), 2);
  // A rule about an axis of one device has no effect on the stage.
  EXPECT_EQ(rules.OnStage(0).Find("wide", 0, RuleScope::kActivations), 0);
  EXPECT_EQ(rules.OnStage(0).Find("wide", 1, RuleScope::kActivations), -1);
  EXPECT_EQ(rules.OnStage(2).Find("wide", 0, RuleScope::kActivations), -1);
  EXPECT_EQ(rules.OnStage(2).stage_mesh().ToText(), "dp=1,tp=4");
}

}  // namespace
}  // namespace weir::compiler
