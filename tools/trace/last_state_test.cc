// The last state of a record whose times are known: rank 0 makes x, rank 1 reads it.
#include "tools/trace/last_state.h"

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RecordedRun RunWithGaps(const std::string& file) {
  absl::StatusOr<RecordedRun> run = ReadRunWithGaps(Read(file));
  EXPECT_TRUE(run.ok()) << run.status();
  return *std::move(run);
}

TEST(LastStateTest, ARunThatEndedWholeHasNone) {
  EXPECT_FALSE(FindLastState(RunWithGaps(Relay(3).File({0, 1}))).has_value());
}

TEST(LastStateTest, ARankThatIsMissingIsNamedAndWhoDependsOnIt) {
  Relay relay(3);
  relay.BeginStep();  // rank 0 made x of the fourth step, and rank 1 left no trace
  const std::optional<LastState> state = FindLastState(RunWithGaps(relay.File({1})));
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->missing, ElementsAre(RankId(0)));
  EXPECT_THAT(ToText(*state), HasSubstr("The trace lacks rank 0: its process"));
  // Rank 1 has done every act of the steps that the trace knows.
  ASSERT_EQ(state->acts.size(), 1u);
  EXPECT_EQ(state->acts[0].Text(), "rank 1 has done all acts of the steps in the trace");
}

TEST(LastStateTest, AnActThatHadAllThatItNeedsIsWhatTheOthersWaitFor) {
  Relay relay(2);
  relay.BeginStep();  // x of the third step lies there, and rank 1 never read it
  const RecordedRun run = RunWithGaps(relay.File({0, 1}));
  EXPECT_EQ(run.times.steps.size(), 2u);
  const std::optional<LastState> state = FindLastState(run);
  ASSERT_TRUE(state.has_value());
  EXPECT_TRUE(state->missing.empty());
  ASSERT_EQ(state->acts.size(), 2u);
  EXPECT_EQ(state->acts[0].need, OpenAct::Need::kNoStep);
  EXPECT_EQ(state->acts[1].Text(),
            "rank 1: `read x`, step 3, micro-batch 0, had all that it needs, or this was on its "
            "way");
  EXPECT_EQ(state->acts[1].since, run.ranks[RecordedRankId(1)].acts.back().end);
  ASSERT_EQ(state->sentences.size(), 2u);
  EXPECT_THAT(state->sentences[0], HasSubstr("The last step that is whole in the trace is step 2"));
  EXPECT_THAT(state->sentences[1], HasSubstr("in the end on `read x` on rank 1"));
}

TEST(LastStateTest, ARankThatNeedsATokenOfAMissingOneSaysSo) {
  // Rank 0 is gone, and rank 1 has read x twice: it needs the third, which the steps of the third
  // rank show to have begun.
  Relay relay(2);
  relay.BeginStep();
  const RecordedRun run = RunWithGaps(relay.File({1, 2}));
  const std::optional<LastState> state = FindLastState(run);
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->missing, ElementsAre(RankId(0)));
  ASSERT_EQ(state->acts.size(), 2u);
  EXPECT_EQ(
      state->acts[0].Text(),
      "rank 1: `read x`, step 3, micro-batch 0, needs a token of move x rank 0 to 1 from rank "
      "0, which the trace lacks");
  EXPECT_EQ(state->acts[0].holder_rank, RankId(0));
  EXPECT_THAT(state->sentences.back(),
              HasSubstr("This actor depends in the end on rank 0, which the trace lacks"));
}

std::string WithFailures(const std::string& file, const std::vector<TraceFailure>& failures) {
  std::ostringstream marks;
  EXPECT_EQ(WriteFailures(failures, marks), absl::OkStatus());
  return file + marks.str();
}

TEST(LastStateTest, AFailureThatTheTraceMarksIsToldAndWhoDependsOnIt) {
  Relay relay(2);
  relay.BeginStep();
  const std::string file = relay.File({0, 1});
  const TraceFailure failure = {kBegin + 90 * kMicrosecond, {RankId(1)}, "killed by SIGKILL (9)"};
  const std::optional<LastState> state = FindLastState(RunWithGaps(WithFailures(file, {failure})));
  ASSERT_TRUE(state.has_value());
  ASSERT_EQ(state->failures.size(), 1u);
  EXPECT_EQ(state->failures[0].ns, failure.ns);
  EXPECT_EQ(state->failures[0].rank, RankId(1));
  EXPECT_EQ(state->sentences[0], "The process of rank 1 failed: killed by SIGKILL (9).");
  EXPECT_EQ(state->acts[1].Text(),
            "rank 1: `read x`, step 3, micro-batch 0, was under way or about to begin when the "
            "process failed: killed by SIGKILL (9)");
  EXPECT_THAT(state->sentences.back(),
              HasSubstr("in the end on `read x` on rank 1, whose process failed."));
}

TEST(LastStateTest, AWholeRunThatFailedAfterwardsHasALastState) {
  const std::vector<TraceFailure> failures = {{kBegin + 9000, {}, "stuck"},
                                              {kBegin + 5000, {RankId(0), RankId(1)}, "lost"}};
  const std::optional<LastState> state =
      FindLastState(RunWithGaps(WithFailures(Relay(3).File({0, 1}), failures)));
  ASSERT_TRUE(state.has_value());
  ASSERT_EQ(state->failures.size(), 3u);
  EXPECT_EQ(state->failures[0].text, "lost") << "in order of time";
  EXPECT_EQ(state->sentences[0], "The process of ranks 0, 1 failed: lost.");
  EXPECT_EQ(state->sentences[1], "The job failed: stuck.");
}

TEST(LastStateTest, ATraceOfNoWholeStepStillHasALastState) {
  Relay relay(0);
  relay.BeginStep();
  const RecordedRun run = RunWithGaps(relay.File({0, 1}));
  EXPECT_TRUE(run.times.steps.empty());
  const std::optional<LastState> state = FindLastState(run);
  ASSERT_TRUE(state.has_value());
  EXPECT_THAT(state->sentences.front(), HasSubstr("No step is whole in the trace"));
  EXPECT_EQ(state->acts[1].function, "read x");
}

}  // namespace
}  // namespace weir::trace
