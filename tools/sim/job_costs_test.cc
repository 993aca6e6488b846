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

}  // namespace
}  // namespace weir::sim
