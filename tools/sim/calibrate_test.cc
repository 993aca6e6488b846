// Tests the use of times in processes, and jobs without a loss; kernels and one process are
// measured for real.
#include "tools/sim/calibrate.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/npy_writer.h"
#include "tools/job/job_file.h"
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

constexpr char kModelWithoutLoss[] = R"pb(
  name: "scores"
  graph {
    dim { name: "samples" size: 4 }
    dim { name: "wide" size: 8 }
    dim { name: "classes" size: 6 }
    function {
      name: "main"
      input { name: "x" type: "f32[samples, wide]" }
      parameter { name: "w" type: "f32[wide, classes]" }
      node {
        name: "scores"
        op: "matmul"
        input: [ "x", "w" ]
      }
      node { name: "likely" op: "exp" input: "scores" }
      output: "likely"
    }
    main: "main"
    without_loss: true
  }
  mesh { axis { name: "dp" size: 2 } }
  rule { dim: "samples" axis: "dp" }
)pb";

// Returns a job that is run for its results, on two devices. Its data are five samples of a file,
// one more than a step has.
absl::StatusOr<proto::Job> JobWithoutLoss() {
  constexpr int64_t kSamples = 5, kWide = 8;
  const std::string path = TemporaryPath("x.npy");
  const std::vector<float> values(kSamples * kWide, 0.5F);
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  auto writer = store::NpyWriter::Create(path, DType::kF32, {kSamples, kWide});
  EXPECT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE((*writer)->Append(reinterpret_cast<const char*>(values.data()), bytes).ok());
  EXPECT_TRUE((*writer)->Publish().ok());
  return job::ParseJob(
      absl::StrCat(kModelWithoutLoss, "data { arrays { array { name: \"x\" path: \"", path,
                   "\" } } }"),
      "scores.textproto");
}

TEST(CalibrateTest, AJobWithoutALossHasTheKernelsOfItsModelMeasured) {
  const absl::StatusOr<proto::Job> job = JobWithoutLoss();
  ASSERT_TRUE(job.ok()) << job.status();
  CalibrateOptions options;
  options.steps = 3;  // more than the samples last for
  const absl::StatusOr<proto::Cluster> cluster = Calibrate(*job, options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  std::set<std::string> ops;
  for (const proto::KernelCost& kernel : cluster->device(0).kernel()) ops.insert(kernel.op());
  EXPECT_THAT(ops, ::testing::IsSupersetOf({"matmul", "exp"}));
}

}  // namespace
}  // namespace weir::sim
