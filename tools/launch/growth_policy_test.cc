#include "tools/launch/growth_policy.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerId kWorker(1), kOther(0);

// Returns the times, up to `end_ms`, at which a policy that is asked each millisecond takes a turn.
std::vector<int64_t> TurnsUntil(int64_t begin_ms, int64_t end_ms, GrowthPolicy* policy) {
  std::vector<int64_t> turns;
  for (int64_t time_ms = begin_ms; time_ms < end_ms; ++time_ms) {
    if (policy->TakesTurn(time_ms)) turns.push_back(time_ms);
  }
  return turns;
}

TEST(GrowthPolicyTest, AMeshThatIsNotSmallerDoesNotGrow) {
  GrowthPolicy policy({.after_ms = 10});
  EXPECT_THAT(TurnsUntil(0, 1000, &policy), IsEmpty());
}

TEST(GrowthPolicyTest, TheWaitDoublesWhilePlacesAreMissing) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 1000});
  policy.NoteSmaller(5, {kWorker});
  EXPECT_THAT(TurnsUntil(5, 200, &policy), ElementsAre(15, 35, 75, 155));
}

TEST(GrowthPolicyTest, TheNextTurnIsKnown) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 1000});
  EXPECT_EQ(policy.NextTurnMs(), std::nullopt);
  policy.NoteSmaller(5, {kWorker});
  EXPECT_EQ(policy.NextTurnMs(), 15);
  EXPECT_TRUE(policy.TakesTurn(15));
  EXPECT_EQ(policy.NextTurnMs(), 35);
  policy.NoteBegun(35, {kWorker});
  EXPECT_EQ(policy.NextTurnMs(), std::nullopt);
}

TEST(GrowthPolicyTest, TheWaitIsNeverLongerThanTheWindow) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 25});
  policy.NoteSmaller(0, {kWorker});
  EXPECT_THAT(TurnsUntil(0, 100, &policy), ElementsAre(10, 30, 55, 80));
}

TEST(GrowthPolicyTest, AWaitOfNothingMeansNever) {
  GrowthPolicy policy({.after_ms = 0, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  EXPECT_THAT(TurnsUntil(0, 5000, &policy), IsEmpty());
}

TEST(GrowthPolicyTest, AnotherLossBeginsTheWaitAnew) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  policy.NoteSmaller(8, {kWorker});
  EXPECT_THAT(TurnsUntil(8, 30, &policy), ElementsAre(18));
}

TEST(GrowthPolicyTest, AMeshThatHasGrownDoesNotGrowAgain) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  EXPECT_TRUE(policy.TakesTurn(10));
  policy.NoteBegun(10, {kWorker});
  EXPECT_THAT(TurnsUntil(10, 1000, &policy), IsEmpty());
}

TEST(GrowthPolicyTest, AnAttemptThatIsRefusedIsMadeAgainMoreRarelyAndForEver) {
  GrowthPolicy policy({.after_ms = 10, .lost_again_max = 0, .window_ms = 100});
  policy.NoteSmaller(0, {kWorker});
  std::vector<int64_t> turns;
  for (int64_t time_ms = 0; time_ms < 400; ++time_ms) {
    if (!policy.TakesTurn(time_ms)) continue;
    turns.push_back(time_ms);
    policy.NoteBegun(time_ms, {kWorker});
    policy.NoteRefused(time_ms);
  }
  EXPECT_THAT(turns, ElementsAre(10, 30, 70, 150, 250, 350));
  EXPECT_FALSE(policy.has_given_up());
}

TEST(GrowthPolicyTest, PlacesThatAreLostAgainSoonAreFilledLaterAndNotForEver) {
  GrowthPolicy policy({.after_ms = 10, .lost_again_max = 2, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  std::vector<int64_t> waits;
  for (int64_t lost_ms = 0, time_ms = 0; time_ms < 5000; ++time_ms) {
    if (!policy.TakesTurn(time_ms)) continue;
    waits.push_back(time_ms - lost_ms);
    policy.NoteBegun(time_ms, {kWorker});
    lost_ms = time_ms + 1;
    policy.NoteSmaller(lost_ms, {kWorker});
  }
  EXPECT_THAT(waits, ElementsAre(10, 20, 40));
  EXPECT_TRUE(policy.has_given_up());
  EXPECT_EQ(policy.lost_again(), 3);
}

TEST(GrowthPolicyTest, WithoutAnyLossAllowedOneFailedGrowthIsTheLast) {
  GrowthPolicy policy({.after_ms = 10, .lost_again_max = 0, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  EXPECT_TRUE(policy.TakesTurn(10));
  policy.NoteBegun(10, {kWorker});
  policy.NoteSmaller(20, {kWorker});
  EXPECT_TRUE(policy.has_given_up());
  EXPECT_THAT(TurnsUntil(20, 5000, &policy), IsEmpty());
}

TEST(GrowthPolicyTest, ALossOfAWorkerThatHasNeverLeftDoesNotCount) {
  GrowthPolicy policy({.after_ms = 10, .lost_again_max = 0, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  policy.NoteBegun(10, {kWorker});
  policy.NoteSmaller(20, {kOther});
  EXPECT_EQ(policy.lost_again(), 0);
  EXPECT_FALSE(policy.has_given_up());
  // The other one has come back by then, and so has this one.
  policy.NoteBegun(40, {kOther});
  policy.NoteSmaller(50, {kWorker});
  EXPECT_TRUE(policy.has_given_up());
}

TEST(GrowthPolicyTest, WorkersThatCameBackTogetherCountOnceAndAnAttemptThatIsRefusedBringsNone) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker, kOther});
  policy.NoteBegun(10, {kWorker, kOther});
  policy.NoteSmaller(20, {kWorker});
  policy.NoteSmaller(30, {kOther});
  EXPECT_EQ(policy.lost_again(), 1);
  policy.NoteBegun(50, {kWorker, kOther});
  policy.NoteRefused(50);
  policy.NoteSmaller(60, {kOther});
  EXPECT_EQ(policy.lost_again(), 1);
}

TEST(GrowthPolicyTest, PlacesThatLastedAreFilledAsAtFirst) {
  GrowthPolicy policy({.after_ms = 10, .lost_again_max = 0, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  EXPECT_TRUE(policy.TakesTurn(10));
  policy.NoteBegun(10, {kWorker});
  policy.NoteSmaller(1010, {kWorker});
  EXPECT_FALSE(policy.has_given_up());
  EXPECT_THAT(TurnsUntil(1010, 1030, &policy), ElementsAre(1020));
}

TEST(GrowthPolicyTest, ALossOnTheSmallMeshIsNoLossOfFilledPlaces) {
  GrowthPolicy policy({.after_ms = 10, .lost_again_max = 0, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  policy.NoteSmaller(1, {kWorker});
  policy.NoteSmaller(2, {kWorker});
  EXPECT_FALSE(policy.has_given_up());
}

TEST(GrowthPolicyTest, ANewStartIsNoSmallerMesh) {
  GrowthPolicy policy({.after_ms = 10, .window_ms = 1000});
  policy.NoteSmaller(0, {kWorker});
  policy.NoteStart();
  EXPECT_THAT(TurnsUntil(0, 1000, &policy), IsEmpty());
}

}  // namespace
}  // namespace weir::launch
