#include "tools/fleet/stall_lines.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kHere[] = "\n  rank 0 actor 'backward': 3 of 6 acts, waits for input 'x', held by actor 'move x' on rank 0";
constexpr char kElsewhere[] = "\n  rank 0 actor 'move x': 3 of 6 acts, waits for input 'move x rank 1 to 0', held by rank 1";

std::vector<std::string> Printed(const std::string& stall) {
  return absl::StrSplit(absl::StrCat("something before", stall, "\n", WaitsForOthers(stall)), '\n');
}

TEST(StallLinesTest, OnlyWaitsForOtherProcessesAreFoundAgain) {
  EXPECT_THAT(FindWaitsForOthers(Printed(absl::StrCat(kHere, kElsewhere, kHere))),
              ElementsAre("rank 0 actor 'move x': 3 of 6 acts, waits for input 'move x rank 1 to 0', held by rank 1"));
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
