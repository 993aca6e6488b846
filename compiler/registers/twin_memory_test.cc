// Tests that stages which share a plan have the memory that their own plans say. Whatever a
// comparison of two stages forgets makes these numbers differ.
#include "compiler/registers/twin_memory.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/testing/small_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

std::unique_ptr<LogicalPlan> Compile(const proto::Job& job, PlanMode mode = PlanMode::kTrain) {
  CompileOptions options;
  options.mode = mode;
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

// Compares the first ranks with the plans that their stages have alone. Returns the number of
// stages that have the plan of another.
int NumShared(const LogicalPlan& plan, const std::string& what) {
  const absl::StatusOr<std::vector<FirstRank>> ranks = LowerFirstRanks(plan);
  EXPECT_TRUE(ranks.ok()) << what << ": " << ranks.status();
  if (!ranks.ok()) return 0;
  int shared = 0;
  for (int64_t stage = 0; stage < plan.places.size(); ++stage) {
    const FirstRank& rank = (*ranks)[stage];
    const absl::StatusOr<proto::RankPlan> own = LowerForRank(plan, plan.places.RankAt(stage, 0));
    EXPECT_TRUE(own.ok()) << what << ": " << own.status();
    if (!own.ok()) continue;
    EXPECT_EQ(rank.arena_bytes, own->arena_bytes()) << what << ", stage " << stage;
    EXPECT_EQ(rank.plan->stage(), rank.plan_stage);
    shared += rank.plan_stage != stage;
    // The plan that stands for this one has the same weights under other names.
    std::vector<std::string> weights, stand;
    for (const proto::StateSpec& state : own->state()) {
      if (state.state_class() == proto::StateSpec::WEIGHT) weights.push_back(state.name());
    }
    for (const proto::StateSpec& state : rank.plan->state()) {
      if (state.state_class() == proto::StateSpec::WEIGHT)
        stand.push_back(rank.weights.at(state.name()));
    }
    EXPECT_EQ(weights, stand) << what << ", stage " << stage;
    if (rank.plan_stage == stage) {
      EXPECT_EQ(rank.plan->SerializeAsString(), own->SerializeAsString()) << what;
    }
  }
  return shared;
}

proto::Job PipelineJob(const std::string& mesh, int layers, int micro_batches) {
  proto::Job job = SmallJob(mesh, layers, micro_batches);
  for (int layer = 1; layer < layers; ++layer)
    job.mutable_pipeline()->add_cut(absl::StrCat("layers.", layer));
  return job;
}

TEST(LowerFirstRanks, StagesOfEqualWorkShareAPlanWithTheirOwnSlots) {
  const auto plan = Compile(PipelineJob("pp=5", 5, 8));
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(NumShared(*plan, "pp=5"), 2);
  const std::vector<FirstRank> ranks = *LowerFirstRanks(*plan);
  EXPECT_EQ(ranks[3].plan, ranks[1].plan);
  EXPECT_LT(ranks[3].arena_bytes, ranks[1].arena_bytes) << "fewer micro-batches are under way";
  EXPECT_EQ(ranks[3].weights.at("layers.1.w"), "layers.3.w");
  EXPECT_EQ(ranks[1].weights.at("layers.1.w"), "layers.1.w");
}

TEST(LowerFirstRanks, TheMemoryOfEveryStageIsThatOfItsOwnPlan) {
  std::mt19937 random(11);
  const auto below = [&random](int end) { return static_cast<int>(random() % end); };
  const std::vector<std::string> meshes = {"pp=5",           "pp=5,dp=2", "dp=3,pp=5",
                                           "dp=2,pp=5,tp=2", "tp=3,pp=5", "pp=5,dp=4"};
  const std::vector<proto::Pipeline::ScheduleKind> schedules = {
      proto::Pipeline::ONE_F_ONE_B, proto::Pipeline::GPIPE, proto::Pipeline::ZERO_BUBBLE};
  int shared = 0;
  for (int round = 0; round < 60; ++round) {
    const std::string mesh = meshes[below(static_cast<int>(meshes.size()))];
    proto::Job job = PipelineJob(mesh, 5, 1 << below(4));
    proto::Training* training = job.mutable_training();
    if (mesh.find("dp") != std::string::npos) training->set_zero_stage(below(4));
    training->mutable_optimizer()->set_clip_norm(below(2) == 0 ? 1.0 : 0.0);
    training->set_steps(2);
    if (below(3) == 0) training->set_update_every(2);
    proto::Runtime* runtime = job.mutable_runtime();
    job.mutable_pipeline()->set_schedule(schedules[below(3)]);
    if (below(3) == 0) runtime->set_registers(static_cast<proto::Runtime::Registers>(below(5)));
    if (below(3) == 0) runtime->set_chunk_bytes_max(64);
    if (below(3) == 0) runtime->set_gather_ahead(below(3) - 1);
    if (below(3) == 0) runtime->set_device_queues(2);
    if (below(3) == 0) job.mutable_mesh()->set_devices_per_host(2 + below(3));
    if (below(2) == 0) runtime->add_recompute()->set_function("layer");
    const std::string what = absl::StrCat("round ", round, ", ", mesh);
    for (const PlanMode mode : {PlanMode::kTrain, PlanMode::kEvaluate}) {
      CompileOptions options;
      options.mode = mode;
      const absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, options);
      if (plan.ok()) shared += NumShared(**plan, what);
    }
  }
  EXPECT_GT(shared, 150) << "stages share plans here";
}

