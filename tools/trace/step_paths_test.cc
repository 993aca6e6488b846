// The paths of single steps, on a record whose times are known.
#include "tools/trace/step_paths.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/relay_testing.h"
#include "tools/trace/why_slow.h"

namespace weir::trace {
namespace {

using ::testing::ElementsAre;

TEST(StepPathsTest, TheSegmentsOfAStepFollowOneAnotherFromItsBeginToItsEnd) {
  const RecordedRun run = RunOf(Relay(4));
  const StepPaths paths = FindStepPaths(run);
  ASSERT_EQ(paths.steps.size(), 4u);
  for (const StepPath& path : paths.steps) {
    const StepTime& step = run.TimeOf(path.step);
    int64_t at = step.begin;
    for (const PathSegment& segment : path.segments) {
      EXPECT_EQ(segment.begin, at);
      at = segment.end;
    }
    EXPECT_EQ(at, step.end);
  }
  // In a step, rank 0 makes x, x is under way, and rank 1 reads it.
  const std::vector<PathSegment>& segments = paths.steps[2].segments;
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[0].kind, PathSegment::Kind::kAct);
  EXPECT_EQ(segments[0].rank_index, RecordedRankId(0));
  EXPECT_EQ(segments[0].act, 2);
  EXPECT_EQ(segments[1].kind, PathSegment::Kind::kToken);
  EXPECT_EQ(segments[1].rank_index, RecordedRankId(1));
  EXPECT_EQ(segments[1].sender, RecordedRankId(0));
  EXPECT_EQ(segments[1].register_index, RecordedRegisterId(0));
  EXPECT_EQ(segments[1].end - segments[1].begin, 5 * kMicrosecond);
  EXPECT_EQ(segments[2].kind, PathSegment::Kind::kAct);
  EXPECT_EQ(segments[2].rank_index, RecordedRankId(1));
}

TEST(StepPathsTest, AStepThatIsAskedForHasItsSegmentsWithTheirNames) {
  const RecordedRun run = RunOf(Relay(4));
  EXPECT_TRUE(FindWhySlow(run, {})->segments.empty());
  const std::vector<NamedSegment> segments = FindWhySlow(run, {.step = 2})->segments;
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[0].name, "make x");
  EXPECT_FALSE(segments[0].sender.has_value());
  EXPECT_EQ(segments[1].name, "move x rank 0 to 1");
  EXPECT_EQ(segments[1].rank, RankId(1));
  EXPECT_EQ(segments[1].sender, RankId(0));
  EXPECT_EQ(segments[2].cause, StepPartKind::kCompute);
}

TEST(StepPathsTest, GroupsAddUpTheSegmentsOfOneCauseAndName) {
  const StepPaths paths = FindStepPaths(RunOf(Relay(4)));
  const std::vector<PathGroup>& groups = paths.steps[2].groups;
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].name, "read x");
  EXPECT_EQ(groups[0].cause, StepPartKind::kCompute);
  EXPECT_EQ(groups[0].ns, 20 * kMicrosecond);
  EXPECT_EQ(groups[0].times, 1);
  EXPECT_THAT(groups[0].ranks, ElementsAre(RankId(1)));
  EXPECT_EQ(groups[1].name, "make x");
  EXPECT_EQ(groups[2].name, "move x");
  EXPECT_EQ(groups[2].cause, StepPartKind::kUnderWay);
  EXPECT_DOUBLE_EQ(groups[2].share, 5.0 / 35);
}

TEST(StepPathsTest, TheTypicalStepIsTheSteadyOneNearestToTheMedian) {
  EXPECT_EQ(FindStepPaths(RunOf(Relay(12, /*slow_step=*/1))).typical_step, 2);
}

TEST(StepPathsTest, ALongRunHasThePathsOfItsLastStepsAndOfItsOutliers) {
  const StepPaths few = FindStepPaths(RunOf(Relay(30)));
  EXPECT_EQ(few.steps.size(), 30u);
  const StepPaths many = FindStepPaths(RunOf(Relay(150, /*slow_step=*/20, /*acts_kept=*/256)));
  ASSERT_EQ(many.steps.size(), kStepPathsMax + 1);
  EXPECT_EQ(many.steps.front().step, 20);
  EXPECT_EQ(many.steps[1].step, 50);
}

}  // namespace
}  // namespace weir::trace
