#include "tools/launch/restart_policy.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobFailure Killed(const std::string& who, int64_t step, int64_t time_ms) {
  return {who, "killed by SIGKILL (9)", "actor 'forward'", step, time_ms, FailureOrigin::kOutside};
}

JobFailure Crashed(const std::string& who, int64_t step, int64_t time_ms) {
  return {who, "killed by SIGSEGV (11)", "actor 'forward'", step, time_ms};
}

TEST(RestartPolicyTest, AFailureElsewhereOrLaterStartsTheJobAgain) {
  RestartPolicy policy({.restarts_max = 10});
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 0)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 8, 1)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 2", 8, 2)), IsEmpty());
  EXPECT_THAT(policy.Note({"rank 2", "ended with exit code 70", "actor 'forward'", 8, 3}),
              IsEmpty());
  EXPECT_THAT(policy.Note({"rank 2", "ended with exit code 70", "actor 'update'", 8, 4}),
              IsEmpty());
  EXPECT_EQ(policy.restarts(), 5);
}

TEST(RestartPolicyTest, TheSameEndOfAProcessTwiceInARowEndsTheJob) {
  RestartPolicy policy({.restarts_max = 10});
  EXPECT_THAT(policy.Note(Crashed("rank 1", 7, 0)), IsEmpty());
  EXPECT_THAT(policy.Note(Crashed("rank 1", 7, 1)),
              HasSubstr("rank 1 failed 2 times in a row in the same way at the same place (killed "
                        "by SIGSEGV (11) after step 7, actor 'forward')"));
  EXPECT_EQ(policy.restarts(), 1);
}

TEST(RestartPolicyTest, WhatMayComeFromOutsideEndsTheJobAtTheThirdTimeInARow) {
  RestartPolicy policy({.restarts_max = 10});
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 0)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 1)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 2", 7, 2)), IsEmpty()) << "another rank: from the start";
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 3)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 4)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 5)),
              HasSubstr("rank 1 failed 3 times in a row in the same way at the same place (killed "
                        "by SIGKILL (9) after step 7, actor 'forward')"));
  EXPECT_EQ(policy.restarts(), 5);
}

TEST(RestartPolicyTest, ASignalFromOutsideBetweenTwoCrashesMakesThemTwoFailures) {
  RestartPolicy policy({.restarts_max = 10});
  EXPECT_THAT(policy.Note(Crashed("rank 1", 7, 0)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 7, 1)), IsEmpty());
  EXPECT_THAT(policy.Note(Crashed("rank 1", 7, 2)), IsEmpty());
}

TEST(RestartPolicyTest, OnlyFailuresWithinTheWindowCount) {
  RestartPolicy policy({.restarts_max = 2, .window_ms = 1000});
  EXPECT_THAT(policy.Note(Killed("rank 1", 1, 0)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 2, 500)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 3, 1100)), IsEmpty());
  EXPECT_THAT(policy.Note(Killed("rank 1", 4, 1200)),
              HasSubstr("failed 3 times within 1 s, and --max-restarts is 2"));
}

TEST(RestartPolicyTest, NoRestartIsAllowedWithALimitOfNone) {
  RestartPolicy policy({.restarts_max = 0});
  EXPECT_THAT(policy.Note(Killed("rank 1", 1, 0)), HasSubstr("failed 1 time within 3600 s"));
}

TEST(RestartPolicyTest, ALostPlaceHasRoomAgainWhenFailuresLeaveTheWindow) {
  RestartPolicy policy({.restarts_max = 1, .window_ms = 1000});
  EXPECT_TRUE(policy.HasRoom(0));
  EXPECT_THAT(policy.Note(Killed("rank 1", 1, 100)), IsEmpty());
  EXPECT_TRUE(policy.HasRoom(150));
  EXPECT_THAT(policy.Note(Killed("rank 1", 2, 200)), HasSubstr("failed 2 times within 1 s"));
  EXPECT_FALSE(policy.HasRoom(1100));
  EXPECT_TRUE(policy.HasRoom(1101));
  EXPECT_EQ(policy.RoomAtMs(1100), 1101);
  EXPECT_EQ(policy.RoomAtMs(1200), 1200);
  EXPECT_EQ(policy.recent(), 2);
}

TEST(RestartPolicyTest, OneProcessIsReplacedWithinTheWindowAndThatIsNoFailure) {
  RestartPolicy policy({.restarts_max = 0, .window_ms = 60'000});
  EXPECT_THAT(policy.NoteReplacement("rank 2", 5'000), IsEmpty());
  EXPECT_THAT(policy.NoteReplacement("rank 1", 45'000),
              HasSubstr("the process of rank 2 was replaced 40 s ago, and at most one is replaced "
                        "within 60 s"));
  EXPECT_THAT(policy.NoteReplacement("rank 2", 65'000), IsEmpty());
  EXPECT_EQ(policy.recent(), 0);
}

}  // namespace
}  // namespace weir::launch
