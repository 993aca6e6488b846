// Stops a session from outside, and reads its progress from outside.
#include <latch>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "actors/session/session.h"
#include "actors/testing/pipeline_job.h"
#include "actors/testing/test_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::actors {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::vector<proto::RankPlan> Pipeline(int num_stages) {
  PipelineJob job;
  job.num_stages = num_stages;
  return Certified(MakePipelineJob(job));
}

const absl::Status kReason = absl::CancelledError("the test wants it");

template <typename F>
void WaitUntil(const F& condition) {
  while (!condition()) std::this_thread::yield();
}

// A HoldingFeed stays in its first Fill until the test releases it.
class HoldingFeed final : public DataFeed {
 public:
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override {
    let_go_.wait();
    return inner_.Fill(feed, step, micro_batch, slice, out);
  }
  void LetGo() { let_go_.count_down(); }

 private:
  TestFeed inner_;
  std::latch let_go_{1};
};

TEST(StopTest, RanksThatWaitForAPeerThatNeverSendsAreStopped) {
  TestFeed feed;
  SplitJob::Options options{.parts = {{0, 1}, {2}}};
  options.session.feed = &feed;
  absl::StatusOr<std::unique_ptr<SplitJob>> job = SplitJob::Create(Pipeline(3), options);
  ASSERT_TRUE(job.ok()) << job.status();
  Session& session = (*job)->session(0);
  absl::Status status;
  std::thread runner([&] { status = session.RunSteps(2); });
  // Rank 2 does not run, so ranks 0 and 1 come to a halt when their stashes are full.
  constexpr int64_t kActs = 5 + 3 + 3 + 2 + 2;
  WaitUntil([&] { return session.Progress().acts == kActs && session.Progress().asleep; });
  EXPECT_THAT(session.Progress().activity, MatchesRegex("rank [01] waits"));
  EXPECT_FALSE(session.Progress().done);
  session.Stop(kReason);
  runner.join();
  EXPECT_EQ(status, kReason);
  EXPECT_EQ(session.RunSteps(1), kReason);
  const std::string stall = session.DescribeStall();
  EXPECT_THAT(stall, HasSubstr("rank 1 actor 'backward': 0 of 8 acts, waits for input 'gradient "
                               "in', held by actor 'send gradient' on rank 2"));
  EXPECT_THAT(stall, HasSubstr("rank 0 actor 'backward': 0 of 8 acts, waits for input 'gradient "
                               "in', held by actor 'send gradient' on rank 1"));
  for (const Wait& wait : session.ListWaits()) {
    EXPECT_THAT(stall, HasSubstr(ToLine(wait)));
    EXPECT_NE(wait.state, ActorState::kDone);
  }
  EXPECT_FALSE(session.ListWaits().empty());
  EXPECT_TRUE(session.ReadState(RankId(0), session.plan(RankId(0)).states[StateId(0)].name).ok());
}

TEST(StopTest, ARunThatGoesOnEndsBetweenActs) {
  TestFeed feed;
  SessionOptions options;
  options.feed = &feed;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(Pipeline(3), options);
  ASSERT_TRUE(session.ok()) << session.status();
  absl::Status status;
  std::thread runner([&] { status = (*session)->RunSteps(int64_t{1} << 31); });
  WaitUntil([&] { return (*session)->Progress().acts > 1000; });
  (*session)->Stop(kReason);
  (*session)->Stop(absl::InternalError("later"));
  runner.join();
  EXPECT_EQ(status, kReason);
  EXPECT_THAT((*session)->DescribeStall(), HasSubstr("rank 0 actor 'forward'"));
}

TEST(StopTest, AStopBetweenRunsIsTheAnswerOfTheNext) {
  for (const SessionOptions::EngineKind engine :
       {SessionOptions::EngineKind::kCaf, SessionOptions::EngineKind::kSim}) {
    TestFeed feed;
    SessionOptions options;
    options.engine = engine;
    options.feed = &feed;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(Pipeline(2), options);
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_EQ((*session)->RunSteps(2), absl::OkStatus());
    std::thread([&] { (*session)->Stop(kReason); }).join();
    EXPECT_EQ((*session)->RunSteps(1), kReason);
    EXPECT_EQ((*session)->RunSteps(1), kReason);
    EXPECT_EQ((*session)->steps_done(), 2);
  }
}

TEST(StopTest, AnActThatTakesLongIsNamed) {
  HoldingFeed feed;
  SessionOptions options;
  options.feed = &feed;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Create(Pipeline(2), options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->Progress().activity, "ranks 0, 1 have done all acts they were asked for");
  EXPECT_TRUE((*session)->Progress().asleep);
  absl::Status status;
  std::thread runner([&] { status = (*session)->RunSteps(2); });
  WaitUntil([&] { return absl::StrContains((*session)->Progress().activity, "'source'"); });
  EXPECT_THAT((*session)->Progress().activity,
              MatchesRegex("rank 0: actor 'source', act 0, for [0-9]+\\.[0-9] s"));
  EXPECT_FALSE((*session)->Progress().asleep);
  EXPECT_FALSE((*session)->Progress().done);
  EXPECT_EQ((*session)->Progress().acts, 0);
  feed.LetGo();
  runner.join();
  EXPECT_EQ(status, absl::OkStatus());
  const SessionProgress after = (*session)->Progress();
  EXPECT_EQ(after.activity, "ranks 0, 1 have done all acts they were asked for");
  EXPECT_TRUE(after.asleep);
  EXPECT_TRUE(after.done);
  int64_t acts = 0;
  for (const RankId rank : (*session)->local_ranks()) {
    for (const PlanActor& actor : (*session)->plan(rank).actors) acts += 2 * actor.acts_per_step;
  }
  EXPECT_EQ(after.acts, acts);
}

TEST(StopTest, AnErrorOfOneSessionCanStopTheOthers) {
  TestFeed feed;
  feed.FailAt(2);
  SplitJob::Options options{.parts = {{1}, {0}}};
  options.session.feed = &feed;
  const absl::Status status = RunSplitJob(Pipeline(2), options, 5, 5).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0, actor 'source', feed 'data'"));
}

TEST(StopTest, TokensOfAnotherEpochAreRefused) {
  const absl::Status status =
      RunSplitJob(Certified(LoadTestJob("ring")), {.parts = {{0}, {1}}, .epochs = {1, 2}}, 5, 5)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0510"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("epoch 2"));
}

}  // namespace
}  // namespace weir::actors
