// Tests the use of times in processes; kernels and one process are measured for real.
#include "tools/sim/calibrate.h"

#include "gtest/gtest.h"
#include "tools/sim/tiny_gpt_testing.h"

namespace weir::sim {
namespace {

absl::StatusOr<proto::Cluster> CalibratedWith(int64_t step_in_processes_ns) {
  const absl::StatusOr<proto::Job> job = TinyGptJob();
  EXPECT_TRUE(job.ok()) << job.status();
  CalibrateOptions options;
  options.steps = 1;
  options.in_processes = [step_in_processes_ns](const proto::Job&, int, int64_t rounds,
                                                int64_t) -> absl::StatusOr<std::vector<int64_t>> {
    return std::vector<int64_t>(rounds, step_in_processes_ns);
  };
  return Calibrate(*job, options);
}

TEST(CalibrateTest, WhatStepsTakeMoreInProcessesIsChargedToWakingAndToBytes) {
  constexpr int64_t kAnHourNs = int64_t{3600} * 1000 * 1000 * 1000;  // longer than any step here
  const absl::StatusOr<proto::Cluster> cluster = CalibratedWith(kAnHourNs);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_GT(cluster->device(0).wake_ns(), 1e9);
  EXPECT_EQ(cluster->within_host().send_bytes_per_second(),
            cluster->within_host().receive_bytes_per_second());
}

TEST(CalibrateTest, ProcessesThatCostNothingMoreAreAsOne) {
  const absl::StatusOr<proto::Cluster> cluster = CalibratedWith(/*step_in_processes_ns=*/1);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device(0).wake_ns(), 0);
  EXPECT_EQ(cluster->within_host().send_bytes_per_second(), 0) << "bytes cost nothing";
}

}  // namespace
}  // namespace weir::sim
