// Plays simulated recoveries. A failure names its seed and tells its story.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/chaos/recovery_job.h"

namespace weir::chaos {
namespace {

constexpr uint64_t kSeeds = 8000;

std::string StoryOf(uint64_t seed) {
  return absl::StrCat("replay: bazel run //tests/chaos:recovery -- --seeds=", seed, " --explain\n",
                      absl::StrJoin(PlayRecovery({seed, true}).story, "\n"));
}

TEST(RecoveryTest, JobsSurviveFaultsAtEveryPoint) {
  RecoveryOutcome all;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RecoveryOutcome outcome = PlayRecovery({seed});
    ASSERT_EQ(outcome.violation, "") << "seed " << seed << "\n" << StoryOf(seed);
    all.faults += outcome.faults;
    all.epochs += outcome.epochs;
    all.restarts += outcome.restarts;
    all.resumes += outcome.resumes;
    all.commits += outcome.commits;
    all.loads += outcome.loads;
    all.moved_bytes += outcome.moved_bytes;
    all.fenced += outcome.fenced;
    all.buddy_copies += outcome.buddy_copies;
    all.buddy_bytes += outcome.buddy_bytes;
    all.hosts_lost += outcome.hosts_lost;
    all.moved_workers += outcome.moved_workers;
    all.mesh_changes += outcome.mesh_changes;
    all.growths += outcome.growths;
  }
  // Each way of recovery is taken often.
  EXPECT_GT(all.faults, static_cast<int64_t>(kSeeds / 2));
  EXPECT_GT(all.epochs, static_cast<int64_t>(kSeeds / 10));
  EXPECT_GT(all.restarts, static_cast<int64_t>(kSeeds / 20));
  EXPECT_GT(all.resumes, static_cast<int64_t>(kSeeds / 20));
  EXPECT_GT(all.commits, static_cast<int64_t>(kSeeds));
  EXPECT_GT(all.loads, static_cast<int64_t>(kSeeds / 20));
  EXPECT_GT(all.moved_bytes, static_cast<int64_t>(kSeeds));
  EXPECT_GT(all.fenced, static_cast<int64_t>(kSeeds / 20));
  EXPECT_GT(all.buddy_copies, static_cast<int64_t>(kSeeds / 8));
  EXPECT_GT(all.buddy_bytes, static_cast<int64_t>(kSeeds / 4));
  EXPECT_GT(all.hosts_lost, static_cast<int64_t>(kSeeds / 20));
  EXPECT_GT(all.moved_workers, static_cast<int64_t>(kSeeds / 100));
  EXPECT_GT(all.mesh_changes, static_cast<int64_t>(kSeeds / 40));
  EXPECT_GT(all.growths, static_cast<int64_t>(kSeeds / 100));
}

TEST(RecoveryTest, TheSameSeedGivesTheSameStory) {
  for (uint64_t seed = 1; seed <= 50; ++seed)
    EXPECT_EQ(PlayRecovery({seed, true}).story, PlayRecovery({seed, true}).story);
}

}  // namespace
}  // namespace weir::chaos
