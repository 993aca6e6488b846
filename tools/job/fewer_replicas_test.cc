#include "tools/job/fewer_replicas.h"

#include "gtest/gtest.h"

namespace weir::job {
namespace {

proto::Job JobOf(int64_t replicas, int64_t others) {
  proto::Job job;
  proto::MeshAxisSpec* const tp = job.mutable_mesh()->add_axis();
  tp->set_name("tp");
  tp->set_size(others);
  proto::MeshAxisSpec* const dp = job.mutable_mesh()->add_axis();
  dp->set_name("dp");
  dp->set_size(replicas);
  return job;
}

// Returns the replicas and the micro-batches as a text; empty: the job does not become smaller.
std::string Smaller(const proto::Job& job, int64_t devices, int64_t devices_min = 1) {
  const std::optional<FewerReplicas> smaller = WithFewerReplicas(job, devices, devices_min);
  if (!smaller.has_value()) return "";
  EXPECT_EQ(smaller->devices,
            smaller->job.mesh().axis(0).size() * smaller->job.mesh().axis(1).size());
  return FewerReplicasText(job, smaller->job);
}

TEST(FewerReplicasTest, TheReplicasThatFitDoTheWorkOfAll) {
  EXPECT_EQ(Smaller(JobOf(2, 1), 1), "dp=1 instead of dp=2, and 2 micro-batches instead of 1");
  EXPECT_EQ(Smaller(JobOf(4, 2), 7), "dp=2 instead of dp=4, and 2 micro-batches instead of 1");
  EXPECT_EQ(Smaller(JobOf(6, 1), 5), "dp=3 instead of dp=6, and 2 micro-batches instead of 1");
  proto::Job job = JobOf(6, 1);
  job.mutable_training()->set_micro_batches(3);
  EXPECT_EQ(Smaller(job, 2), "dp=2 instead of dp=6, and 9 micro-batches instead of 3");
  EXPECT_EQ(Smaller(JobOf(2, 1), 2), "dp=1 instead of dp=2, and 2 micro-batches instead of 1");
}

TEST(FewerReplicasTest, AJobThatIsSmallerAlreadyTellsOfTheReplicasThatItHas) {
  const proto::Job written = JobOf(4, 2);
  const proto::Job before = WithFewerReplicas(written, 5, 1)->job;
  const proto::Job smaller = WithFewerReplicas(written, 3, 1)->job;
  EXPECT_EQ(FewerReplicasText(before, smaller),
            "dp=1 instead of dp=2, and 4 micro-batches instead of 2");
}

TEST(FewerReplicasTest, AJobDoesNotBecomeSmallerThanItMay) {
  EXPECT_EQ(Smaller(JobOf(4, 2), 6, 5), "");
  EXPECT_NE(Smaller(JobOf(4, 2), 6, 4), "");
  EXPECT_EQ(Smaller(JobOf(4, 2), 1), "") << "no replica fits";
  EXPECT_EQ(Smaller(JobOf(1, 4), 3), "");
  EXPECT_FALSE(HasReplicas(JobOf(1, 4)));
  EXPECT_FALSE(HasReplicas(proto::Job()));
}

}  // namespace
}  // namespace weir::job
