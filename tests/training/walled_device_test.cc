// A device whose memory the host cannot touch gives the CPU's bits, on every layout. Code that
// takes a device address for the host's dies here, at its line.
#include <string>

#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::testing {
namespace {

absl::StatusOr<TrainRun> TrainOn(const std::string& device, Job job) {
  job.mutable_runtime()->set_device(device);
  return Train(job, {});
}

void ExpectTheSameBits(const Job& job) {
  const absl::StatusOr<TrainRun> cpu = TrainOn("cpu", job), walled = TrainOn("walled", job);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ASSERT_TRUE(walled.ok()) << walled.status();
  ASSERT_FALSE(cpu->losses.empty());
  EXPECT_EQ(walled->losses, cpu->losses);
  EXPECT_EQ(walled->initial, cpu->initial);
  EXPECT_EQ(walled->weights, cpu->weights);
}

TEST(WalledDevice, TrainsToTheBitsOfTheCpuOnEveryLayout) {
  for (const Layout& layout : LayoutMatrix()) {
    SCOPED_TRACE(NameOf(layout));
    TransformerOptions options = SmallTransformer();
    options.sequence_parallel = layout.sequence;
    absl::StatusOr<Job> job = GptJob(options);
    ASSERT_TRUE(job.ok()) << job.status();
    job->mutable_training()->set_zero_stage(layout.zero);
    ExpectTheSameBits(WithMesh(*job, layout.mesh));
  }
}

TEST(WalledDevice, KeepsDelayedGradientsAndRareUpdates) {
  absl::StatusOr<Job> job = GptJob(SmallTransformer());
  ASSERT_TRUE(job.ok()) << job.status();
  job->mutable_training()->set_gradient_delay(1);
  ExpectTheSameBits(WithMesh(*job, "dp=2"));
}

}  // namespace
}  // namespace weir::testing
