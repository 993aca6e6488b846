// Makes a few seeded changes to each of many sound jobs. Each result is compiled, or refused with a
// code.
//   WEIR_FUZZ_SEED=N      the first seed
//   WEIR_FUZZ_KEEP=PATH   where to keep the last job, for after a crash
#include <cstdlib>
#include <fstream>

#include "gtest/gtest.h"
#include "tests/fuzz/compile_check.h"
#include "tests/fuzz/job_mutator.h"
#include "tests/fuzz/sound_jobs.h"
#include "tools/job/job_text.h"

namespace weir::fuzz {
namespace {

constexpr int kMutationsPerJob = 150;

TEST(JobMutationTest, AChangedJobCompilesOrIsRefusedWithACode) {
  uint64_t seed = 1;
  if (const char* text = std::getenv("WEIR_FUZZ_SEED")) seed = std::strtoull(text, nullptr, 10);
  int sound = 0, refused = 0;
  const std::vector<proto::Job> jobs = SoundJobs();
  ASSERT_FALSE(jobs.empty());
  for (int i = 0; i < kMutationsPerJob; ++i, ++seed) {
    for (const proto::Job& job : jobs) {
      proto::Job changed = job;
      MutateJob(seed, &changed);
      if (const char* path = std::getenv("WEIR_FUZZ_KEEP"))
        std::ofstream(path) << job::JobText(changed, "");
      if (RepeatsVeryOften(changed)) continue;
      const absl::StatusOr<std::string> code = CheckCompile(changed, {.ranks_lowered_max = 8});
      ASSERT_TRUE(code.ok()) << "WEIR_FUZZ_SEED=" << seed << ": " << code.status() << "\n"
                             << job::JobText(changed, "");
      ++(code->empty() ? sound : refused);
    }
  }
  // Both outcomes must happen, or the changes are too tame or too wild to test anything.
  EXPECT_GT(sound, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace weir::fuzz
