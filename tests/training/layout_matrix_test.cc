// Tests that every layout has the same losses: a GPT and a Llama, trained for 30 steps on each
// mesh, are compared with the curve of one device.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

constexpr int kSteps = 30;

zoo::TransformerOptions Small() {
  zoo::TransformerOptions options = SmallTransformer();
  options.training.steps = kSteps;
  return options;
}

void CheckMatrix(MakeJob make, const zoo::TransformerOptions& options) {
  absl::StatusOr<proto::Job> job = make(options);
  ASSERT_TRUE(job.ok()) << job.status();
  TrainRunOptions run_options;
  run_options.steps = kSteps;
  absl::StatusOr<TrainRun> one = Train(WithMesh(*job, ""), run_options);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->losses.size(), kSteps);
  EXPECT_LT(one->losses.back(), one->losses.front());
  for (const Layout& layout : LayoutMatrix()) {
    SCOPED_TRACE(NameOf(layout));
    const absl::StatusOr<proto::Job> here = JobOn(layout, make, options);
    ASSERT_TRUE(here.ok()) << here.status();
    absl::StatusOr<TrainRun> many = Train(*here, run_options);
    ASSERT_TRUE(many.ok()) << many.status();
    ASSERT_EQ(many->losses.size(), one->losses.size());
    double worst = 0;
    for (int step = 0; step < kSteps; ++step) {
      worst = std::max(worst, std::abs(many->losses[step] - one->losses[step]) / one->losses[step]);
    }
    EXPECT_LT(worst, 1e-5);
    std::printf("%-28s worst relative difference of the loss %.2e\n", NameOf(layout).c_str(),
                worst);
  }
}

TEST(LayoutMatrix, AGptHasTheLossesOfOneDeviceOnEveryMesh) { CheckMatrix(zoo::GptJob, Small()); }

TEST(LayoutMatrix, ALlamaHasTheLossesOfOneDeviceOnEveryMesh) {
  zoo::TransformerOptions options = Small();
  options.kv_heads = 4;
  CheckMatrix(zoo::LlamaJob, options);
}

}  // namespace
}  // namespace weir::training
