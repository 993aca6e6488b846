// Runs plans of every layout to the end in the simulator without kernels, and checks the invariants
// of the protocol after every event.
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

TEST(Protocol, EveryLayoutRunsToTheEndWithItsInvariantsHeld) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.heads = 4;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 16;
  options.training.micro_batches = 4;
  for (const char* mesh : {"", "dp=2", "dp=3", "tp=2", "tp=4", "pp=2", "pp=4", "dp=2,tp=2",
                           "dp=2,pp=2", "dp=2,tp=2,pp=2"}) {
    for (int zero : {0, 2, 3}) {
      for (int slots : {0, 1}) {
        SCOPED_TRACE(absl::StrCat(mesh, " zero ", zero, " slots ", slots));
        absl::StatusOr<proto::Job> job = zoo::GptJob(options);
        ASSERT_TRUE(job.ok()) << job.status();
        job->mutable_training()->set_zero_stage(zero);
        job->mutable_runtime()->set_debug_register_slots(slots);
        TrainRunOptions run_options;
        run_options.steps = 2;
        run_options.session.engine = actors::SessionOptions::EngineKind::kSim;
        run_options.session.compute = actors::RankExecutorOptions::Compute::kSkip;
        run_options.session.sim.check = actors::SimEngineOptions::Check::kEveryStep;
        run_options.session.sim.seed = static_cast<uint64_t>(zero * 10 + slots + 1);
        absl::StatusOr<TrainRun> run = Train(WithMesh(*job, mesh), run_options);
        ASSERT_TRUE(run.ok()) << run.status();
      }
    }
  }
}

}  // namespace
}  // namespace weir::training
