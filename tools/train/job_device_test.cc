#include "tools/train/job_device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/device/device_factory.h"

namespace weir::train {
namespace {

using ::testing::HasSubstr;

proto::Job JobFor(const std::string& kind) {
  proto::Job job;
  job.mutable_runtime()->set_device(kind);
  return job;
}

TEST(JobDeviceTest, AJobThatNamesNoDeviceStaysAsItIs) {
  proto::Job job;
  EXPECT_EQ(SettleDevice(&job), absl::OkStatus());
  EXPECT_EQ(job.runtime().device(), "");
  EXPECT_EQ(job.runtime().device_depth(), 0);
}

TEST(JobDeviceTest, AGpuHasQueuesAndTakesActsAheadUnlessTheJobSaysOtherwise) {
  proto::Job job = JobFor("cuda-emulated");
  EXPECT_EQ(SettleDevice(&job), absl::OkStatus());
  EXPECT_EQ(job.runtime().device_queues(), 4);
  EXPECT_EQ(job.runtime().device_depth(), 64);
  job.mutable_runtime()->set_device_queues(2);
  job.mutable_runtime()->set_device_depth(1);
  EXPECT_EQ(SettleDevice(&job), absl::OkStatus());
  EXPECT_EQ(job.runtime().device_queues(), 2);
  EXPECT_EQ(job.runtime().device_depth(), 1);
  proto::Job cpu = JobFor("cpu");
  EXPECT_EQ(SettleDevice(&cpu), absl::OkStatus());
  EXPECT_EQ(cpu.runtime().device_depth(), 0);
}

TEST(JobDeviceTest, AutoIsWhatTheMachineHas) {
  proto::Job job = JobFor("auto");
  EXPECT_EQ(SettleDevice(&job), absl::OkStatus());
  EXPECT_EQ(job.runtime().device(), device::ResolveDeviceKind("auto"));
}

TEST(JobDeviceTest, WhatThereIsNotIsRefused) {
  proto::Job job = JobFor("gpu");
  EXPECT_THAT(SettleDevice(&job).message(), HasSubstr("W0529 at runtime.device"));
  for (const char* spelled : {"gpu", "CUDA"}) {
    job.mutable_runtime()->set_device(spelled);
    EXPECT_THAT(SettleDevice(&job).message(), HasSubstr("Try: cuda"));
  }
  proto::Runtime runtime;
  runtime.set_device("cuda-emulated");
  runtime.set_graphs(proto::Runtime::Graphs::ON);
  EXPECT_EQ(CheckDevice(runtime), absl::OkStatus());
  proto::Runtime cpu = runtime;
  cpu.set_device("cpu");
  EXPECT_THAT(CheckDevice(cpu).message(), HasSubstr("W0966 at runtime.graphs"));
  runtime.set_device_depth(257);
  EXPECT_THAT(CheckDevice(runtime).message(), HasSubstr("W0529 at runtime.device_depth"));
  runtime.set_device_depth(256);
  EXPECT_EQ(CheckDevice(runtime), absl::OkStatus());
}

TEST(JobDeviceTest, LocalCollectivesNeedMemoryThatTheHostReaches) {
  for (const char* kind : {"", "cpu", "walled", "cuda-emulated"}) {
    proto::Job job = JobFor(kind);
    job.mutable_runtime()->set_collectives(proto::Runtime::LOCAL);
    EXPECT_EQ(SettleDevice(&job), absl::OkStatus()) << kind;
  }
  if (device::CheckDeviceIsBuilt("cuda").ok()) {
    proto::Job job = JobFor("cuda");
    job.mutable_runtime()->set_collectives(proto::Runtime::LOCAL);
    EXPECT_THAT(SettleDevice(&job).message(), HasSubstr("W0956 at runtime.collectives"));
  }
}

}  // namespace
}  // namespace weir::train
