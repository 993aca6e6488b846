// Tests that register counts make 1F1B: with even stages, stage s holds stages - s micro-batches in
// flight, no more and, given enough micro-batches, no fewer; and the bubble is the bubble of the
// formula.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/trace_check.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

proto::Job PipelineJob(int stages, int micro_batches) {
  zoo::TransformerOptions options;
  options.layers = 2 * stages;
  options.hidden = 8;
  options.heads = 2;
  options.ffn = 16;
  options.vocab = 16;
  options.sequence = 4;
  options.training.batch = micro_batches;
  options.training.micro_batches = micro_batches;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  for (int stage = 1; stage < stages; ++stage)
    job->mutable_pipeline()->add_cut(absl::StrCat("layers.", 2 * stage));
  return WithMesh(*job, absl::StrCat("pp=", stages));
}

// In virtual time a block takes one unit forward and two units backward. Everything else takes
// nothing.
int64_t Cost(const actors::Plan&, const actors::PlanActor& actor) {
  bool block = actor.function.find("layers.") != std::string::npos;
  if (!block) return 0;
  if (actor.phase == actors::ActorPhase::kForward) return 1000;
  if (actor.phase == actors::ActorPhase::kBackward) return 2000;
  return 0;
}

TEST(Pipeline, StageSHoldsStagesMinusSMicroBatchesInFlight) {
  for (int stages : {2, 3, 4}) {
    const int micro_batches = 8;
    TrainRunOptions options;
    options.steps = 1;
    options.session.engine = actors::SessionOptions::EngineKind::kSim;
    options.session.sim.chooser = actors::SimEngineOptions::Chooser::kByTime;
    options.session.sim_cost_ns = Cost;
    int64_t span = 0;
    options.inspect = [&](const actors::Session& session) {
      for (int stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(MostInFlight(session, RankId(stage)), stages - stage)
            << stages << " stages, stage " << stage;
      }
      span = session.simulator()->now_ns();
    };
    absl::StatusOr<TrainRun> run = Train(PipelineJob(stages, micro_batches), options);
    ASSERT_TRUE(run.ok()) << run.status();
    // Two blocks a stage: 3 units each per micro-batch; (m + p - 1) slots of it.
    EXPECT_EQ(span, (micro_batches + stages - 1) * 2 * 3000) << stages << " stages";
  }
}

TEST(Pipeline, NoInterleavingHoldsMore) {
  for (int seed = 1; seed <= 50; ++seed) {
    TrainRunOptions options;
    options.steps = 2;
    options.session.engine = actors::SessionOptions::EngineKind::kSim;
    options.session.sim.seed = static_cast<uint64_t>(seed);
    options.session.sim_cost_ns = Cost;
    options.inspect = [&](const actors::Session& session) {
      for (int stage = 0; stage < 4; ++stage)
        EXPECT_LE(MostInFlight(session, RankId(stage)), 4 - stage) << "seed " << seed;
    };
    absl::StatusOr<TrainRun> run = Train(PipelineJob(4, 6), options);
    ASSERT_TRUE(run.ok()) << run.status();
  }
}

}  // namespace
}  // namespace weir::training
