// Tests calls that share the memory of a window: the memory of ZeRO-3 grows by shards and not by
// whole layers; no bit changes; no two registers in one place hold data at the same time, whatever
// the order of events.

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

zoo::TransformerOptions Gpt(int64_t layers, int64_t hidden, int zero, int64_t micro_batches) {
  zoo::TransformerOptions options;
  options.layers = layers;
  options.hidden = hidden;
  options.heads = 2;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 12;
  options.training.micro_batches = micro_batches;
  options.training.steps = 4;
  options.training.learning_rate = 1e-2;
  options.training.zero_stage = zero;
  return options;
}

proto::Job JobOf(const zoo::TransformerOptions& options, const std::string& mesh, int ahead) {
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  job->mutable_runtime()->set_gather_ahead(ahead);
  return WithMesh(*job, mesh);
}

proto::RankPlan PlanOf(const proto::Job& job) {
  auto plan = compiler::CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(**plan, RankId(0));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return *std::move(lowered);
}

// The growth by one more layer when all windows are full: of the arena, and of the room that peers
// may write to.
struct Growth {
  int64_t arena = 0;
  int64_t landing = 0;  // if every register had its own place
};
Growth OfALayer(zoo::TransformerOptions options, const std::string& mesh, int ahead) {
  Growth growth;
  for (int sign : {-1, 1}) {
    options.layers = sign < 0 ? 8 : 16;
    const proto::RankPlan plan = PlanOf(JobOf(options, mesh, ahead));
    growth.arena += sign * plan.arena_bytes() / 8;
    for (const proto::RegisterSpec& r : plan.registers()) {
      if (r.side() == proto::RegisterSpec::INBOUND)
        growth.landing += sign * r.stride() * r.slots() / 8;
    }
  }
  return growth;
}

int64_t WeightsOfABlock(int64_t hidden) { return 4 * (12 * hidden * hidden + 13 * hidden); }

TEST(MemoryOrders, ALayerOfZero3TakesShardsAndNoWholeLayer) {
  constexpr int64_t kHidden = 128;
  const int64_t weights = WeightsOfABlock(kHidden);
  for (int64_t micro_batches : {1, 3}) {
    // Weight, two moments and the gradient of the step; each rank has a half of each.
    const int64_t shards = 4 * weights / 2;
    // Values kept from forward to backward of a micro-batch: six samples of eight tokens, at most
    // 24 times the hidden width.
    const int64_t kept = 6 / micro_batches * 8 * kHidden * 4 * 24;
    for (int ahead : {1, 2}) {
      const int64_t bytes = OfALayer(Gpt(6, kHidden, 3, micro_batches), "dp=2", ahead).arena;
      EXPECT_GE(bytes, shards) << micro_batches << " micro-batches, " << ahead << " ahead";
      EXPECT_LE(bytes, shards + kept) << micro_batches << " micro-batches, " << ahead << " ahead";
    }
    // Without a window a layer needs three times its whole weights more (forward, backward,
    // gradient), and as much room for landing.
    EXPECT_GE(OfALayer(Gpt(6, kHidden, 3, micro_batches), "dp=2", -1).arena, shards + 2 * weights)
        << micro_batches << " micro-batches";
  }
}

TEST(MemoryOrders, ACallFurtherAheadTakesOneMoreLayer) {
  constexpr int64_t kHidden = 128;
  const int64_t one = PlanOf(JobOf(Gpt(8, kHidden, 3, 2), "dp=2", 1)).arena_bytes();
  const int64_t two = PlanOf(JobOf(Gpt(8, kHidden, 3, 2), "dp=2", 2)).arena_bytes();
  EXPECT_GT(two, one + WeightsOfABlock(kHidden) / 2);
  EXPECT_LT(two, one + 3 * WeightsOfABlock(kHidden));
}

struct Case {
  std::string mesh;
  int zero = 0;
  zoo::SequenceParallel sequence = zoo::SequenceParallel::kNone;
  proto::Pipeline::ScheduleKind schedule = proto::Pipeline::ONE_F_ONE_B;
  proto::Runtime::Registers registers = proto::Runtime::SCHEDULE;
};

std::vector<Case> Cases() {
  return {{"dp=2", 3},
          {"dp=3", 3},
          {"dp=2", 2},
          {"tp=2"},
          {"dp=2,tp=2", 3},
          {"dp=2,pp=2", 3},
          {"dp=2,pp=2", 3, zoo::SequenceParallel::kNone, proto::Pipeline::ZERO_BUBBLE},
          {"tp=2", 0, zoo::SequenceParallel::kMegatron},
          {"sp=2", 0, zoo::SequenceParallel::kUlysses},
          {"dp=2", 3, zoo::SequenceParallel::kNone, proto::Pipeline::ONE_F_ONE_B,
           proto::Runtime::SOLVED}};
}

std::string NameOf(const Case& c) {
  return absl::StrCat(c.mesh, ", zero ", c.zero, ", sequence parallel ",
                      static_cast<int>(c.sequence), ", ",
                      proto::Pipeline::ScheduleKind_Name(c.schedule), ", ",
                      proto::Runtime::Registers_Name(c.registers));
}

proto::Job JobOfCase(const Case& c, int ahead) {
  zoo::TransformerOptions options = Gpt(5, 16, c.zero, 3);
  options.sequence_parallel = c.sequence;
  proto::Job job = JobOf(options, c.mesh, ahead);
  job.mutable_pipeline()->set_schedule(c.schedule);
  job.mutable_runtime()->set_registers(c.registers);
  return job;
}

TrainRun TrainThree(const proto::Job& job, TrainRunOptions options) {
  options.steps = 3;
  absl::StatusOr<TrainRun> run = Train(job, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : TrainRun();
}

TEST(MemoryOrders, NoBitChangesAndNoPlaceIsUsedTwiceAtATime) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(NameOf(c));
    const TrainRun reference = TrainThree(JobOfCase(c, -1), {});
    for (int ahead : {1, 2})
      EXPECT_EQ(FirstDifference(reference, TrainThree(JobOfCase(c, ahead), {})), "")
          << ahead << " ahead";
    uint64_t seed = 1;
    for (auto chooser : {actors::SimEngineOptions::Chooser::kUniform,
                         actors::SimEngineOptions::Chooser::kPriorities,
                         actors::SimEngineOptions::Chooser::kStarveOne}) {
      TrainRunOptions simulated;
      simulated.session.engine = actors::SessionOptions::EngineKind::kSim;
      simulated.session.sim.seed = seed++;
      simulated.session.sim.check = actors::SimEngineOptions::Check::kEveryStep;
      simulated.session.sim.chooser = chooser;
      EXPECT_EQ(FirstDifference(reference, TrainThree(JobOfCase(c, 1), simulated)), "")
          << "chooser " << static_cast<int>(chooser);
    }
  }
}

TEST(MemoryOrders, ALayerOfTensorParallelTakesNoRoomToLandIn) {
  const zoo::TransformerOptions options = Gpt(6, 32, 0, 4);
  const Growth apart = OfALayer(options, "tp=2", -1), in_window = OfALayer(options, "tp=2", 1);
  EXPECT_GT(in_window.landing, 0);
  EXPECT_LE(in_window.arena, apart.arena - apart.landing);
}

}  // namespace
}  // namespace weir::training
