#include "tools/launch/cpu_starvation.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace weir::launch {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kTicks = 100;  // of a second

TEST(CpuStarvationTest, AThreadIsReadByWhatFollowsItsNameWhateverThatIs) {
  ProcessorUse use;
  ASSERT_TRUE(AddThread(
      "17 (a) R (b c) S 1 17 17 0 -1 4194560 95 0 0 0 120 30 0 0 20 0 1 0 55 8 1\n", &use));
  EXPECT_FALSE(use.is_ready);
  EXPECT_EQ(use.ticks, 150);
  ASSERT_TRUE(AddThread("18 (x) R 1 17 17 0 -1 4194560 95 0 0 0 5 2 0 0 20 0 1 0 55 8 1\n", &use));
  EXPECT_TRUE(use.is_ready);
  EXPECT_EQ(use.ticks, 157);
  EXPECT_FALSE(AddThread("", &use));
  EXPECT_FALSE(AddThread("19 (x) R 1 2", &use));
  EXPECT_FALSE(AddThread("19 (x) R 1 17 17 0 -1 4194560 95 0 0 0 five 2 0 0 20", &use));
  EXPECT_EQ(use.ticks, 157);
}

TEST(CpuStarvationTest, ThisProcessRunsAndOneThatIsNotThereDoesNot) {
  const auto use = ReadProcessorUse(::getpid());
  ASSERT_TRUE(use.has_value());
  EXPECT_TRUE(use->is_ready);
  EXPECT_FALSE(ReadProcessorUse(0x7ffffffe).has_value());
}

TEST(CpuStarvationTest, AProcessThatWaitsOrIsStoppedIsNotStarved) {
  CpuStarvation starvation(kTicks, 4 * kSecond);
  EXPECT_FALSE(starvation.IsStarved(1, ProcessorUse{false, 10}, 0));
  EXPECT_FALSE(starvation.IsStarved(1, std::nullopt, 0));
}

TEST(CpuStarvationTest, AProcessThatIsReadyIsBelievedOnceAndThenOnlyIfItHardlyRan) {
  CpuStarvation starvation(kTicks, 4 * kSecond);
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1000}, 10 * kSecond));
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1020}, 11 * kSecond));
  EXPECT_EQ(starvation.NumLooks(1), 2);
  EXPECT_FALSE(starvation.IsStarved(1, ProcessorUse{true, 1050}, 12 * kSecond))
      << "0.3 of a core, and still silent";
  EXPECT_EQ(starvation.NumLooks(1), 0);
}

TEST(CpuStarvationTest, AThreadsWaitsAreReadAndThoseThatAreNotCountedAreNone) {
  ProcessorUse use;
  EXPECT_LT(use.waited_ns, 0);
  EXPECT_FALSE(AddWaits("", &use));
  EXPECT_FALSE(AddWaits("17 4\n", &use));
  EXPECT_FALSE(AddWaits("17 four 3\n", &use));
  EXPECT_LT(use.waited_ns, 0);
  ASSERT_TRUE(AddWaits("17 4 3\n", &use));
  ASSERT_TRUE(AddWaits("1 20 30\n", &use));
  EXPECT_EQ(use.waited_ns, 24);
  EXPECT_EQ(use.num_turns, 33);
}

TEST(CpuStarvationTest, OneThatSleepsAndWakesNowAndThenIsNotStarvedThoughItIsReadyAtEachLook) {
  CpuStarvation starvation(kTicks, 4 * kSecond);
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1000, 5 * kSecond, 70}, 10 * kSecond));
  EXPECT_FALSE(
      starvation.IsStarved(1, ProcessorUse{true, 1001, 5 * kSecond + 9, 95}, 11 * kSecond));
}

TEST(CpuStarvationTest, OneThatWaitsForACoreIsStarvedWhetherItGotATurnOrNot) {
  CpuStarvation starvation(kTicks, 4 * kSecond);
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1000, 5 * kSecond, 70}, 10 * kSecond));
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1000, 5 * kSecond, 70}, 11 * kSecond));
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1001, 7 * kSecond, 71}, 12 * kSecond));
  EXPECT_EQ(starvation.NumLooks(1), 3);
}

TEST(CpuStarvationTest, OneThatIsStoppedWhileStarvedIsNoLongerBelieved) {
  CpuStarvation starvation(kTicks, 4 * kSecond);
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1000}, 10 * kSecond));
  EXPECT_FALSE(starvation.IsStarved(1, ProcessorUse{false, 1000}, 11 * kSecond));
}

TEST(CpuStarvationTest, WhatWasSeenLongAgoIsForgotten) {
  CpuStarvation starvation(kTicks, 4 * kSecond);
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 1000}, 10 * kSecond));
  EXPECT_TRUE(starvation.IsStarved(1, ProcessorUse{true, 90000}, 900 * kSecond))
      << "it has worked in between";
  EXPECT_EQ(starvation.NumLooks(1), 1);
}

}  // namespace
}  // namespace weir::launch
