#include "tools/fleet/stall_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kHere[] =
    "\n  rank 0 actor 'backward': 3 of 6 acts, waits for input 'x', held by actor 'move x' on rank "
    "0";
constexpr char kElsewhere[] =
    "\n  rank 0 actor 'move x': 3 of 6 acts, waits for input 'move x rank 1 to 0', held by rank 1";
constexpr char kNamed[] =
    "\n  rank 0 actor 'move x': 3 of 6 acts, waits for input 'x 1 to 0', held by actor 'send x' on "
    "rank 1";
constexpr char kBack[] =
    "\n  rank 1 actor 'send x': 3 of 6 acts, waits for credit 'x 1 to 0', held by actor 'backward' "
    "on rank 0";
constexpr char kRunning[] = "\n  rank 1 actor 'send x': 3 of 6 acts, running";

std::vector<std::string> Printed(const std::string& stall) {
  return absl::StrSplit(absl::StrCat("something before", stall, "\n", WaitsForOthers(stall)), '\n');
}

TEST(StallLinesTest, OnlyWaitsForOtherProcessesAreFoundAgain) {
  EXPECT_THAT(FindWaitsForOthers(Printed(absl::StrCat(kHere, kElsewhere, kHere))),
              ElementsAre("rank 0 actor 'move x': 3 of 6 acts, waits for input 'move x rank 1 to "
                          "0', held by rank 1"));
}

TEST(StallLinesTest, AnActorOfAnotherProcessIsFoundByItsRank) {
  EXPECT_THAT(FindWaitsForOthers(Printed(absl::StrCat(kHere, kNamed))),
              ElementsAre("rank 0 actor 'move x': 3 of 6 acts, waits for input 'x 1 to 0', held by "
                          "actor 'send x' on rank 1"));
}

TEST(StallLinesTest, LogsOfAllRanksShowTheRing) {
  EXPECT_THAT(ExplainLogs({absl::StrCat("step 1 loss 2", kHere, kNamed, "\n"),
                           absl::StrCat("something", kBack)}),
              ElementsAre("a ring of 3 actors that wait for each other:",
                          "  rank 0 actor 'backward': 3 of 6 acts, waits for input 'x', held by "
                          "actor 'move x' on rank 0",
                          "  rank 0 actor 'move x': 3 of 6 acts, waits for input 'x 1 to 0', held "
                          "by actor 'send x' on rank 1",
                          "  rank 1 actor 'send x': 3 of 6 acts, waits for credit 'x 1 to 0', held "
                          "by actor 'backward' on rank 0"));
}

TEST(StallLinesTest, WithoutARingTheActorThatAllWaitForIsNamed) {
  EXPECT_THAT(
      ExplainLogs({absl::StrCat(kHere, kNamed), kRunning}),
      ElementsAre(
          "in the end 2 of 3 actors wait for actor 'send x' on rank 1: 3 of 6 acts, running"));
  EXPECT_THAT(ExplainLogs({absl::StrCat(kHere, kNamed)}),
              ElementsAre("in the end 2 of 2 actors wait for actor 'send x' on rank 1, which could "
                          "not say what it does"));
  EXPECT_THAT(ExplainLogs({"no such line"}), IsEmpty());
}

TEST(StallLinesTest, OfManyAFewAreToldAndTheRestCounted) {
  std::string stall;
  for (int i = 0; i < 10; ++i) stall += kElsewhere;
  const std::vector<std::string> found = FindWaitsForOthers(Printed(stall));
  ASSERT_EQ(found.size(), 7u);
  EXPECT_EQ(found.back(), "and 4 more");
}

TEST(StallLinesTest, WhoWaitsForNobodyOutsideSaysNothing) {
  EXPECT_EQ(WaitsForOthers(kHere), "");
  EXPECT_EQ(WaitsForOthers(""), "");
  EXPECT_THAT(FindWaitsForOthers(Printed(kHere)), IsEmpty());
  EXPECT_THAT(FindWaitsForOthers({}), IsEmpty());
}

}  // namespace
}  // namespace weir
