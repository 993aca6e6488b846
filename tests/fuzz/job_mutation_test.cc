// Sound jobs with a few seeded changes each: compiled, or refused with a code.
//   WEIR_FUZZ_SEED=N   the first seed     WEIR_FUZZ_KEEP=PATH   where to keep the last job, for after a crash
#include <cstdlib>
#include <fstream>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "tests/fuzz/compile_check.h"
#include "tests/fuzz/job_mutator.h"
#include "tests/golden/golden_file.h"
#include "tools/job_file.h"
#include "tools/job_text.h"

namespace weir {
namespace {

constexpr int kMutationsPerJob = 150;
const char* const kFolders[] = {"tests/golden/plans/", "tests/golden/passes/build_program/", "tests/golden/passes/propagate_layouts/"};

std::vector<Job> SoundJobs() {
  std::vector<Job> jobs;
  for (const char* folder : kFolders) {
    for (const std::string& name : NamesIn(folder, ".textproto")) {
      if (name.find(".rank") != std::string::npos) continue;
      absl::StatusOr<Job> job = ParseJob(ReadGoldenInput(folder + name + ".textproto"), name);
      EXPECT_TRUE(job.ok()) << job.status();
      if (job.ok()) jobs.push_back(*std::move(job));
    }
  }
  return jobs;
}

TEST(JobMutationTest, AChangedJobCompilesOrIsRefusedWithACode) {
  uint64_t seed = 1;
  if (const char* text = std::getenv("WEIR_FUZZ_SEED")) seed = std::strtoull(text, nullptr, 10);
  int sound = 0, refused = 0;
  const std::vector<Job> jobs = SoundJobs();
  for (int i = 0; i < kMutationsPerJob; ++i, ++seed) {
    for (const Job& job : jobs) {
      Job changed = job;
      MutateJob(seed, &changed);
      if (const char* path = std::getenv("WEIR_FUZZ_KEEP")) std::ofstream(path) << JobText(changed, "");
      absl::Status status = CheckCompile(changed);
      ASSERT_TRUE(status.ok()) << "WEIR_FUZZ_SEED=" << seed << ": " << status << "\n" << JobText(changed, "");
      ++(CompileJob(changed, {}).ok() ? sound : refused);
    }
  }
  // Both must happen, or the changes are too tame or too wild to test anything.
  EXPECT_GT(sound, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace weir
