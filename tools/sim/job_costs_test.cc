#include "tools/sim/job_costs.h"

#include <stdlib.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::sim {
namespace {

using ::testing::HasSubstr;

constexpr char kCluster[] = R"(
    name: "mine"
    device { name: "core" act_ns: 777 bytes_per_second: 1e10 peak { dtype: "f32" flops_per_second: 1e10 } }
    host { device: "core" devices: 2 })";

// Each test has its own home folder, so no costs are kept there.
class JobCostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("HOME", home_.path().c_str(), 1);
    ::unsetenv("XDG_CONFIG_HOME");
    ::unsetenv("WEIR_CLUSTER");
  }
  const TemporaryFolder home_;
};

TEST_F(JobCostsTest, WithoutAFileThereAreTheDefaultsWhichSayThatTheyAreNotOfThisMachine) {
  const absl::StatusOr<JobCosts> costs = JobCosts::Choose("");
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->source(), JobCosts::Source::kDefaults);
  EXPECT_EQ(costs->model().ActNs(), compiler::PeakCosts().ActNs());
  EXPECT_THAT(costs->Text(), HasSubstr("not of this machine"));
  // The defaults have as many devices as any job needs.
  for (const int64_t ranks : {1, 8, 9, 1000}) {
    const proto::Cluster cluster = costs->ClusterFor(ranks);
    EXPECT_GE(cluster.host(0).count() * cluster.host(0).devices(), ranks);
  }
}

TEST_F(JobCostsTest, AJobForGpusHasTheRooflineOfAnH100UnlessAFileIsNamed) {
  home_.Write(".config/weir/here.textproto", kCluster);
  proto::Job job;
  job.mutable_runtime()->set_device("cuda");
  proto::MeshAxisSpec* const axis = job.mutable_mesh()->add_axis();
  axis->set_name("dp");
  axis->set_size(9);
  const absl::StatusOr<JobCosts> costs = JobCosts::Choose("", job);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->source(), JobCosts::Source::kGpuDefaults);
  EXPECT_EQ(costs->model().ActNs(), 5'000);
  EXPECT_THAT(costs->Text(), HasSubstr("an H100 by its data sheet, not measured"));
  EXPECT_EQ(costs->ClusterFor(9).host(0).count(), 2);
  const std::string given = home_.Write("given.textproto", kCluster);
  EXPECT_EQ(JobCosts::Choose(given, job)->model().ActNs(), 777);
  job.mutable_runtime()->set_device("cpu");
  EXPECT_EQ(JobCosts::Choose("", job)->source(), JobCosts::Source::kKept);
}

TEST_F(JobCostsTest, AJobForGpusGoesByTheGpuThatWasMeasured) {
  const std::string kept = home_.Write(".config/weir/gpu.textproto", kCluster);
  EXPECT_EQ(KeptGpuClusterPath(), kept);
  proto::Job job;
  job.mutable_runtime()->set_device("cuda");
  proto::MeshAxisSpec* const axis = job.mutable_mesh()->add_axis();
  axis->set_name("dp");
  axis->set_size(9);
  const absl::StatusOr<JobCosts> costs = JobCosts::Choose("", job);
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->source(), JobCosts::Source::kKept);
  EXPECT_EQ(costs->model().ActNs(), 777);
  EXPECT_EQ(costs->ClusterFor(9).host(0).count(), 2) << "as many as the job needs";
  EXPECT_EQ(JobCosts::Choose("defaults", job)->model().ActNs(), 5'000);
  job.mutable_runtime()->set_device("cuda-emulated");
  EXPECT_EQ(JobCosts::Choose("", job)->source(), JobCosts::Source::kGpuDefaults);
}

TEST_F(JobCostsTest, TheDriverOfAGpuTakesMemory) {
  proto::Job job;
  job.mutable_runtime()->set_device("cuda");
  EXPECT_EQ(JobCosts::Choose("", job)->DriverBytes(job), 970'000'000);
  job.mutable_runtime()->set_device("cuda-emulated");
  EXPECT_EQ(JobCosts::Choose("", job)->DriverBytes(job), 0);
}

