// Tests what chaos finds: nearly every planted bug, and nothing without planted bugs.
#include <algorithm>
#include <iostream>

#include "gtest/gtest.h"
#include "tests/chaos/kill_table.h"

namespace weir::chaos {
namespace {

constexpr uint64_t kSeeds = 300;

TEST(Mutants, WithoutABugTheSameProgramFindsNothing) {
  const Kill kill = TryToKill(PlantedBug::kNone, "none", "", kSeeds);
  EXPECT_FALSE(kill.killed) << kill.plan << ", seed " << kill.seed << ": " << kill.how;
}

TEST(Mutants, AtLeastNineteenOfTwentyPlantedBugsAreKilledByTheRegressionSeeds) {
  ASSERT_GE(BugCatalogue().size(), 20u);
  ASSERT_EQ(BugCatalogue().size(), static_cast<size_t>(kNumPlantedBugs))
      << "a bug without its line in the catalogue";
  const std::vector<Kill> table = MakeKillTable(kSeeds);
  PrintKillTable(table, std::cout);
  const auto killed =
      std::count_if(table.begin(), table.end(), [](const Kill& kill) { return kill.killed; });
  EXPECT_GE(killed * 100, static_cast<int64_t>(table.size()) * 95);
}

}  // namespace
}  // namespace weir::chaos
