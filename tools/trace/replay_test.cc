// Replays of simulated runs: the predicted gain of a change is compared with a run in which the
// change is made, in virtual time, so to the nanosecond.
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "actors/session/session.h"
#include "actors/testing/certified.h"
#include "actors/testing/pipeline_job.h"
#include "gtest/gtest.h"
#include "tools/trace/why_slow.h"

namespace weir::trace {
namespace {

struct World {
  actors::PipelineJob job;
  int64_t forward_ns = 10000;
  int64_t backward_ns = 20000;
  int64_t latency_ns = 3000;
  std::vector<int64_t> steps_of_runs = {5};
};

std::string TraceOf(const World& world) {
  actors::SessionOptions options;
  options.engine = actors::SessionOptions::EngineKind::kSim;
  options.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
  options.compute = actors::RankExecutorOptions::Compute::kSkip;
  options.sim_cost_ns = [world](const actors::Plan& plan,
                                const actors::PlanActor& actor) -> int64_t {
    const int64_t uneven = 700 * plan.rank.value();  // so that no two stages take the same time
    if (actor.name == "forward") return world.forward_ns == 0 ? 0 : world.forward_ns + uneven;
    if (actor.name == "backward")
      return world.backward_ns == 0 ? 0 : world.backward_ns + 2 * uneven;
    if (actor.name == "update") return 4000;
    return actor.name == "accumulate" ? 500 : 0;
  };
  options.sim_latency_ns = [world](int64_t bytes, RankId, RankId) {
    return bytes > 0 ? world.latency_ns : 0;
  };
  absl::StatusOr<std::unique_ptr<actors::Session>> session =
      actors::Session::Create(actors::Certified(actors::MakePipelineJob(world.job)), options);
  EXPECT_TRUE(session.ok()) << session.status();
  for (int64_t steps : world.steps_of_runs)
    EXPECT_EQ((*session)->RunSteps(steps), absl::OkStatus());
  std::stringstream out;
  EXPECT_EQ((*session)->WriteTrace(out, {}), absl::OkStatus());
  return out.str();
}

WhySlow WhyOf(const World& world, const WhySlowOptions& options = {}) {
  TraceReader reader;
  EXPECT_EQ(reader.Read(TraceOf(world)), absl::OkStatus());
  absl::StatusOr<WhySlow> why = FindWhySlow(reader, options);
  EXPECT_TRUE(why.ok()) << why.status();
  return why.ok() ? *std::move(why) : WhySlow{};
}

// Calls `body` with small pipelines of all kinds, each with a text that names the pipeline.
void ForEachPipeline(const World& world, const std::function<void(const World&)>& body) {
  for (int stages : {2, 3, 4}) {
    for (int micro_batches : {1, 4, 6}) {
      if (world.job.depth > 1 && stages == 3 && micro_batches != 4) continue;  // enough of them
      for (int slots : {1, 2}) {
        World of = world;
        of.job.num_stages = stages;
        of.job.micro_batches = micro_batches;
        of.job.stash_slots = of.job.message_slots = slots;
        SCOPED_TRACE(
            absl::StrCat(stages, " stages, ", micro_batches, " micro-batches, ", slots, " slots"));
        body(of);
      }
    }
  }
}

// The same on devices that do one act at a time, and on devices with queues that take acts ahead.
void ForEachWorld(const std::function<void(const World&)>& body) {
  struct DeviceShape {
    int num_queues, depth;
  };
  for (const DeviceShape& device :
       {DeviceShape{1, 1}, DeviceShape{2, 1}, DeviceShape{1, 4}, DeviceShape{2, 2},
        DeviceShape{2, 64}, DeviceShape{3, 3}, DeviceShape{3, 64}}) {
    World world;
    world.job.num_queues = device.num_queues;
    world.job.depth = device.depth;
    SCOPED_TRACE(absl::StrCat(device.num_queues, " queues, depth ", device.depth));
    ForEachPipeline(world, body);
  }
}

TEST(ReplayTest, ARunWithoutChangesTakesItsTimeAgain) {
  ForEachWorld([](const World& world) {
    const WhySlow why = WhyOf(world);
    EXPECT_GT(why.recorded_step_ns, 0);
    EXPECT_DOUBLE_EQ(why.replayed_step_ns, why.recorded_step_ns);
  });
}

TEST(ReplayTest, OneMoreSlotGainsWhatARunWithOneMoreGains) {
  ForEachWorld([](const World& world) {
    const auto predicted = [&world](const std::string& spec) {
      return WhyOf(world, {.what_ifs = {spec}}).what_ifs[0].step_ns;
    };
    World changed = world;
    ++changed.job.stash_slots;
    EXPECT_DOUBLE_EQ(predicted("slots:stash=+1"), WhyOf(changed).recorded_step_ns);
    ++changed.job.message_slots;
    EXPECT_DOUBLE_EQ(predicted("slots:stash=+1;slots:activation in=+1;slots:gradient in=+1"),
                     WhyOf(changed).recorded_step_ns);
  });
}

TEST(ReplayTest, FewerSlotsAreReplayedToo) {
  World world;
  world.job = {.num_stages = 3, .micro_batches = 6, .stash_slots = 4, .message_slots = 2};
  World changed = world;
  changed.job.stash_slots = 1;
  const double predicted = WhyOf(world, {.what_ifs = {"slots:stash=1"}}).what_ifs[0].step_ns;
  EXPECT_DOUBLE_EQ(predicted, WhyOf(changed).recorded_step_ns);
  EXPECT_GT(predicted, WhyOf(world).recorded_step_ns);
}

TEST(ReplayTest, AnOpForNothingGainsWhatARunWithoutItGains) {
  ForEachWorld([](const World& world) {
    World changed = world;
    changed.backward_ns = 0;
    EXPECT_DOUBLE_EQ(WhyOf(world, {.what_ifs = {"free:backward"}}).what_ifs[0].step_ns,
                     WhyOf(changed).recorded_step_ns);
    changed.forward_ns = 0;
    EXPECT_DOUBLE_EQ(WhyOf(world, {.what_ifs = {"free:backward;free:forward"}}).what_ifs[0].step_ns,
                     WhyOf(changed).recorded_step_ns);
  });
}

TEST(ReplayTest, FasterLinksGainWhatARunWithFasterLinksGains) {
  ForEachWorld([](const World& world) {
    World changed = world;
    changed.latency_ns /= 2;
    EXPECT_DOUBLE_EQ(WhyOf(world, {.what_ifs = {"link:all=2"}}).what_ifs[0].step_ns,
                     WhyOf(changed).recorded_step_ns);
  });
}

TEST(ReplayTest, RunsOfSeveralStepsEndBeforeTheNextBegins) {
  World world;
  world.job = {.num_stages = 3, .micro_batches = 4};
  world.steps_of_runs = {2, 3, 1, 4};
  const WhySlow why = WhyOf(world);
  EXPECT_DOUBLE_EQ(why.replayed_step_ns, why.recorded_step_ns);
}

TEST(ReplayTest, ThePathOfAPipelineTilesItsStep) {
  ForEachWorld([](const World& world) {
    const WhySlow why = WhyOf(world);
    EXPECT_DOUBLE_EQ(why.path.step_ns, why.recorded_step_ns);
    double shares = why.path.in_transfer + why.path.between_acts;
    for (const PathActs& acts : why.path.acts) shares += acts.share;
    EXPECT_NEAR(shares, 1, 1e-9);
    EXPECT_LT(why.path.between_acts,
              1e-9);  // in virtual time a device that has an act to do does it
  });
}

}  // namespace
}  // namespace weir::trace
