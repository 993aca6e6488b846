#include "runtime/control/liveness.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace weir::control {
namespace {

TEST(LivenessTest, WhoSaysNothingForItsTimeIsOverdueAndNotEarlier) {
  Liveness liveness(1000, 200);
  EXPECT_FALSE(liveness.IsOverdue(1199));
  EXPECT_TRUE(liveness.IsOverdue(1200));
  liveness.Heard(1150);
  EXPECT_FALSE(liveness.IsOverdue(1349));
  EXPECT_TRUE(liveness.IsOverdue(1350));
  EXPECT_EQ(liveness.SinceHeardNs(1200), 50);
}

TEST(LivenessTest, TimeGrantedCountsUntilTheNextWord) {
  Liveness liveness(0, 200);
  liveness.Grant(1000);
  EXPECT_FALSE(liveness.IsOverdue(1199));
  EXPECT_TRUE(liveness.IsOverdue(1200));
  liveness.Heard(1190);
  EXPECT_EQ(liveness.dies_ns(), 1390);
}

TEST(LivenessTest, WhoIsNotExcusedIsDeadWhenOverdue) {
  Liveness liveness(0, 200);
  EXPECT_TRUE(liveness.Judge(200, 0));
}

TEST(LivenessTest, WhoIsExcusedNoLongerHasAllItsTimeAnew) {
  Liveness liveness(0, 200);
  EXPECT_FALSE(liveness.Judge(200, 50));
  EXPECT_TRUE(liveness.IsOverdue(250));
  EXPECT_FALSE(liveness.Judge(250, 50));
  EXPECT_FALSE(liveness.Judge(300, 0)) << "the party may be able to speak since now";
  EXPECT_FALSE(liveness.IsOverdue(499));
  EXPECT_TRUE(liveness.IsOverdue(500));
  EXPECT_TRUE(liveness.Judge(500, 0)) << "the party had its time";
}

TEST(LivenessTest, AWordEndsAnExcuse) {
  Liveness liveness(0, 200);
  EXPECT_FALSE(liveness.Judge(200, 50));
  liveness.Heard(220);
  EXPECT_TRUE(liveness.Judge(420, 0));
}

TEST(AttentionTest, AWatcherThatWakesInTimeLosesNothing) {
  Attention attention(5);
  attention.Sleeps(0, 100);
  EXPECT_EQ(attention.Woke(100), 0);
  attention.Sleeps(102, 200);
  EXPECT_EQ(attention.Woke(150), 0);  // something came
  attention.Sleeps(151, 140);         // a time that has passed is now
  EXPECT_EQ(attention.Woke(152), 0);
}

TEST(AttentionTest, ALateWakingIsLostWhole) {
  Attention attention(5);
  attention.Sleeps(0, 100);
  EXPECT_EQ(attention.Woke(1100), 1000);
}

TEST(AttentionTest, TimeSpentAwakeIsLostToo) {
  Attention attention(5);
  attention.Sleeps(0, 100);
  EXPECT_EQ(attention.Woke(100), 0);
  attention.Sleeps(700, 800);
  EXPECT_EQ(attention.Woke(750), 600);
  attention.Sleeps(751, 800);
  EXPECT_EQ(attention.Woke(760), 0);
}

TEST(ClockEstimateTest, TheShortestRoundTripDecides) {
  ClockEstimate clock;
  EXPECT_FALSE(clock.has_any());
  EXPECT_EQ(clock.offset_ns(), 0);
  // The other clock is 5000 ahead; the way there takes 300, the way back 100; then 10 each.
  clock.Add(1000, 6300, 6400, 1500);
  EXPECT_EQ(clock.round_trip_ns(), 400);
  EXPECT_EQ(clock.offset_ns(), 5100);
  clock.Add(2000, 7010, 7050, 2060);
  EXPECT_EQ(clock.round_trip_ns(), 20);
  EXPECT_EQ(clock.offset_ns(), 5000);
  clock.Add(3000, 8900, 8900, 4000);
  EXPECT_EQ(clock.offset_ns(), 5000);
}

TEST(ClockEstimateTest, OldPingsAreForgottenAsClocksDrift) {
  ClockEstimate clock;
  clock.Add(0, 1005, 1005, 10);
  for (size_t i = 0; i < ClockEstimate::kSamples; ++i) clock.Add(100, 3110, 3110, 120);
  EXPECT_EQ(clock.offset_ns(), 3000);
}

TEST(ClockEstimateTest, TimesThatCannotBeAreIgnored) {
  ClockEstimate clock;
  const int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t least = std::numeric_limits<int64_t>::min();
  for (int64_t received : {least, int64_t{-1}, int64_t{0}, most}) {
    for (int64_t answered : {least, most}) clock.Add(100, received, answered, 200);
  }
  clock.Add(100, 50, 40, 200);  // answered before it came
  clock.Add(100, 0, 1000, 200);
  EXPECT_EQ(clock.round_trip_ns(), clock.has_any() ? 100 : 0);
}

}  // namespace
}  // namespace weir::control
