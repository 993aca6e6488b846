// Compiles many random jobs in every mode and lowers each for all its ranks, or sees the job
// refused with a code, in bounded time.
//   random_jobs generated|mutated|trained|named [--first SEED] [--count N] [--seconds S] [--print
//   SEED] generated  jobs of job_generator.h on random meshes mutated    the jobs of the golden
//   files with a few changes each (job_mutator.h); run from the
//              root of the tree
//   trained    generated jobs, trained for two steps on their mesh and on one device
//   named      generated jobs whose dimensions lose their names, which are found again
// Exit code 1: a job crashed, was refused without a code, took too long, or showed a fault of Weir.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/fuzz/compile_check.h"
#include "tests/fuzz/job_generator.h"
#include "tests/fuzz/job_mutator.h"
#include "tests/fuzz/layout_trial.h"
#include "tests/fuzz/names_trial.h"
#include "tests/fuzz/sound_jobs.h"
#include "tests/fuzz/trial_series.h"
#include "tools/job/job_text.h"

namespace weir::fuzz {
namespace {

constexpr int64_t kSayEvery = 1000;
constexpr char kUsage[] =
    "usage: random_jobs generated|mutated|trained|named [--first SEED] [--count N] [--seconds S] "
    "[--print SEED]\n";

proto::Job Mutated(const std::vector<proto::Job>& jobs, uint64_t seed) {
  proto::Job job = jobs[seed % jobs.size()];
  MutateJob(seed, &job);
  return job;
}

int Main(const std::vector<std::string>& arguments) {
  const std::string kind = arguments.empty() ? "" : arguments[0];
  if (kind != "generated" && kind != "mutated" && kind != "trained" && kind != "named") {
    std::fputs(kUsage, stderr);
    return 2;
  }
  SeriesOptions options;
  options.say_every = kSayEvery;
  uint64_t print = 0;
  for (size_t i = 1; i < arguments.size(); i += 2) {
    const std::string value = i + 1 < arguments.size() ? arguments[i + 1] : "";
    const bool good =
        (arguments[i] == "--first" && absl::SimpleAtoi(value, &options.first_seed)) ||
        (arguments[i] == "--count" && absl::SimpleAtoi(value, &options.count)) ||
        (arguments[i] == "--seconds" && absl::SimpleAtod(value, &options.seconds_max)) ||
        (arguments[i] == "--print" && absl::SimpleAtoi(value, &print));
    if (good) continue;
    std::fputs(kUsage, stderr);
    return 2;
  }
  const std::vector<proto::Job> sound = kind == "mutated" ? SoundJobs() : std::vector<proto::Job>();
  if (kind == "mutated" && sound.empty()) {
    std::fputs(
        "random_jobs: expected the root of the tree as the current folder; found no tests/golden "
        "here. Try: cd to it.\n",
        stderr);
    return 2;
  }
  const auto job_of = [&](uint64_t seed) {
    return kind == "mutated" ? Mutated(sound, seed) : GenerateJob(seed);
  };
  if (print > 0) {
    std::fputs(job::JobText(job_of(print), "").c_str(), stdout);
    return 0;
  }
  const Trial trial = [&](uint64_t seed) {
    if (kind == "trained") return TrainOnMeshAndAlone(job_of(seed));
    return kind == "named" ? FindNamesAgain(job_of(seed)) : CheckCompile(job_of(seed));
  };
  const SeriesResult result = RunSeries(trial, options);
  std::printf("%s\n", ToText(result).c_str());
  return result.failures.empty() ? 0 : 1;
}

}  // namespace
}  // namespace weir::fuzz

int main(int argc, char** argv) {
  return weir::fuzz::Main(std::vector<std::string>(argv + 1, argv + argc));
}