// Gives one stage something of its own that the placing of memory reads.
TEST(LowerFirstRanks, AStageThatDiffersHasItsOwnMemory) {
  const auto plan = Compile(PipelineJob("dp=2,pp=5", 5, 8));
  ASSERT_NE(plan, nullptr);
  ASSERT_EQ(NumShared(*plan, "as compiled"), 2);
  // More slots hold under the same times.
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    LogicalPlan changed = *plan;
    for (auto& [key, tensor] : changed.stages[2 + round % 2].tensors) {
      if (tensor.slots > 0 && random() % 3 == 0) tensor.slots += static_cast<int64_t>(random() % 5);
    }
    EXPECT_EQ(NumShared(changed, absl::StrCat("slots, round ", round)), 2)
        << "only slots differ, and they count";
  }
  LogicalPlan changed = *plan;
  for (auto& [key, tensor] : changed.stages[2].tensors) tensor.slots = 0;
  const absl::StatusOr<std::vector<FirstRank>> solved = LowerFirstRanks(changed);
  ASSERT_TRUE(solved.ok()) << solved.status();
  EXPECT_EQ((*solved)[2].plan_stage, 2) << "the times of the stage decide about its slots";
}

// Each change is one that the twins of the rhythm do not see, because it changes no time.
TEST(PairWeights, WhatChangesPlacesIsCompared) {
  const auto plan = Compile(PipelineJob("dp=2,pp=5", 5, 8));
  ASSERT_NE(plan, nullptr);
  const StageTwin twin = FindStageTwins(*plan)[1].at(1);
  ASSERT_EQ(twin.stage, 2);
  ASSERT_TRUE(PairWeights(*plan, twin).has_value());
  const auto differs = [&](const std::function<void(LogicalPlan*)>& change) {
    LogicalPlan changed = *plan;
    change(&changed);
    return !PairWeights(changed, twin).has_value();
  };
  EXPECT_TRUE(differs([](LogicalPlan* p) { p->stages[2].graph.tensors[TensorId(0)].bytes += 1; }));
  EXPECT_TRUE(differs([](LogicalPlan* p) { p->stages[2].graph.tensors[TensorId(0)].delay += 1; }));
  EXPECT_TRUE(
      differs([](LogicalPlan* p) { p->stages[2].graph.actors[ActorId(0)].wave = Wave::kUpdate; }));
  EXPECT_TRUE(differs([](LogicalPlan* p) {
    p->stages[2].orders.push_back({p->stages[2].graph.actors[ActorId(0)].station, {}, 1});
  }));
  EXPECT_TRUE(differs([](LogicalPlan* p) {
    for (Variable& variable : p->module.variables) {
      if (variable.stage == 2) variable.layout[0] = sbp::Sbp::S(0);
    }
  }));
  EXPECT_TRUE(differs([](LogicalPlan* p) {
    for (Variable& variable : p->module.variables) {
      if (variable.stage == 2) variable.name = "one name for all";
    }
  }));
  // The same ranks, of which those of stage 2 stand in another order.
  EXPECT_TRUE(differs([](LogicalPlan* p) {
    std::vector<sbp::Place> places;
    for (int64_t s = 0; s < p->places.size(); ++s)
      places.push_back({p->places.mesh(s), p->places.ranks(s)});
    std::reverse(places[2].ranks.begin(), places[2].ranks.end());
    p->places = sbp::Places(std::move(places));
  }));
}

}  // namespace
}  // namespace weir::compiler
