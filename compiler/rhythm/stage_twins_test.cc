#include "compiler/rhythm/stage_twins.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "compiler/rhythm/station_graph.h"
#include "compiler/testing/small_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

using ::testing::ElementsAre;

std::unique_ptr<LogicalPlan> Compile(const proto::Job& job) {
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

// Returns a job whose stage s begins with layer cuts[s - 1].
proto::Job PipelineJob(const std::string& mesh, int layers, const std::vector<int>& cuts) {
  proto::Job job = SmallJob(mesh, layers, 4);
  for (int cut : cuts) job.mutable_pipeline()->add_cut(absl::StrCat("layers.", cut));
  return job;
}

// Returns the number of twins of each stage.
std::vector<size_t> NumTwins(const LogicalPlan& plan) {
  std::vector<size_t> sizes;
  for (const std::vector<StageTwin>& twins : FindStageTwins(plan)) sizes.push_back(twins.size());
  return sizes;
}

TEST(FindStageTwins, StagesOfEqualWorkAreTwins) {
  const auto plan = Compile(PipelineJob("pp=5", 5, {1, 2, 3, 4}));
  ASSERT_NE(plan, nullptr);
  EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 3, 0, 0, 1)) << "data and the loss are at the ends";
  const std::vector<StageTwin> twins = FindStageTwins(*plan)[1];
  for (int64_t stage : {1, 2, 3}) {
    const StageTwin& twin = twins[stage - 1];
    EXPECT_EQ(twin.first, 1);
    EXPECT_EQ(twin.stage, stage);
    for (const RankActor& actor : plan->stages[1].graph.actors) {
      const IdVector<ActorId, RankActor>& actors = plan->stages[stage].graph.actors;
      EXPECT_TRUE(std::any_of(actors.begin(), actors.end(), [&](const RankActor& other) {
        return other.station == twin.Of(actor.station);
      })) << actor.name;
    }
  }
}

TEST(FindStageTwins, AStageWithAnotherNumberOfLayersIsNoTwin) {
  const auto plan = Compile(PipelineJob("pp=5", 6, {1, 2, 4, 5}));
  ASSERT_NE(plan, nullptr);
  EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 2, 1, 0, 1)) << "stages 1 and 3 have a layer each";
}

// Stage 1 has ranks 2 to 4, and stage 3 has ranks 7 to 9.
TEST(FindStageTwins, StagesOfUnequalMeshesShareHostsAlike) {
  proto::Job job = PipelineJob("pp=5,dp=3", 5, {1, 2, 3, 4});
  proto::Pipeline::StageMesh* small = job.mutable_pipeline()->add_stage_mesh();
  for (const int stage : {0, 2, 4}) small->add_stage(stage);
  small->set_mesh("dp=2");
  for (const int devices_per_host : {0, 1, 4}) {
    SCOPED_TRACE(devices_per_host);
    job.mutable_mesh()->set_devices_per_host(devices_per_host);
    const auto plan = Compile(job);
    ASSERT_NE(plan, nullptr);
    if (devices_per_host == 4) {
      EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 1, 1, 1, 1)) << "hosts end in other places";
    } else {
      EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 2, 1, 0, 1));
    }
  }
}

TEST(FindStageTwins, AStageWhoseTensorsDifferIsNoTwin) {
  const auto plan = Compile(PipelineJob("pp=5", 5, {1, 2, 3, 4}));
  ASSERT_NE(plan, nullptr);
  const auto weight = std::find_if(
      plan->module.values.begin(), plan->module.values.end(),
      [](const ProgramValue& value) { return value.variable >= 0 && value.stage == 2; });
  ASSERT_NE(weight, plan->module.values.end());
  const ProgramValue before = *weight;
  weight->type.dims[0].size *= 2;
  EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 2, 1, 0, 1)) << "a size";
  *weight = before;
  weight->frequency = Frequency::kMicroBatch;
  EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 2, 1, 0, 1)) << "a rate";
  *weight = before;
  weight->variable = -1;
  EXPECT_THAT(NumTwins(*plan), ElementsAre(1, 2, 1, 0, 1)) << "no weight";
}

// Returns the stage as the only twin of itself.
std::vector<StageTwin> Alone(const LogicalPlan& plan, int64_t stage) {
  StageTwin twin{stage, stage, {}};
  for (size_t i = 0; i < plan.module.items.size(); ++i) {
    const ProgramItem& item = plan.module.items[i];
    int64_t other = -1;
    for (const auto* values : {&item.inputs, &item.outputs}) {
      for (int value : *values) {
        if (value >= 0 && plan.module.values[value].stage != stage)
          other = plan.module.values[value].stage;
      }
    }
    twin.items.push_back({static_cast<int>(i), other});
  }
  return {twin};
}

// Twins save the lowering of a rank of every stage. This test lowers all of them.
TEST(FindStageTwins, TimesAndSizesAreThoseOfEveryStage) {
  int64_t saved = 0;
  DevicePeaks peaks;
  peaks.devices_per_host = 3;  // so that messages between equal stages differ in latency
  const PeakCosts costs(peaks);
  for (const char* mesh : {"pp=5", "pp=5,dp=2", "dp=3,pp=5", "tp=2,pp=5,dp=2"}) {
    for (int zero_stage : {0, 1, 3}) {
      proto::Job job = PipelineJob(mesh, 5, {1, 2, 3, 4});
      job.mutable_training()->set_zero_stage(zero_stage);
      job.mutable_training()->mutable_optimizer()->set_clip_norm(zero_stage == 1 ? 1.0 : 0.0);
      const auto plan = Compile(job);
      ASSERT_NE(plan, nullptr);
      absl::StatusOr<StationGraph> graph = BuildStationGraph(*plan, costs);
      ASSERT_TRUE(graph.ok()) << graph.status();
      StationGraphBuilder all(*plan, costs);
      for (int64_t stage = 0; stage < plan->places.size(); ++stage) {
        saved += FindStageTwins(*plan)[stage].empty();
        const int64_t last = plan->places.mesh(stage).num_ranks() - 1;
        for (RankId rank : {plan->places.RankAt(stage, 0), plan->places.RankAt(stage, last)})
          all.Add(*LowerToRankGraph(*plan, rank), Alone(*plan, stage));
      }
      const StationGraph expected = all.Finish();
      ASSERT_EQ(graph->stations, expected.stations);
      for (ActorId a : expected.stations.ids()) {
        EXPECT_EQ(graph->timed.actors[a].time_ns, expected.timed.actors[a].time_ns)
            << mesh << ": " << expected.timed.actors[a].name;
      }
      ASSERT_EQ(graph->families, expected.families);
      for (RegisterId r : expected.families.ids()) {
        const TimedGraph::Register &here = graph->timed.registers[r],
                                   &there = expected.timed.registers[r];
        EXPECT_EQ(here.bytes, there.bytes) << mesh << ": " << there.name;
        EXPECT_EQ(here.latency_ns, there.latency_ns) << mesh << ": " << there.name;
      }
    }
  }
  EXPECT_GT(saved, 10) << "stages are twins here";
}

}  // namespace
}  // namespace weir::compiler