TEST_F(JobCostsTest, WhatIsKeptIsFoundAndNamed) {
  const std::string path = home_.Write(".config/weir/here.textproto", kCluster);
  EXPECT_EQ(KeptClusterPath(), path);
  const absl::StatusOr<JobCosts> costs = JobCosts::Choose("");
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_EQ(costs->source(), JobCosts::Source::kKept);
  EXPECT_EQ(costs->model().ActNs(), 777);
  EXPECT_THAT(costs->Text(), HasSubstr(path));
  // With --cluster defaults the kept costs do not count.
  EXPECT_EQ(JobCosts::Choose("defaults")->source(), JobCosts::Source::kDefaults);
}

TEST_F(JobCostsTest, AVariableNamesAnotherPlaceAndAFlagWins) {
  ::setenv("WEIR_CLUSTER", home_.Write("kept.textproto", kCluster).c_str(), 1);
  EXPECT_EQ(JobCosts::Choose("")->source(), JobCosts::Source::kKept);
  const absl::StatusOr<JobCosts> given = JobCosts::Choose(home_.Write("given.textproto", kCluster));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(given->source(), JobCosts::Source::kFile);
  EXPECT_THAT(given->Text(), HasSubstr("given.textproto"));
}

TEST_F(JobCostsTest, ABrokenFileIsAnErrorWithItsPlace) {
  const std::string path = home_.Write(".config/weir/here.textproto", "devise {}");
  const absl::Status status = JobCosts::Choose("").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(path + ":1:"));
  EXPECT_FALSE(JobCosts::Choose(home_.PathFor("none.textproto")).ok());
}

TEST_F(JobCostsTest, AClusterThatWasReadGivesTheSameCosts) {
  const absl::StatusOr<JobCosts> chosen =
      JobCosts::Choose(home_.Write("given.textproto", kCluster));
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(JobCosts::Of(chosen->cluster()).model().ActNs(), 777);
  EXPECT_EQ(JobCosts::Of(JobCosts::Defaults().cluster()).source(), JobCosts::Source::kDefaults);
}

proto::Job JobOf(proto::Training::Precision precision) {
  proto::Job job;
  job.mutable_training()->set_precision(precision);
  return job;
}

train::PeakArithmetic PeakOf(const JobCosts& costs, const train::DevicesInUse& devices) {
  return costs.PeakFor(JobOf(proto::Training::F32), devices);
}

TEST_F(JobCostsTest, ThePeakIsThatOfTheDevicesInUse) {
  const absl::StatusOr<JobCosts> given = JobCosts::Choose(home_.Write("given.textproto", kCluster));
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(PeakOf(*given, {1, 1, 1}).flops_per_second, 1e10);
  EXPECT_EQ(PeakOf(*given, {2, 1, 1}).flops_per_second, 2e10);
  EXPECT_THAT(PeakOf(*given, {2, 1, 1}).from, HasSubstr("given.textproto"));
  EXPECT_EQ(PeakOf(*given, {3, 1, 1}).flops_per_second, 0) << "the cluster has two";
}

TEST_F(JobCostsTest, DevicesThatShareCoresHaveNoMoreThanTheCores) {
  ::setenv("WEIR_CLUSTER",
           home_
               .Write("kept.textproto", R"(
    device { name: "core" cores: 1 bytes_per_second: 1e10 peak { dtype: "f32" flops_per_second: 1e10 } }
    host { device: "core" devices: 4 cores: 4 })")
               .c_str(),
           1);
  const absl::StatusOr<JobCosts> kept = JobCosts::Choose("");
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(PeakOf(*kept, {2, 1, 1}).flops_per_second, 2e10);
  EXPECT_EQ(PeakOf(*kept, {2, 2, 1}).flops_per_second, 4e10) << "two threads each";
  EXPECT_EQ(PeakOf(*kept, {16, 1, 1}).flops_per_second, 4e10) << "sixteen share four cores";
  EXPECT_EQ(PeakOf(*kept, {2, 1, 2}).flops_per_second, 0) << "nobody measured the other host";
  const train::PeakArithmetic bf16 = kept->PeakFor(JobOf(proto::Training::BF16), {1, 1, 1});
  EXPECT_EQ(bf16.flops_per_second, 0);
  EXPECT_THAT(bf16.from, HasSubstr("no peak of bf16"));
}

TEST_F(JobCostsTest, TheDefaultsAreNoPeakOfThisMachine) {
  const train::PeakArithmetic peak = PeakOf(JobCosts::Defaults(), {1, 1, 1});
  EXPECT_EQ(peak.flops_per_second, 0);
  EXPECT_THAT(peak.from, HasSubstr("weir calibrate"));
}

}  // namespace
}  // namespace weir::sim
