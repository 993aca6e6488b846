// The difference of two records whose times are known.
#include "tools/trace/run_diff.h"

#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/trace/trace_file.h"
#include "tools/trace/diff_json.h"
#include "tools/trace/recorded_run.h"
#include "tools/trace/relay_testing.h"

namespace weir::trace {
namespace {

using ::testing::HasSubstr;

const std::vector<int> kBoth = {0, 1};

TEST(RunDiffTest, TheRowsOfThePathAddUpToTheDifferenceOfTheSteps) {
  // A step takes 35 us, or 45 where rank 1 reads for 30 us.
  const RunDiff diff = CompareRuns(RunOf(Relay(6).File(kBoth)),
                                   RunOf(Relay(8, -1, 64, /*read_takes_us=*/30).File(kBoth)));
  EXPECT_DOUBLE_EQ(diff.a_step_ns, 35 * kMicrosecond);
  EXPECT_DOUBLE_EQ(diff.b_step_ns, 45 * kMicrosecond);
  double more = 0;
  for (const DiffRow& row : diff.path) more += row.more_ns();
  EXPECT_DOUBLE_EQ(more, 10 * kMicrosecond);
  ASSERT_FALSE(diff.path.empty());
  EXPECT_EQ(diff.path[0].name, "read x");
  EXPECT_EQ(diff.path[0].cause, "compute");
  EXPECT_DOUBLE_EQ(*diff.path[0].a_ns, 20 * kMicrosecond);
  EXPECT_DOUBLE_EQ(*diff.path[0].b_ns, 30 * kMicrosecond);
}

TEST(RunDiffTest, ActorsMatchByNameAndRankAndTheLargestDifferenceComesFirst) {
  const RunDiff diff = CompareRuns(RunOf(Relay(6).File(kBoth)),
                                   RunOf(Relay(6, -1, 64, /*read_takes_us=*/30).File(kBoth)));
  EXPECT_EQ(diff.matched, 2);
  EXPECT_EQ(diff.only_a, 0);
  ASSERT_EQ(diff.work.size(), 2u);
  EXPECT_EQ(diff.work[0].name, "read x");
  EXPECT_DOUBLE_EQ(diff.work[0].more_ns(), 10 * kMicrosecond);
  EXPECT_DOUBLE_EQ(diff.work[0].b_act_ns, 30 * kMicrosecond);
  EXPECT_DOUBLE_EQ(diff.work[1].more_ns(), 0);
  // The waits of rank 0 for its slot are waits for the reads.
  ASSERT_FALSE(diff.waits.empty());
  EXPECT_EQ(diff.waits[0].cause, "work");
  EXPECT_EQ(diff.waits[0].name, "read x");
}

TEST(RunDiffTest, NodesThatOneRunLacksStayWithoutAMatch) {
  const Relay relay(6);
  TracedJob job;
  job.ranks = {relay.Rank(0), relay.Rank(1)};
  job.ranks[0].actors[ActorId(0)].name = "another actor";
  job.ranks[0].actors[ActorId(0)].function = "make other x";
  std::stringstream out;
  ASSERT_EQ(WriteTrace(job, 0, out), absl::OkStatus());
  const RunDiff diff = CompareRuns(RunOf(relay.File(kBoth)), RunOf(out.str()));
  EXPECT_EQ(diff.matched, 1);
  EXPECT_EQ(diff.only_a, 1);
  EXPECT_EQ(diff.only_b, 1);
  bool found = false;
  for (const DiffRow& row : diff.path) {
    if (row.name != "make other x") continue;
    found = true;
    EXPECT_FALSE(row.a_ns.has_value());
    EXPECT_DOUBLE_EQ(*row.b_ns, 10 * kMicrosecond);
  }
  EXPECT_TRUE(found);
}

TEST(RunDiffTest, StepsStandSideBySideByTheirNumber) {
  const RunDiff diff =
      CompareRuns(RunOf(Relay(3).File(kBoth)), RunOf(Relay(5, /*slow_step=*/1).File(kBoth)));
  ASSERT_EQ(diff.steps.size(), 5u);
  EXPECT_EQ(*diff.steps[1].a_ns, 35 * kMicrosecond);
  EXPECT_EQ(*diff.steps[1].b_ns, 815 * kMicrosecond);
  EXPECT_FALSE(diff.steps[4].a_ns.has_value());
}

TEST(RunDiffTest, TextAndJsonSayWhichRunIsSlowerAndWhere) {
  const RunDiff diff = CompareRuns(RunOf(Relay(6).File(kBoth)),
                                   RunOf(Relay(6, -1, 64, /*read_takes_us=*/30).File(kBoth)));
  EXPECT_THAT(ToText(diff, "one", "two", 5),
              HasSubstr("a step takes 0.035 ms in one and 0.045 ms in two: 28.6 % longer"));
  EXPECT_THAT(Verdict(diff, "one", "two"), HasSubstr("compute `read x`, +0.010 ms"));
  const nlohmann::json json = nlohmann::json::parse(ToJson(diff, "one", "two"));
  EXPECT_EQ(json["b"]["step_ns"], 45 * kMicrosecond);
  EXPECT_EQ(json["steps"][0]["step"], 1);
  EXPECT_EQ(json["path"][0]["more_ns"], 10 * kMicrosecond);
  EXPECT_THAT(
      Verdict(CompareRuns(RunOf(Relay(6).File(kBoth)), RunOf(Relay(6).File(kBoth))), "a", "b"),
      HasSubstr("takes the same time"));
}

}  // namespace
}  // namespace weir::trace
