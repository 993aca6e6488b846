// Plays a thousand fixed seeds of every standard plan, twice each.
#include <sstream>

#include "gtest/gtest.h"
#include "tests/chaos/chaos_case.h"
#include "tests/chaos/exhaustive.h"

namespace weir::chaos {
namespace {

class EveryPlan : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const StandardPlan& plan : StandardPlans()) names.push_back(plan.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Plans, EveryPlan, ::testing::ValuesIn(Names()),
                         [](const auto& test) { return test.param; });

TEST_P(EveryPlan, IsCleanUnderAThousandSeedsAndEachRepeatsItsHistory) {
  absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create(GetParam());
  ASSERT_TRUE(player.ok()) << player.status();
  int64_t num_errors = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const CaseResult first = (*player)->Play(seed, CaseChooser::kAll, CaseFaults::kBySeed);
    ASSERT_EQ(first.failure, "") << "seed " << seed;
    num_errors += first.num_errors;
    const CaseResult again = (*player)->Play(seed, CaseChooser::kAll, CaseFaults::kBySeed);
    ASSERT_EQ(first.history_hash, again.history_hash) << "seed " << seed;
  }
  EXPECT_GT(num_errors, 0) << "harmful faults happen";
}

TEST_P(EveryPlan, EndsWellUnderEveryHarmlessFault) {
  absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create(GetParam());
  ASSERT_TRUE(player.ok()) << player.status();
  for (const CaseChooser chooser : {CaseChooser::kUniform, CaseChooser::kStarve, CaseChooser::kPct2,
                                    CaseChooser::kPct3, CaseChooser::kMutate}) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
      const CaseResult result = (*player)->Play(seed, chooser, CaseFaults::kHarmless);
      ASSERT_EQ(result.failure, "") << Name(chooser) << ", seed " << seed;
      ASSERT_EQ(result.num_errors, 0) << Name(chooser) << ", seed " << seed;
    }
  }
}

TEST(Chaos, ARoundOfMutationsIsSixteenRuns) {
  absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create("pipeline2");
  ASSERT_TRUE(player.ok()) << player.status();
  EXPECT_EQ((*player)->Play(1, CaseChooser::kMutate, CaseFaults::kNone).num_runs, 16);
  EXPECT_GT((*player)->coverage().count(), 0u);
}

TEST(Chaos, SmallPlansAreCleanInEveryInterleavingThereIs) {
  for (const char* name : {"accumulate", "diamond", "repeat", "packed"}) {
    absl::StatusOr<std::unique_ptr<World>> world =
        World::Create(*FindPlan(name), transport::SimNetwork::Mapping::kCopied);
    ASSERT_TRUE(world.ok()) << world.status();
    World::Run run;
    run.steps_per_call = (*world)->plan().steps;
    const ExhaustiveResult result = PlayAll(**world, run, 200'000);
    EXPECT_EQ(result.failure, "") << name;
    EXPECT_EQ(result.end, ExhaustiveResult::End::kComplete)
        << name << ", " << result.num_runs << " runs";
    EXPECT_GT(result.num_states, 10) << name;
  }
}

TEST(Chaos, ToldEventsAreThoseOfTheRun) {
  absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create("ring");
  ASSERT_TRUE(player.ok()) << player.status();
  std::ostringstream told;
  const CaseResult result = (*player)->Explain(3, CaseChooser::kUniform, CaseFaults::kNone, told);
  EXPECT_EQ(result.history_hash,
            (*player)->Play(3, CaseChooser::kUniform, CaseFaults::kNone).history_hash);
  EXPECT_NE(told.str().find("rank 0 'mix' starts act 0"), std::string::npos) << told.str();
  EXPECT_NE(told.str().find("token of edge 10 arrives, rank 0 to 1"), std::string::npos)
      << told.str();
}

}  // namespace
}  // namespace weir::chaos
