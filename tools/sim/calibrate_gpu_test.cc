#include "tools/sim/calibrate_gpu.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "tools/job/job_file.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/tiny_gpt_testing.h"

namespace weir::sim {
namespace {

using ::testing::HasSubstr;

MeasuredKernel Kernel(const std::string& op, const std::string& dtype, double flops, double bytes,
                      double ns) {
  MeasuredKernel kernel;
  kernel.work.op = op;
  kernel.work.dtype = dtype;
  kernel.work.flops = flops;
  kernel.work.bytes = bytes;
  kernel.ns = ns;
  return kernel;
}

TEST(CalibrateGpu, WhatWaitingTakesIsNoPartOfAKernel) {
  proto::DeviceModel device = DefaultGpuCluster(1).device(0);
  // Waiting takes 12 us: the quickest kernel takes 14 us, 2 us of which are its own.
  DescribeGpu("GPU",
              {Kernel("add", "bf16", 0, 1e3, 14'000), Kernel("matmul", "bf16", 6e9, 1e6, 22'000),
               Kernel("cast", "bf16", 0, 3e7, 22'000)},
              &device);
  EXPECT_EQ(device.name(), "GPU");
  ASSERT_EQ(device.kernel_size(), 3);
  EXPECT_EQ(device.kernel(0).ns(), 2'000);
  EXPECT_EQ(device.kernel(1).ns(), 10'000);
  EXPECT_EQ(device.bytes_per_second(), 3e12);
  ASSERT_EQ(device.peak_size(), 3);
  EXPECT_EQ(device.peak(0).flops_per_second(), 6e14);
  EXPECT_EQ(device.peak(0).efficiency(), 0) << "what was reached needs no share";
  EXPECT_EQ(device.peak(1).flops_per_second(), 989e12) << "no product of f16 was measured";
  EXPECT_EQ(device.peak(2).flops_per_second(), 67e12) << "nor one of f32";
  EXPECT_GT(device.driver_bytes(), 0);
}

TEST(CalibrateGpu, TheKernelsOfAnEmulatedGpuAreMeasured) {
  absl::StatusOr<proto::Job> job = TinyGptJob();
  ASSERT_TRUE(job.ok()) << job.status();
  job->mutable_runtime()->set_device("cuda-emulated");
  CalibrateOptions options;
  options.steps = 1;
  const absl::StatusOr<proto::Cluster> cluster = Calibrate(*job, options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->device(0).name(), "emulated GPU");
  EXPECT_GT(cluster->device(0).kernel_size(), 10);
  for (const proto::KernelCost& kernel : cluster->device(0).kernel()) EXPECT_GT(kernel.ns(), 0);
  options.trace = "trace.pftrace";
  EXPECT_THAT(std::string(Calibrate(*job, options).status().message()), HasSubstr("W0964"));
}

TEST(CalibrateGpu, AModelWithoutALossIsMeasuredAsItIsRun) {
  const absl::StatusOr<proto::Job> job =
      job::ParseJob(R"pb(
                      name: "results"
                      graph {
                        dim { name: "samples" size: 4 }
                        dim { name: "wide" size: 8 }
                        function {
                          name: "main"
                          input { name: "x" type: "f32[samples, wide]" }
                          node { name: "y" op: "relu" input: "x" }
                          output: "y"
                        }
                        main: "main"
                        without_loss: true
                      }
                      data { synthetic {} }
                      runtime { device: "cuda-emulated" }
                    )pb",
                    "results.textproto");
  ASSERT_TRUE(job.ok()) << job.status();
  CalibrateOptions options;
  options.steps = 1;
  const absl::StatusOr<proto::Cluster> cluster = Calibrate(*job, options);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const auto& kernels = cluster->device(0).kernel();
  EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(),
                          [](const proto::KernelCost& kernel) { return kernel.op() == "relu"; }));
}

TEST(CalibrateGpu, NobodyMeasuresAGpuThatIsNotThere) {
  if (!device::FindGpus().gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  proto::Job job;
  job.mutable_runtime()->set_device("cuda");
  EXPECT_THAT(std::string(Calibrate(job, {}).status().message()),
              ::testing::ContainsRegex("W055[0-2]"));
}

}  // namespace
}  // namespace weir::sim
