// Tests checkpoints on a disk that loses power at any operation. See
// docs/how_to/crash_under_seeds.md.
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/disk/checkpoint_life.h"

namespace weir::disk {
namespace {

constexpr uint64_t kSeeds = 1500;

class CrashTest : public ::testing::TestWithParam<bool> {};

TEST_P(CrashTest, CheckpointsSurviveAFaultAtEachOperation) {
  LifeOutcome all;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const LifeOutcome outcome = LiveThroughEachFault({seed, GetParam()});
    ASSERT_EQ(outcome.problem, "") << "seed " << seed;
    all.crashes += outcome.crashes;
    all.errors += outcome.errors;
  }
  EXPECT_GT(all.crashes, 500);
  EXPECT_GT(all.errors, 200);
}

TEST_P(CrashTest, CheckpointsSurviveManyFaultsInOneLife) {
  LifeOutcome all;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const LifeOutcome outcome = LiveAtRandom({seed, GetParam()});
    ASSERT_EQ(outcome.problem, "") << "seed " << seed;
    all.crashes += outcome.crashes;
    all.errors += outcome.errors;
  }
  EXPECT_GT(all.crashes, static_cast<int64_t>(kSeeds));
  EXPECT_GT(all.errors, static_cast<int64_t>(kSeeds / 10));
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutExchange, CrashTest, ::testing::Bool());

TEST(PlantedFaultsTest, EachPlantedFaultIsNoticed) {
  for (int i = 1; i < kNumPlanted; ++i) {
    const auto planted = static_cast<Planted>(i);
    uint64_t found = 0;
    for (uint64_t seed = 1; seed <= 4 * kSeeds && found == 0; ++seed) {
      const LifeOutcome outcome = LiveAtRandom({seed, true, planted});
      if (!outcome.problem.empty()) found = seed;
    }
    EXPECT_GT(found, 0u) << Name(planted);
  }
}

TEST(SimulatedDiskTest, TheSameSeedGivesTheSameLife) {
  const auto text = [](uint64_t seed) {
    std::string problem;
    for (; problem.empty(); ++seed)
      problem = LiveAtRandom({seed, true, Planted::kShardsNotFlushed}).problem;
    return problem;
  };
  EXPECT_EQ(text(1), text(1));
}

}  // namespace
}  // namespace weir::disk
