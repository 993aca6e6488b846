#include "tools/cli/run_outlook.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RunOutlookTest, ARunIsTakenUpByItsOwnCommandLine) {
  EXPECT_EQ(CommandToResume({"train", "job.textproto", "--mesh", "dp=2,tp=2", "--checkpoint", "k/"},
                            "k/step-000000040"),
            "weir train job.textproto --mesh dp=2,tp=2 --checkpoint k/ --resume k/step-000000040");
}

TEST(RunOutlookTest, TheCheckpointTakesThePlaceOfTheStartThatTheCommandNames) {
  EXPECT_EQ(CommandToResume({"train", "--resume", "old", "job", "--steps", "9"}, "new"),
            "weir train job --steps 9 --resume new");
  EXPECT_EQ(CommandToResume({"train", "--init=old.st", "job"}, "new"),
            "weir train job --resume new");
}

TEST(RunOutlookTest, WordsThatAShellWouldChangeAreQuoted) {
  EXPECT_EQ(CommandToResume({"train", "my job", "--mesh", "", "--ssh", "it's $HOME"}, "a b"),
            "weir train 'my job' --mesh '' --ssh 'it'\\''s $HOME' --resume 'a b'");
}

launch::JobFailure FailureAt(int64_t time_ms) {
  return {"rank 1", "killed by SIGKILL (9)", "", time_ms, time_ms};
}

TEST(RunOutlookTest, ASmallerMeshSaysWhenItGrowsAgainAndByWhichOption) {
  launch::GrowthPolicy growth({.after_ms = 90'000, .window_ms = 3600'000});
  launch::RestartPolicy restarts({.restarts_max = 1, .window_ms = 3600'000});
  restarts.Note(FailureAt(1'000));
  growth.NoteSmaller(1'000);
  EXPECT_THAT(GrowthOutlook(growth, restarts, 1'000),
              HasSubstr("that is tried in 1m30s (--grow-after)"));
}

TEST(RunOutlookTest, TheLimitOfRestartsMayMakeTheMeshWaitLonger) {
  launch::GrowthPolicy growth({.after_ms = 60'000, .window_ms = 600'000});
  launch::RestartPolicy restarts({.restarts_max = 0, .window_ms = 600'000});
  restarts.Note(FailureAt(1'000));
  growth.NoteSmaller(1'000);
  EXPECT_THAT(GrowthOutlook(growth, restarts, 1'000),
              AllOf(HasSubstr("that is tried in 10m00s, "), HasSubstr("--restart-window")));
}

TEST(RunOutlookTest, AMeshThatDoesNotGrowAgainSaysWhy) {
  const launch::RestartPolicy restarts{launch::RestartLimits()};
  launch::GrowthPolicy never({.after_ms = 0});
  never.NoteSmaller(0);
  EXPECT_THAT(GrowthOutlook(never, restarts, 0), HasSubstr("--grow-after is 0"));

  launch::GrowthPolicy lost_again({.after_ms = 10, .lost_again_max = 0, .window_ms = 1'000});
  lost_again.NoteSmaller(0);
  lost_again.NoteBegun(10);
  lost_again.NoteSmaller(20);
  EXPECT_THAT(GrowthOutlook(lost_again, restarts, 20),
              AllOf(HasSubstr("does not grow any more: processes were lost again 1 time soon"),
                    HasSubstr("Try: ")));
}

}  // namespace
}  // namespace weir::cli
