// Tests bf16 with f32 master weights: the losses are close to f32, equal on every mesh as far as
// bf16 allows, and the model learns.
#include <cmath>

#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

TEST(Precision, Bf16FollowsF32OnEveryMesh) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  options.training.steps = 40;
  options.training.learning_rate = 3e-3;
  for (auto make : {zoo::GptJob, zoo::LlamaJob}) {
    TrainRunOptions run_options;
    run_options.steps = 40;
    absl::StatusOr<TrainRun> f32 = Train(*make(options), run_options);
    ASSERT_TRUE(f32.ok()) << f32.status();
    zoo::TransformerOptions half = options;
    half.training.precision = "bf16";
    for (const char* mesh : {"", "dp=2,tp=2", "pp=2"}) {
      proto::Job job = WithMesh(*make(half), mesh);
      job.mutable_training()->set_zero_stage(1);
      absl::StatusOr<TrainRun> bf16 = Train(job, run_options);
      ASSERT_TRUE(bf16.ok()) << mesh << ": " << bf16.status();
      EXPECT_LT(bf16->losses.back(), bf16->losses.front());
      for (size_t step = 0; step < f32->losses.size(); ++step) {
        EXPECT_NEAR(bf16->losses[step], f32->losses[step], 0.02 * f32->losses[step])
            << mesh << " step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace weir::training
