// Tests that the answer does not depend on the schedule: the same layout ends with the same
// weights, to the bit, under a thousand interleavings, any number of threads and odd register
// counts.

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

proto::Job TinyGpt(const std::string& mesh, int zero) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 8;
  options.heads = 2;
  options.ffn = 16;
  options.vocab = 16;
  options.sequence = 4;
  options.dropout = 0.1;
  options.training.batch = 8;
  options.training.micro_batches = 4;
  options.training.steps = 4;
  options.training.learning_rate = 1e-2;
  options.training.zero_stage = zero;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  return WithMesh(*job, mesh);
}

TrainRunOptions Simulated(int64_t steps, uint64_t seed, actors::SimEngineOptions::Chooser chooser) {
  TrainRunOptions options;
  options.steps = steps;
  options.session.engine = actors::SessionOptions::EngineKind::kSim;
  options.session.sim.seed = seed;
  options.session.sim.chooser = chooser;
  return options;
}

void CheckInterleavings(const proto::Job& job, int64_t steps, int count) {
  TrainRunOptions threads;
  threads.steps = steps;
  absl::StatusOr<TrainRun> reference = Train(job, threads);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (int seed = 1; seed <= count; ++seed) {
    auto chooser = seed % 3 == 0   ? actors::SimEngineOptions::Chooser::kStarveOne
                   : seed % 3 == 1 ? actors::SimEngineOptions::Chooser::kUniform
                                   : actors::SimEngineOptions::Chooser::kPriorities;
    absl::StatusOr<TrainRun> run = Train(job, Simulated(steps, seed, chooser));
    ASSERT_TRUE(run.ok()) << "seed " << seed << ": " << run.status();
    ASSERT_EQ(FirstDifferentState(reference->weights, run->weights), "") << "seed " << seed;
  }
}

TEST(Interleavings, PipelineWithDataParallelHasTheSameBitsUnderEverySchedule) {
  CheckInterleavings(TinyGpt("dp=2,pp=2", 0), 2, 400);
}
TEST(Interleavings, TensorParallelHasTheSameBitsUnderEverySchedule) {
  CheckInterleavings(TinyGpt("tp=2", 0), 2, 300);
}
TEST(Interleavings, Zero3HasTheSameBitsUnderEverySchedule) {
  CheckInterleavings(TinyGpt("dp=3", 3), 2, 300);
}

TEST(Interleavings, UpdatesInEverySecondStepByOlderGradientsHaveTheSameBitsUnderEverySchedule) {
  for (int zero : {1, 3}) {
    proto::Job job = TinyGpt("dp=2,pp=2", zero);
    job.mutable_training()->set_update_every(2);
    job.mutable_training()->set_update_phase(zero == 1 ? 1 : 0);
    job.mutable_training()->set_gradient_delay(1);
    CheckInterleavings(job, 5, 100);
  }
}

TEST(Interleavings, ThreadsAndRegisterCountsDoNotChangeABit) {
  for (const char* mesh : {"", "dp=2,tp=2", "pp=2"}) {
    proto::Job job = TinyGpt(mesh, 1);
    TrainRunOptions options;
    options.steps = 3;
    absl::StatusOr<TrainRun> reference = Train(job, options);
    ASSERT_TRUE(reference.ok()) << reference.status();
    for (int threads : {2, 3, 5}) {
      TrainRunOptions more = options;
      more.session.threads_per_device = threads;
      absl::StatusOr<TrainRun> run = Train(job, more);
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_EQ(FirstDifferentState(reference->weights, run->weights), "")
          << mesh << ", " << threads << " threads";
    }
    for (int slots : {1, 2, 3, 7}) {
      proto::Job odd = job;
      odd.mutable_runtime()->set_debug_register_slots(slots);
      absl::StatusOr<TrainRun> run = Train(odd, options);
      ASSERT_TRUE(run.ok()) << slots << " slots: " << run.status();
      EXPECT_EQ(FirstDifferentState(reference->weights, run->weights), "")
          << mesh << ", " << slots << " slots";
    }
    for (int64_t chunk : {4, 64, 1000}) {
      proto::Job chunked = job;
      chunked.mutable_runtime()->set_chunk_bytes_max(chunk);
      absl::StatusOr<TrainRun> run = Train(chunked, options);
      ASSERT_TRUE(run.ok()) << chunk << " byte chunks: " << run.status();
      EXPECT_EQ(FirstDifferentState(reference->weights, run->weights), "")
          << mesh << ", chunks of " << chunk << " bytes";
    }
  }
}

}  // namespace
}  // namespace weir::training
