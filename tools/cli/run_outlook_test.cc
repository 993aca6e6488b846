#include "tools/cli/run_outlook.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGoesOn[] = "to go on from the last checkpoint: ";

TEST(RunOutlookTest, ARunIsTakenUpByItsOwnCommandLine) {
  EXPECT_EQ(HowToGoOn({"bazel-bin/tools/weir",
                       {"train", "job.textproto", "--mesh", "dp=2,tp=2", "--checkpoint", "k/"},
                       "job.textproto"},
                      "k/step-000000040"),
            absl::StrCat(kGoesOn,
                         "bazel-bin/tools/weir train job.textproto --mesh dp=2,tp=2 --checkpoint "
                         "k/ --resume k/step-000000040"));
}

TEST(RunOutlookTest, TheCheckpointTakesThePlaceOfTheStartThatTheCommandNames) {
  EXPECT_EQ(HowToGoOn({"weir", {"train", "--resume", "old", "job", "--steps", "9"}, "job"}, "new"),
            absl::StrCat(kGoesOn, "weir train job --steps 9 --resume new"));
  EXPECT_EQ(HowToGoOn({"weir", {"train", "--init=old.st", "job", "--resume=old"}, "job"}, "new"),
            absl::StrCat(kGoesOn, "weir train job --resume new"));
  EXPECT_EQ(HowToGoOn({"weir", {"train", "job", "--average", "--init", "run/"}, "job"}, "new"),
            absl::StrCat(kGoesOn, "weir train job --resume new"));
}

TEST(RunOutlookTest, OptionsStayBeforeTheMarkThatEndsThem) {
  EXPECT_EQ(HowToGoOn({"weir", {"train", "--init", "a", "--steps", "9", "--", "--init"}, "--init"},
                      "new"),
            absl::StrCat(kGoesOn, "weir train --steps 9 --resume new -- --init"));
}

TEST(RunOutlookTest, AJobThatNobodyCanReadAgainMustBeGivenAgain) {
  EXPECT_EQ(HowToGoOn({"weir", {"train", "-", "--steps", "9"}, "-"}, "new"),
            "to go on from the last checkpoint, with the same job on standard input again: weir "
            "train - --steps 9 --resume new");
  EXPECT_THAT(HowToGoOn({"weir", {"train", "/dev/fd/63"}, "/dev/fd/63"}, "new"),
              HasSubstr(", with the same job in the place of /dev/fd/63: weir train"));
}

TEST(RunOutlookTest, WordsThatAShellWouldChangeAreQuoted) {
  EXPECT_EQ(HowToGoOn({"my bin/weir",
                       {"train", "my job", "--mesh", "", "--save=a b", "--ssh", "it's $HOME"},
                       "my job"},
                      "a b"),
            absl::StrCat(kGoesOn,
                         "'my bin/weir' train 'my job' --mesh '' '--save=a b' --ssh 'it'\\''s "
                         "$HOME' --resume 'a b'"));
}

TEST(RunOutlookTest, NothingIsCalledWrittenThatIsNot) {
  EXPECT_THAT(EndedAfterTheWork({}), HasSubstr("every file was written: nothing is lost"));
  const std::string lacks = EndedAfterTheWork({"--trace t", "--metrics m"});
  EXPECT_THAT(lacks, AllOf(HasSubstr("no step is lost"), HasSubstr("--trace t, --metrics m"),
                           Not(HasSubstr("every file"))));
}

launch::JobFailure FailureAt(int64_t time_ms) {
  return {"rank 1", "killed by SIGKILL (9)", "", time_ms, time_ms};
}

TEST(RunOutlookTest, ASmallerMeshSaysWhenItGrowsAgainAndByWhichOption) {
  launch::GrowthPolicy growth({.after_ms = 90'000, .window_ms = 3600'000});
  launch::RestartPolicy restarts({.restarts_max = 1, .window_ms = 3600'000});
  restarts.Note(FailureAt(1'000));
  growth.NoteSmaller(1'000, {WorkerId(1)});
  EXPECT_THAT(GrowthOutlook(growth, restarts, 1'000),
              HasSubstr("that is tried in 1m30s (--grow-after)"));
}

TEST(RunOutlookTest, TheLimitOfRestartsMayMakeTheMeshWaitLonger) {
  launch::GrowthPolicy growth({.after_ms = 60'000, .window_ms = 600'000});
  launch::RestartPolicy restarts({.restarts_max = 0, .window_ms = 600'000});
  restarts.Note(FailureAt(1'000));
  growth.NoteSmaller(1'000, {WorkerId(1)});
  EXPECT_THAT(GrowthOutlook(growth, restarts, 1'000),
              AllOf(HasSubstr("that is tried in 10m00s, "), HasSubstr("--restart-window")));
}

TEST(RunOutlookTest, AMeshThatDoesNotGrowAgainSaysWhy) {
  const launch::RestartPolicy restarts{launch::RestartLimits()};
  launch::GrowthPolicy never({.after_ms = 0});
  never.NoteSmaller(0, {WorkerId(1)});
  EXPECT_THAT(GrowthOutlook(never, restarts, 0), HasSubstr("--grow-after is 0"));

  launch::GrowthPolicy lost_again({.after_ms = 10, .lost_again_max = 0, .window_ms = 1'000});
  lost_again.NoteSmaller(0, {WorkerId(1)});
  lost_again.NoteBegun(10, {WorkerId(1)});
  lost_again.NoteSmaller(20, {WorkerId(1)});
  EXPECT_THAT(GrowthOutlook(lost_again, restarts, 20),
              AllOf(HasSubstr("does not grow any more: processes were lost again 1 time soon"),
                    HasSubstr("Try: ")));
}

}  // namespace
}  // namespace weir::cli
