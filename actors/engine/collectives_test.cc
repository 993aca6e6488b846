// Collectives in plans: ranks whose inputs are ready in any order begin their collectives in the
// order of planned starts, and plans whose ranks would begin them in different orders are refused.
#include <string>
#include <thread>
#include <vector>

#include "actors/engine/start_order.h"
#include "actors/plan/group_statement.h"
#include "actors/plan/verify_plans.h"
#include "actors/session/session.h"
#include "actors/testing/job_sketch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kIterationNs = 1000;

// A Starts says when the collectives of a rank start. 0: the rank does not have the collective.
struct Starts {
  int64_t a = 10;
  int64_t b = 20;
};

// Two ranks each make two values and reduce both.
std::vector<proto::RankPlan> TwoReductions(const Starts& of_rank_1) {
  JobSketch job(2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const Starts starts = rank == 1 ? of_rank_1 : Starts();
    const auto reduce = [&](const std::string& name, const std::string& dtype, int64_t start) {
      const JobSketch::Actor make = job.Add(rank, "make " + name),
                             use = job.Add(rank, "use " + name);
      job.SetTime(make, 0, kIterationNs);
      job.SetTime(use, 50, kIterationNs);
      if (start == 0) {
        job.Connect(name, {make}, {{use}}, 1);
        return;
      }
      const JobSketch::Actor collective = job.AddCollective(rank, "reduce " + name, {0, 1}, dtype);
      job.SetTime(collective, start, kIterationNs);
      job.Connect(name, {make}, {{collective}}, 1);
      job.Connect("reduced " + name, {collective}, {{use}}, 1);
    };
    reduce("a", "f32", starts.a);
    reduce("b", "i32", starts.b);  // so the library tells ranks that come to different ones
  }
  return job.plans();
}

absl::Status Verify(const std::vector<proto::RankPlan>& protos) {
  std::vector<Plan> plans;
  for (const proto::RankPlan& proto : protos) {
    absl::StatusOr<Plan> plan = PlanFromProto(proto);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  return VerifyPlans(plans);
}

TEST(CollectivesTest, EveryInterleavingBeginsThemInTheOrderOfTheirStarts) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SessionOptions options;
    options.engine = SessionOptions::EngineKind::kSim;
    options.sim.seed = seed;
    options.sim.check = SimEngineOptions::Check::kEveryStep;
    auto session = Session::Create(TwoReductions({}), options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_EQ((*session)->RunSteps(3), absl::OkStatus()) << "seed " << seed;
  }
}

TEST(CollectivesTest, RanksOnThreadsMeet) {
  auto session = Session::Create(TwoReductions({}), {});
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->RunSteps(100), absl::OkStatus());
}

// The same on emulated GPUs, with an emulated NCCL, whose operations are work of a queue.
std::vector<proto::RankPlan> TwoReductionsOn(const std::string& device, int depth) {
  std::vector<proto::RankPlan> plans = TwoReductions({});
  for (proto::RankPlan& plan : plans) {
    plan.set_device_kind(device);
    plan.set_num_queues(2);
    plan.set_depth(depth);
  }
  return plans;
}

TEST(CollectivesTest, DevicesOfRanksMeetInTheirQueues) {
  SessionOptions options;
  options.collectives = SessionOptions::Collectives::kNccl;
  for (const int depth : {1, 2, 64}) {
    SCOPED_TRACE(depth);
    auto session = Session::Create(TwoReductionsOn("cuda-emulated", depth), options);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ((*session)->RunSteps(3), absl::OkStatus());
    EXPECT_EQ((*session)->RunSteps(3), absl::OkStatus());
  }
}

TEST(CollectivesTest, DevicesThatLeaveTheirGroupsInTheMiddleEnd) {
  SessionOptions options;
  options.collectives = SessionOptions::Collectives::kNccl;
  auto session = Session::Create(TwoReductionsOn("cuda-emulated", 64), options);
  ASSERT_TRUE(session.ok()) << session.status();
  std::thread stopper([&] {
    while ((*session)->Progress().acts == 0) std::this_thread::yield();
    (*session)->Stop(absl::AbortedError("enough"));
  });
  EXPECT_EQ((*session)->RunSteps(1'000'000), absl::AbortedError("enough"));
  stopper.join();
}

TEST(CollectivesTest, NcclNeedsGpus) {
  SessionOptions options;
  options.collectives = SessionOptions::Collectives::kNccl;
  EXPECT_THAT(std::string(Session::Create(TwoReductionsOn("cpu", 1), options).status().message()),
              HasSubstr("W0957"));
}

TEST(CollectivesTest, PlansThatBeginThemInAnotherOrderAreRefused) {
  EXPECT_EQ(Verify(TwoReductions({})), absl::OkStatus());
  // Both ranks are sound by themselves, and would wait for each other for ever.
  const absl::Status swapped = Verify(TwoReductions({20, 10}));
  EXPECT_THAT(std::string(swapped.message()), HasSubstr("W0954"));
  EXPECT_THAT(std::string(swapped.message()), HasSubstr("group of ranks 0 1, collective 0"));
  EXPECT_THAT(std::string(swapped.message()), HasSubstr("start 10"));
  EXPECT_THAT(std::string(swapped.message()), HasSubstr("start 20"));
}

TEST(CollectivesTest, PlansOfWhichOneLacksACollectiveAreRefused) {
  EXPECT_THAT(std::string(Verify(TwoReductions({10, 0})).message()),
              HasSubstr("no further collective"));
  EXPECT_THAT(std::string(Verify(TwoReductions({0, 0})).message()),
              HasSubstr("collectives of the group of ranks 0 1, as rank 0 has"));
}

TEST(CollectivesTest, ACollectiveOfAnotherGroupIsRefused) {
  std::vector<proto::RankPlan> plans = TwoReductions({});
  proto::CollectiveProto* collective =
      plans[0].mutable_program(0)->mutable_call(0)->mutable_collective();
  collective->set_rank(1, 2);
  EXPECT_THAT(std::string(Verify(plans).message()),
              HasSubstr("a group of ranks below 2 with rank 0; found ranks 0 2"));
  collective->set_rank(1, 0);
  EXPECT_THAT(std::string(Verify(plans).message()), HasSubstr("a group of different ranks"));
}

TEST(CollectivesTest, AGroupInSeveralProcessesIsRefused) {
  const absl::StatusOr<Plan> plan = PlanFromProto(TwoReductions({})[0]);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const absl::Status status = CheckGroupsAreHere({&*plan, 1});
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0955"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 in another process"));
}

TEST(CollectivesTest, TheOrderOfStartsEndsWithTheStepsThatMayBeDone) {
  const absl::StatusOr<Plan> plan = PlanFromProto(TwoReductions({30, 20})[1]);
  ASSERT_TRUE(plan.ok()) << plan.status();
  StartOrder order(&*plan, /*first_step=*/4);
  EXPECT_EQ(order.num_actors(), 2);
  EXPECT_FALSE(order.actor().has_value());
  order.SetLimit(6);
  std::vector<std::string> names;
  for (; order.actor().has_value(); order.Advance())
    names.push_back(plan->actors[order.actor()].name);
  EXPECT_THAT(names, ::testing::ElementsAre("reduce b", "reduce a", "reduce b", "reduce a"));
  EXPECT_EQ(order.num_passed(), 4);
}

}  // namespace
}  // namespace weir::actors
