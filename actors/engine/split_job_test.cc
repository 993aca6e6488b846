// Runs jobs whose ranks are spread over several sessions, as over processes. Expects the same bits
// as in one session, and that each session detects rest by itself.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "actors/session/session.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Parts = std::vector<std::vector<int>>;

std::vector<proto::RankPlan> Pipeline(int num_stages) {
  PipelineJob job;
  job.num_stages = num_stages;
  return Certified(MakePipelineJob(job));
}

SessionOptions Options() {
  SessionOptions options;
  options.trace_capacity = 16;
  return options;
}

struct Case {
  std::string name;
  std::vector<proto::RankPlan> plans;
  std::vector<Parts> splits;
};

std::vector<Case> Cases() {
  return {
      {"ring", Certified(LoadTestJob("ring")), {{{0}, {1}}, {{1}, {0}}}},
      {"chunked", Certified(LoadTestJob("chunked")), {{{0}, {1}}}},
      {"two stages", Pipeline(2), {{{0}, {1}}, {{0, 1}}}},
      {"four stages",
       Pipeline(4),
       {{{0, 1}, {2, 3}}, {{3, 1}, {2, 0}}, {{0}, {1}, {2}, {3}}, {{0, 1, 2}, {3}}}},
      {"seven stages", Pipeline(7), {{{0, 2, 4, 6}, {1, 3, 5}}, {{6}, {0, 1, 2}, {5, 4, 3}}}},
  };
}

TEST(SplitJobTest, GivesTheSameBitsAsOneSessionHoweverTheRanksAreSpread) {
  for (const Case& c : Cases()) {
    absl::StatusOr<Outcome> reference = RunTestJob(c.plans, Options(), 20, 20);
    ASSERT_TRUE(reference.ok()) << c.name << ": " << reference.status();
    for (const Parts& parts : c.splits) {
      for (int64_t steps_per_call : {20, 1, 7}) {
        absl::StatusOr<Outcome> outcome =
            RunSplitJob(c.plans, {.parts = parts, .session = Options()}, 20, steps_per_call);
        ASSERT_TRUE(outcome.ok()) << c.name << ": " << outcome.status();
        EXPECT_EQ(*outcome, *reference) << c.name << ", " << steps_per_call << " steps per call";
      }
    }
  }
}

TEST(SplitJobTest, TokensMayLandInMemoryOfTheTransportAndComeFromStaging) {
  for (const Case& c : Cases()) {
    absl::StatusOr<Outcome> reference = RunTestJob(c.plans, Options(), 10, 10);
    ASSERT_TRUE(reference.ok()) << reference.status();
    for (SharedNetwork::Landing landing :
         {SharedNetwork::Landing::kAnywhere, SharedNetwork::Landing::kOwn}) {
      for (SharedNetwork::Mapping mapping :
           {SharedNetwork::Mapping::kDirect, SharedNetwork::Mapping::kCopied}) {
        absl::StatusOr<Outcome> outcome = RunSplitJob(
            c.plans,
            {.parts = c.splits[0], .session = Options(), .landing = landing, .mapping = mapping},
            10, 5);
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_EQ(*outcome, *reference) << c.name;
      }
    }
  }
}

TEST(SplitJobTest, AThousandRunsOfOneStepEachComeToRest) {
  const std::vector<proto::RankPlan> plans = Pipeline(4);
  absl::StatusOr<Outcome> reference = RunTestJob(plans, Options(), 1000, 1000);
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (int polls : {CafEngineOptions::kChoosePolls, 1}) {
    SplitJob::Options options{.parts = {{0, 2}, {1, 3}}, .session = Options()};
    options.session.caf.polls_before_parking = polls;
    absl::StatusOr<Outcome> outcome = RunSplitJob(plans, options, 1000, 1);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(*outcome, *reference);
  }
}

