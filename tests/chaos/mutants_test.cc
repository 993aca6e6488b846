// Tests what the tests find: every mutant, and nothing while no mutant is on.
#include <iostream>

#include "gtest/gtest.h"
#include "tests/chaos/kill_table.h"
#include "tests/chaos/mutant_switch.h"

namespace weir::chaos {
namespace {

constexpr uint64_t kSeeds = 300;

TEST(Mutants, WithoutAMutantTheSameProgramFindsNothing) {
  const Kill kill = TryToKillByChaos(kNoMutant, kSeeds);
  EXPECT_FALSE(kill.killed) << kill.by << ", seed " << kill.seed << ": " << kill.how;
}

TEST(Mutants, EveryMutantIsKilledByTheTestThatTheCatalogueNames) {
  ASSERT_GE(MutantCatalogue().size(), 20u);
  const std::vector<Kill> table = MakeKillTable(kSeeds);
  PrintKillTable(table, std::cout);
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_TRUE(table[i].killed) << table[i].mutant << " survives: " << MutantCatalogue()[i].what
                                 << " " << table[i].how;
  }
}

}  // namespace
}  // namespace weir::chaos
