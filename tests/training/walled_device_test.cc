// A device whose memory the host cannot touch, and whose queues work late and in any order that
// they may, gives the CPU's bits on every layout. Code that takes a device address for the host's
// dies here, at its line; code that does not wait gives other bits.
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

// A walled device: queues, and acts that it takes ahead.
struct Queues {
  int num, depth;
};

std::vector<Queues> AllQueues() {
  std::vector<Queues> all;
  for (const int depth : {1, 2, 64}) {
    for (int num = 1; num <= 4; ++num) all.push_back({num, depth});
  }
  return all;
}

void ExpectTheSameBits(proto::Job job, const std::vector<Queues>& devices) {
  job.mutable_runtime()->set_device("cpu");
  const absl::StatusOr<TrainRun> cpu = Train(job, {});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ASSERT_FALSE(cpu->losses.empty());
  job.mutable_runtime()->set_device("walled");
  for (const Queues& queues : devices) {
    SCOPED_TRACE(absl::StrCat(queues.num, " queues, depth ", queues.depth));
    job.mutable_runtime()->set_device_queues(queues.num);
    job.mutable_runtime()->set_device_depth(queues.depth);
    const absl::StatusOr<TrainRun> walled = Train(job, {});
    ASSERT_TRUE(walled.ok()) << walled.status();
    EXPECT_EQ(walled->losses, cpu->losses);
    EXPECT_EQ(walled->initial, cpu->initial);
    EXPECT_EQ(walled->weights, cpu->weights);
  }
}

TEST(WalledDevice, TrainsToTheBitsOfTheCpuOnEveryLayoutAndWithAnyQueues) {
  for (const Layout& layout : LayoutMatrix()) {
    SCOPED_TRACE(NameOf(layout));
    const absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, SmallTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    ExpectTheSameBits(*job, AllQueues());
  }
}

TEST(WalledDevice, KeepsDelayedGradientsAndRareUpdates) {
  absl::StatusOr<proto::Job> job = zoo::GptJob(SmallTransformer());
  ASSERT_TRUE(job.ok()) << job.status();
  job->mutable_training()->set_gradient_delay(1);
  ExpectTheSameBits(WithMesh(*job, "dp=2"), AllQueues());
}

}  // namespace
}  // namespace weir::training