TEST(SplitJobTest, RanksAreNamedByTheirNumberInTheJob) {
  TestFeed feed;
  SessionOptions session_options = Options();
  session_options.feed = &feed;
  absl::StatusOr<std::unique_ptr<SplitJob>> job =
      SplitJob::Create(Pipeline(4), {.parts = {{3, 1}, {0, 2}},
                                     .session = session_options,
                                     .landing = SharedNetwork::Landing::kOwn});
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ((*job)->RunSteps(3), absl::OkStatus());
  Session& session = (*job)->session(0);
  EXPECT_EQ(session.num_ranks(), 4);
  EXPECT_THAT(session.local_ranks(), ElementsAre(RankId(1), RankId(3)));
  EXPECT_EQ(session.plan(RankId(3)).rank, RankId(3));
  EXPECT_EQ(session.executor(RankId(1)).plan().rank, RankId(1));
  const std::string state = session.plan(RankId(3)).states[StateId(0)].name;
  EXPECT_TRUE(session.ReadState(RankId(3), state).ok());
  for (const RankId elsewhere : {RankId(-1), RankId(0), RankId(2), RankId(4)}) {
    EXPECT_EQ(session.ReadState(elsewhere, state).status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(session.WriteState(elsewhere, state, "x").code(), absl::StatusCode::kNotFound);
  }
  for (const EdgeReport& edge : session.Edges())
    EXPECT_TRUE(edge.from == RankId(1) || edge.from == RankId(3));
  // Rank 1 has an inbound register for activations and one for gradients.
  EXPECT_GE(session.Memory(RankId(1)).landing_bytes, 2 * 64);
  EXPECT_EQ(session.Memory(RankId(1)).staging_bytes, 0);
  EXPECT_EQ(session.steps_done(), 3);
  EXPECT_EQ(session.CheckAtRest(), absl::OkStatus());
}

TEST(SplitJobTest, SidesOfAnEdgeThatDisagreeAreFoundOnConnecting) {
  // Neither change makes the plan of rank 0 wrong by itself: more slots than the edge has, and a
  // shorter latency than the edge has.
  const std::vector<std::function<void(proto::RegisterSpec*)>> changes = {
      [](proto::RegisterSpec* r) { r->set_slots(r->slots() + 1); },
      [](proto::RegisterSpec* r) { r->set_latency_ns(r->latency_ns() - 1); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    std::vector<proto::RankPlan> plans = LoadTestJob("ring");
    for (proto::RankPlan& plan : plans) {
      for (proto::RegisterSpec& r : *plan.mutable_registers()) {
        if (r.edge() == 10) r.set_latency_ns(5);
      }
    }
    plans = Certified(plans);
    EXPECT_EQ(RunSplitJob(plans, {.parts = {{0}, {1}}, .session = Options()}, 1, 1).status(),
              absl::OkStatus());
    changes[i](plans[0].mutable_registers(2));
    const absl::Status status =
        RunSplitJob(plans, {.parts = {{0}, {1}}, .session = Options()}, 1, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("W0522")) << "change " << i;
  }
}

TEST(SplitJobTest, APlanThatClaimsTimesItDoesNotKeepIsRefusedByItsRank) {
  std::vector<proto::RankPlan> plans = Certified(LoadTestJob("ring"));
  plans[0].mutable_registers(0)->set_initial_tokens(0);
  const absl::Status status =
      RunSplitJob(plans, {.parts = {{0}, {1}}, .session = Options()}, 1, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0509"));
}

TEST(SplitJobTest, ASessionThatCannotLoadIsTheErrorOfAll) {
  std::vector<proto::RankPlan> plans = Pipeline(2);
  plans[1].mutable_program(0)->mutable_call(0)->set_op("test_nothing");
  const absl::Status status =
      RunSplitJob(plans, {.parts = {{0}, {1}}, .session = Options()}, 1, 1).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("test_nothing"));
}

TEST(SplitJobTest, WithoutANetworkAllRanksMustBeGiven) {
  std::vector<proto::RankPlan> plans = Pipeline(2);
  plans.pop_back();
  const absl::Status status = RunTestJob(plans, Options(), 1, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 plans, one per rank"));
}

TEST(SplitJobTest, ASimulatedSessionTakesNoNetwork) {
  SharedNetwork network(2, SharedNetwork::Landing::kAnywhere, SharedNetwork::Mapping::kDirect);
  SessionOptions options = Options();
  options.engine = SessionOptions::EngineKind::kSim;
  options.network = &network;
  EXPECT_EQ(RunTestJob(Pipeline(2), options, 1, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::actors
