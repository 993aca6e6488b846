// Tests that recomputed values have the bits of kept values: the weights are the same on every
// layout, with dropout too; the bytes on the wire are those of the closed form; and recomputation
// takes less memory.

#include "absl/strings/str_cat.h"
#include "compiler/explain/bytes_per_step.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

using MakeJob = absl::StatusOr<proto::Job> (*)(const zoo::TransformerOptions&);

zoo::TransformerOptions Small() {
  zoo::TransformerOptions options;
  options.layers = 3;
  options.hidden = 16;
  options.heads = 2;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  options.training.steps = 5;
  options.training.learning_rate = 1e-2;
  return options;
}

struct Case {
  std::string mesh;
  int zero = 0;
  zoo::SequenceParallel sequence = zoo::SequenceParallel::kNone;
  std::string precision = "f32";
};

std::string Name(const Case& c) {
  return absl::StrCat(c.mesh, ", zero ", c.zero, ", sequence parallel ",
                      static_cast<int>(c.sequence), ", ", c.precision);
}

proto::Job JobOf(MakeJob make, const Case& c, zoo::TransformerOptions options) {
  options.sequence_parallel = c.sequence;
  options.training.precision = c.precision;
  absl::StatusOr<proto::Job> job = make(options);
  EXPECT_TRUE(job.ok()) << job.status();
  job->mutable_training()->set_zero_stage(c.zero);
  return WithMesh(*job, c.mesh);
}

// Trains `job` and checks whether its edges carried the bytes of the plan.
TrainRun TrainAndCount(const proto::Job& job) {
  auto plan = compiler::CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  absl::StatusOr<int64_t> planned = compiler::BytesPerStep(**plan);
  EXPECT_TRUE(planned.ok()) << planned.status();
  TrainRunOptions options;
  options.steps = 3;
  absl::StatusOr<TrainRun> run = Train(job, options);
  EXPECT_TRUE(run.ok()) << run.status();
  if (!run.ok()) return {};
  int64_t counted = 0;
  for (const actors::EdgeReport& edge : run->edges) counted += edge.payload_bytes;
  EXPECT_EQ(counted, 3 * *planned);
  return *std::move(run);
}

int64_t ArenaBytes(const proto::Job& job) {
  auto plan = compiler::CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(**plan, RankId(0));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered->arena_bytes();
}

void CheckSameBits(MakeJob make, const zoo::TransformerOptions& options,
                   const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(Name(c));
    const proto::Job kept = JobOf(make, c, options);
    const TrainRun reference = TrainAndCount(kept);
    ASSERT_FALSE(reference.losses.empty());
    for (const std::vector<std::string>& keep :
         {std::vector<std::string>{}, {"attended"}, {"projected", "q", "up"}}) {
      proto::Job again = kept;
      proto::Recompute* recompute = again.mutable_runtime()->add_recompute();
      recompute->set_function("block");
      recompute->mutable_keep()->Assign(keep.begin(), keep.end());
      EXPECT_EQ(FirstDifference(reference, TrainAndCount(again)), "") << keep.size() << " kept";
    }
  }
}

// Two samples on four devices: two devices have no samples, and only update some weights.
TEST(Recompute, DevicesWithoutSamplesUpdateTheirWeights) {
  zoo::TransformerOptions options = Small();
  options.training.micro_batches = 4;
  CheckSameBits(zoo::GptJob, options, {{"dp=4,pp=2"}, {"dp=4"}, {"dp=4,pp=2", 3}});
}

TEST(Recompute, AGptWithDropoutHasTheSameBitsOnEveryLayout) {
  zoo::TransformerOptions options = Small();
  options.dropout = 0.1;
  CheckSameBits(zoo::GptJob, options,
                {{""},
                 {"dp=2"},
                 {"tp=2"},
                 {"pp=2"},
                 {"dp=2,tp=2", 3},
                 {"tp=2,pp=2"},
                 {"tp=2", 0, zoo::SequenceParallel::kMegatron},
                 {"sp=2", 0, zoo::SequenceParallel::kUlysses},
                 {"dp=2", 1, zoo::SequenceParallel::kNone, "bf16"}});
}

TEST(Recompute, TheWholeOfMainAndOfALlamaHasTheSameBits) {
  for (const char* mesh : {"", "tp=2", "dp=2,pp=2"}) {
    SCOPED_TRACE(mesh);
    proto::Job kept = JobOf(zoo::LlamaJob, {mesh, 2}, Small());
    const TrainRun reference = TrainAndCount(kept);
    for (const char* function : {"block", "main"})
      kept.mutable_runtime()->add_recompute()->set_function(function);
    EXPECT_EQ(FirstDifference(reference, TrainAndCount(kept)), "");
  }
}

TEST(Recompute, TheCollectivesOfWhatIsComputedAgainRunAgain) {
  proto::Job job = JobOf(zoo::GptJob, {"tp=2"}, Small());
  const int64_t kept = *compiler::BytesPerStep(**compiler::CompileJob(job, {}));
  job.mutable_runtime()->add_recompute()->set_function("block");
  const int64_t again = *compiler::BytesPerStep(**compiler::CompileJob(job, {}));
  // The sum after the attention of each block and micro-batch. No gradient reads the sum after the
  // feed-forward part.
  const int64_t activation = 4 * 8 * 16 * 4;
  EXPECT_EQ(again - kept, 2 * activation * 3 * 2);
}

TEST(Recompute, KeepingBlockInputsAloneTakesLessMemoryWithEveryLayer) {
  zoo::TransformerOptions options = Small();
  options.training.micro_batches = 1;
  options.sequence = 64;
  const auto per_layer = [&](bool recompute) {
    int64_t bytes[2];
    for (int i = 0; i < 2; ++i) {
      options.layers = 3 + i;
      options.training.recompute = recompute;
      bytes[i] = ArenaBytes(*zoo::GptJob(options));
    }
    return bytes[1] - bytes[0];
  };
  const int64_t activation = 8 * 64 * 16 * 4;
  const int64_t kept = per_layer(false), again = per_layer(true);
  // The kept values are at least: norm, q, k, v, attended, residual, norm, up (2 wide) and its
  // gradient's input.
  EXPECT_GT(kept - again, 8 * activation) << kept << " and " << again;
}

TEST(Recompute, TheJobMayTakeBackWhatTheModelSays) {
  zoo::TransformerOptions options = Small();
  const int64_t kept = ArenaBytes(*zoo::GptJob(options));
  options.training.recompute = true;
  proto::Job job = *zoo::GptJob(options);
  EXPECT_LT(ArenaBytes(job), kept);
  proto::Recompute* recompute = job.mutable_runtime()->add_recompute();
  recompute->set_function("block");
  recompute->set_keep_all(true);
  EXPECT_EQ(ArenaBytes(job), kept);
}

}  // namespace
}  // namespace weir::training
