// The command that lives many lives of checkpoints on a disk that crashes, or one of them again.
#include <chrono>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tests/disk/checkpoint_life.h"
#include "tests/disk/seed_range.h"

ABSL_FLAG(std::string, seeds, "1..20000", "a seed, or first..last");
ABSL_FLAG(double, minutes, 0, "goes on beyond the last seed until so many minutes have passed");
ABSL_FLAG(std::string, planted, "",
          "plants a fault, which a life must notice; `all`: each in turn; `list` prints the names");

namespace weir::disk {
namespace {

constexpr int kFailuresShownMax = 5;

// Returns 0 if all holds in every life.
int LiveAll(const SeedRange& seeds) {
  const auto begun = std::chrono::steady_clock::now();
  const auto minutes = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() / 60;
  };
  LifeOutcome all;
  int failures = 0;
  uint64_t seed = seeds.first;
  for (; seed <= seeds.last || minutes() < absl::GetFlag(FLAGS_minutes); ++seed) {
    for (const bool exchanges_names : {true, false}) {
      const LifeOutcome outcome = LiveAtRandom({seed, exchanges_names});
      all.saves += outcome.saves;
      all.crashes += outcome.crashes;
      all.errors += outcome.errors;
      if (outcome.problem.empty()) continue;
      std::cout << "seed " << seed << (exchanges_names ? "" : ", without exchange of names") << ": "
                << outcome.problem << "\n  bazel run //tests/disk:crash -- --seeds=" << seed
                << "\n";
      if (++failures == kFailuresShownMax) return 1;
    }
  }
  std::cout << seed - seeds.first << " seeds: " << all.saves << " saves, " << all.crashes
            << " crashes, " << all.errors << " saves that the disk refused; "
            << (failures == 0 ? "all holds" : "see above") << "\n";
  return failures == 0 ? 0 : 1;
}

// Returns 0 if a life notices the fault.
int LivePlanted(Planted planted, const SeedRange& seeds) {
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const LifeOutcome outcome = LiveAtRandom({seed, true, planted});
    if (outcome.problem.empty()) continue;
    std::cout << Name(planted) << ": noticed with seed " << seed << ": " << outcome.problem << "\n";
    return 0;
  }
  std::cout << Name(planted) << ": NOT NOTICED\n";
  return 1;
}

int Run() {
  const std::optional<SeedRange> seeds = ReadSeedRange(absl::GetFlag(FLAGS_seeds));
  if (!seeds.has_value()) {
    std::cerr << "crash: --seeds=" << absl::GetFlag(FLAGS_seeds)
              << "; expected a seed, or first..last\n";
    return 2;
  }
  const std::string planted = absl::GetFlag(FLAGS_planted);
  if (planted.empty()) return LiveAll(*seeds);
  int result = 0, count = 0;
  for (int i = 1; i < kNumPlanted; ++i) {
    const auto fault = static_cast<Planted>(i);
    if (planted == "list") std::cout << Name(fault) << "\n";
    if (planted != "all" && planted != Name(fault)) continue;
    ++count;
    if (LivePlanted(fault, *seeds) != 0) result = 1;
  }
  if (planted == "list" || count > 0) return result;
  std::cerr << "crash: --planted=" << planted << "; expected `all` or one of --planted=list\n";
  return 2;
}

}  // namespace
}  // namespace weir::disk

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "Lives the lives of checkpoints on a disk that loses power, is killed, and refuses "
      "(docs/how_to/crash_under_seeds.md).");
  absl::ParseCommandLine(argc, argv);
  return weir::disk::Run();
}
