// Runs a modest number of the trials that random_jobs runs in thousands.
//   WEIR_FUZZ_SEED=N   the first seed
#include <cstdlib>

#include "gtest/gtest.h"
#include "tests/fuzz/compile_check.h"
#include "tests/fuzz/job_generator.h"
#include "tests/fuzz/layout_trial.h"
#include "tests/fuzz/names_trial.h"
#include "tests/fuzz/trial_series.h"

namespace weir::fuzz {
namespace {

SeriesOptions Of(int64_t count) {
  SeriesOptions options;
  options.count = count;
  if (const char* text = std::getenv("WEIR_FUZZ_SEED"))
    options.first_seed = std::strtoull(text, nullptr, 10);
  return options;
}

void ExpectNoFailure(const SeriesResult& result) {
  for (const SeriesResult::Failure& failure : result.failures) {
    ADD_FAILURE() << "seed " << failure.seed << ": " << failure.what
                  << "\n`random_jobs generated --print " << failure.seed << "` prints the job";
  }
}

TEST(RandomJobsTest, AGeneratedJobCompilesForAllItsRanksOrIsRefusedWithACode) {
  const SeriesResult result =
      RunSeries([](uint64_t seed) { return CheckCompile(GenerateJob(seed)); }, Of(400));
  ExpectNoFailure(result);
  // Both outcomes must happen, or the jobs are too tame or too wild to test anything.
  EXPECT_GT(result.sound, 150) << ToText(result);
  EXPECT_FALSE(result.refused.empty()) << ToText(result);
}

TEST(RandomJobsTest, AGeneratedJobLearnsTheSameOnItsMeshAsOnOneDevice) {
  SeriesOptions options = Of(40);
  options.seconds_max = 120;  // two sessions
  const SeriesResult result =
      RunSeries([](uint64_t seed) { return TrainOnMeshAndAlone(GenerateJob(seed)); }, options);
  ExpectNoFailure(result);
  EXPECT_GT(result.sound, 10) << ToText(result);
}

TEST(RandomJobsTest, DimensionsOfAGeneratedJobThatLoseTheirNamesAreFound) {
  const SeriesResult result =
      RunSeries([](uint64_t seed) { return FindNamesAgain(GenerateJob(seed)); }, Of(1000));
  ExpectNoFailure(result);
  EXPECT_GT(result.sound, 500) << ToText(result);
}

TEST(TrialSeriesTest, ACrashAndAHangCostOneTrialEachAndAreNamed) {
  SeriesOptions options;
  options.count = 6;
  options.seconds_max = 0.2;
  const SeriesResult result = RunSeries(
      [](uint64_t seed) -> absl::StatusOr<std::string> {
        if (seed == 2) std::abort();
        for (volatile bool forever = seed == 4; forever;) {
        }
        if (seed == 5) return absl::InternalError("wrong");
        return seed == 6 ? "W0001" : "";
      },
      options);
  ASSERT_EQ(result.failures.size(), 3u);
  EXPECT_EQ(result.failures[0].seed, 2u);
  EXPECT_EQ(result.failures[0].what, "signal 6");
  EXPECT_EQ(result.failures[1].seed, 4u);
  EXPECT_EQ(result.failures[1].what, "more than 0.2 s");
  EXPECT_EQ(result.failures[2].what, "INTERNAL: wrong");
  EXPECT_EQ(result.sound, 2);
  EXPECT_EQ(result.refused.at("W0001"), 1);
}

}  // namespace
}  // namespace weir::fuzz
