// Plays some thousands of untried seeds, different in every run. A failure names its seed.
#include <random>

#include "gtest/gtest.h"
#include "tests/chaos/chaos_case.h"
#include "tests/chaos/recovery_job.h"

namespace weir::chaos {
namespace {

TEST(FreshSeeds, AreClean) {
  std::random_device entropy;
  const uint64_t first = uint64_t{entropy()} << 16;
  for (const StandardPlan& plan : StandardPlans()) {
    absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create(plan.name);
    ASSERT_TRUE(player.ok()) << player.status();
    for (uint64_t seed = first; seed < first + 3000; ++seed) {
      const CaseResult result = (*player)->Play(seed, CaseChooser::kAll, CaseFaults::kBySeed);
      ASSERT_EQ(result.failure, "") << "replay: bazel run //tests/chaos -- --plans=" << plan.name
                                    << " --seeds=" << seed << " --explain";
    }
  }
}

TEST(FreshSeeds, OfRecoveryAreClean) {
  std::random_device entropy;
  const uint64_t first = (uint64_t{entropy()} << 16) + 1;
  for (uint64_t seed = first; seed < first + 3000; ++seed) {
    ASSERT_EQ(PlayRecovery({seed}).violation, "")
        << "replay: bazel run //tests/chaos:recovery -- --seeds=" << seed << " --explain";
  }
}

}  // namespace
}  // namespace weir::chaos
