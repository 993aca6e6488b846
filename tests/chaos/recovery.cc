// The command that plays simulated recoveries: many seeds, or one again with its story.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "tests/chaos/recovery_job.h"
#include "tests/disk/seed_range.h"

ABSL_FLAG(std::string, seeds, "1..20000", "a seed, or first..last");
ABSL_FLAG(double, minutes, 0, "goes on beyond the last seed until so many minutes have passed");
ABSL_FLAG(bool, explain, false, "tells the story of each seed");

namespace weir::chaos {
namespace {

constexpr int kFailuresShownMax = 3;

void Print(const RecoveryOutcome& outcome) {
  for (const std::string& line : outcome.story) std::cout << line << "\n";
}

struct Sums {
  int64_t events = 0, faults = 0, epochs = 0, restarts = 0, resumes = 0, commits = 0, refusals = 0;
  int64_t moved_bytes = 0, loads = 0, fenced = 0, buddy_copies = 0, buddy_bytes = 0;
  int64_t hosts_lost = 0, moved_workers = 0, mesh_changes = 0, growths = 0;

  void Add(const RecoveryOutcome& outcome) {
    events += outcome.events;
    faults += outcome.faults;
    epochs += outcome.epochs;
    restarts += outcome.restarts;
    resumes += outcome.resumes;
    commits += outcome.commits;
    moved_bytes += outcome.moved_bytes;
    loads += outcome.loads;
    fenced += outcome.fenced;
    buddy_copies += outcome.buddy_copies;
    buddy_bytes += outcome.buddy_bytes;
    hosts_lost += outcome.hosts_lost;
    moved_workers += outcome.moved_workers;
    mesh_changes += outcome.mesh_changes;
    growths += outcome.growths;
    if (!outcome.refusal.empty()) ++refusals;
  }
};

int Run() {
  const std::optional<disk::SeedRange> seeds = disk::ReadSeedRange(absl::GetFlag(FLAGS_seeds));
  if (!seeds.has_value()) {
    std::cerr << "recovery: --seeds=" << absl::GetFlag(FLAGS_seeds)
              << "; expected a seed, or first..last\n";
    return 2;
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto minutes = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count() / 60;
  };
  Sums sums;
  int num_failures = 0;
  uint64_t seed = seeds->first;
  for (; seed <= seeds->last || minutes() < absl::GetFlag(FLAGS_minutes); ++seed) {
    const RecoveryOutcome outcome = PlayRecovery({seed, absl::GetFlag(FLAGS_explain)});
    sums.Add(outcome);
    Print(outcome);
    if (outcome.violation.empty()) continue;
    if (outcome.story.empty()) Print(PlayRecovery({seed, true}));
    std::cout << "FAILED seed " << seed << ": " << outcome.violation
              << "\n  replay: bazel run //tests/chaos:recovery -- --seeds=" << seed
              << " --explain\n";
    if (++num_failures == kFailuresShownMax) break;
  }
  const auto count = [](int64_t n) { return static_cast<long long>(n); };
  std::printf(
      "%lld jobs in %.1f minutes: %lld events, %lld faults, %lld hosts lost (%lld workers start on "
      "another), %lld epochs (%lld kB from memory, %lld kB of it from buddies), %lld smaller "
      "meshes and %lld that grew again, %lld copies at buddies, %lld restarts, %lld resumes by a "
      "person, %lld checkpoints, "
      "%lld loads, %lld messages "
      "refused, %lld jobs ended by the policy: %s\n",
      count(static_cast<int64_t>(seed - seeds->first)), minutes(), count(sums.events),
      count(sums.faults), count(sums.hosts_lost), count(sums.moved_workers), count(sums.epochs),
      count(sums.moved_bytes / 1000), count(sums.buddy_bytes / 1000),
      count(sums.mesh_changes - sums.growths), count(sums.growths), count(sums.buddy_copies),
      count(sums.restarts), count(sums.resumes), count(sums.commits), count(sums.loads),
      count(sums.fenced), count(sums.refusals), num_failures == 0 ? "all holds" : "FAILED");
  return num_failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weir::chaos

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "plays jobs that fail and recover, under seeds (docs/how_to/chaos_under_seeds.md).\n"
      "  recovery --seeds=1..1000000");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) {
    std::cerr << "recovery: '" << rest[1] << "'; expected options only\n";
    return 2;
  }
  return weir::chaos::Run();
}
