// The command that plays cases: many seeds, one seed again, or all interleavings of small plans.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/chaos/chaos_case.h"
#include "tests/chaos/exhaustive.h"
#include "tests/disk/seed_range.h"

ABSL_FLAG(std::string, plans, "standard",
          "names of plans, separated by commas; `standard` is all of --list");
ABSL_FLAG(std::string, seeds, "1..1000", "a seed, or first..last; `random` begins anywhere");
ABSL_FLAG(std::string, chooser, "all",
          "uniform, starve, pct2, pct3, mutate, all, or exhaustive (for small plans)");
ABSL_FLAG(std::string, faults, "seed", "none, harmless, any, or seed: each of these, by the seed");
ABSL_FLAG(double, minutes, 0, "goes on beyond the last seed until so many minutes have passed");
ABSL_FLAG(int64_t, runs, 0, "goes on beyond the last seed until so many runs have been made");
ABSL_FLAG(int64_t, runs_max, 2'000'000, "of an exhaustive search, per plan");
ABSL_FLAG(bool, explain, false, "tells each event");
ABSL_FLAG(bool, list, false, "prints the names of the plans and ends");

namespace weir::chaos {
namespace {

constexpr int kFailuresShownMax = 5;

struct Options {
  std::vector<std::string> plans;
  uint64_t first = 1, last = 1;
  CaseChooser chooser = CaseChooser::kAll;
  CaseFaults faults = CaseFaults::kBySeed;
};

int Reject(const std::string& what, const std::string& expected) {
  std::cerr << "chaos: " << what << "; expected " << expected << ". Try --help=chaos.\n";
  return 2;
}

bool ReadSeeds(const std::string& text, Options* options) {
  if (text == "random") {
    std::random_device entropy;
    options->first = options->last = (uint64_t{entropy()} << 16) + 1;
    return true;
  }
  const std::optional<disk::SeedRange> seeds = disk::ReadSeedRange(text);
  if (!seeds.has_value()) return false;
  options->first = seeds->first;
  options->last = seeds->last;
  return true;
}

std::optional<CaseFaults> FaultsNamed(const std::string& name) {
  if (name == "none") return CaseFaults::kNone;
  if (name == "harmless") return CaseFaults::kHarmless;
  if (name == "any") return CaseFaults::kAny;
  if (name == "seed") return CaseFaults::kBySeed;
  return std::nullopt;
}

std::string AllNames() {
  std::vector<std::string> names;
  for (const StandardPlan& plan : StandardPlans()) names.push_back(plan.name);
  return absl::StrCat(absl::StrJoin(names, ", "), ", grid32x16");
}

double Minutes(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count() / 60;
}

void PrintRow(const std::string& plan, const CaseResult& sum, double minutes) {
  std::printf(
      "%-16s %11lld %9.0f %11lld %13.0f\n", plan.c_str(), static_cast<long long>(sum.num_runs),
      sum.num_runs == 0 ? 0
                        : static_cast<double>(sum.num_events) / static_cast<double>(sum.num_runs),
      static_cast<long long>(sum.num_errors),
      minutes <= 0 ? 0 : static_cast<double>(sum.num_runs) / minutes);
}

// Plays seeds in blocks, so that all plans get their share of the time.
int PlaySeeds(const Options& options) {
  struct Part {
    std::unique_ptr<CasePlayer> player;
    CaseResult sum;
    double minutes = 0;
  };
  std::vector<Part> parts;
  for (const std::string& name : options.plans) {
    absl::StatusOr<std::unique_ptr<CasePlayer>> player = CasePlayer::Create(name);
    if (!player.ok()) return Reject(std::string(player.status().message()), AllNames());
    parts.push_back({*std::move(player)});
  }
  const auto begin = std::chrono::steady_clock::now();
  const bool explain = absl::GetFlag(FLAGS_explain);
  constexpr uint64_t kBlock = 256;
  int64_t num_runs = 0;
  int num_failures = 0;
  uint64_t block = options.first;
  for (;; block += kBlock) {
    const bool more =
        Minutes(begin) < absl::GetFlag(FLAGS_minutes) || num_runs < absl::GetFlag(FLAGS_runs);
    const uint64_t end = more ? block + kBlock : std::min(block + kBlock, options.last + 1);
    if (block >= end || num_failures >= kFailuresShownMax) break;
    for (Part& part : parts) {
      const auto part_begin = std::chrono::steady_clock::now();
      for (uint64_t seed = block; seed < end && num_failures < kFailuresShownMax; ++seed) {
        const CaseResult result =
            explain ? part.player->Explain(seed, options.chooser, options.faults, std::cout)
                    : part.player->Play(seed, options.chooser, options.faults);
        part.sum.num_runs += result.num_runs;
        part.sum.num_events += result.num_events;
        part.sum.num_errors += result.num_errors;
        num_runs += result.num_runs;
        if (explain) std::cout << "history " << result.history_hash << "\n";
        if (result.failure.empty()) continue;
        ++num_failures;
        std::cout << "FAILED plan " << part.player->plan() << ", seed " << seed << ": "
                  << result.failure << "\n  replay: "
                  << "bazel run //tests/chaos -- --plans=" << part.player->plan()
                  << " --seeds=" << seed << " --chooser=" << Name(options.chooser)
                  << " --faults=" << absl::GetFlag(FLAGS_faults) << " --explain\n";
      }
      part.minutes += Minutes(part_begin);
    }
  }
  std::printf("%-16s %11s %9s %11s %13s\n", "plan", "runs", "events", "error ends", "runs/minute");
  for (const Part& part : parts) PrintRow(part.player->plan(), part.sum, part.minutes);
  std::printf("seeds %llu to %llu, %lld runs in %.1f minutes: %s\n",
              static_cast<unsigned long long>(options.first),
              static_cast<unsigned long long>(std::max(block, options.last + 1) - 1),
              static_cast<long long>(num_runs), Minutes(begin),
              num_failures == 0 ? "clean" : "FAILED");
  return num_failures == 0 ? 0 : 1;
}

int PlayEverything(const Options& options) {
  std::printf("%-16s %11s %11s\n", "plan", "states", "runs");
  int failed = 0;
  for (const std::string& name : options.plans) {
    const StandardPlan* plan = FindPlan(name);
    if (plan == nullptr) return Reject(absl::StrCat("there is no plan '", name, "'"), AllNames());
    absl::StatusOr<std::unique_ptr<World>> world =
        World::Create(*plan, transport::SimNetwork::Mapping::kLate);
    if (!world.ok()) return Reject(std::string(world.status().message()), "a plan that loads");
    World::Run run;
    run.steps_per_call = plan->steps;
    const ExhaustiveResult result = PlayAll(**world, run, absl::GetFlag(FLAGS_runs_max));
    const bool complete = result.end == ExhaustiveResult::End::kComplete;
    std::printf("%-16s %11lld %11lld %s\n", name.c_str(), static_cast<long long>(result.num_states),
                static_cast<long long>(result.num_runs),
                !result.failure.empty() ? result.failure.c_str()
                : complete              ? "all"
                                        : "not all: --runs_max");
    std::fflush(stdout);
    failed |= !result.failure.empty();
  }
  return failed;
}

int Main() {
  if (absl::GetFlag(FLAGS_list)) {
    std::cout << AllNames() << "\n";
    return 0;
  }
  Options options;
  if (absl::GetFlag(FLAGS_plans) == "standard") {
    for (const StandardPlan& plan : StandardPlans()) options.plans.push_back(plan.name);
  } else {
    options.plans = absl::StrSplit(absl::GetFlag(FLAGS_plans), ',');
  }
  if (!ReadSeeds(absl::GetFlag(FLAGS_seeds), &options)) {
    return Reject(absl::StrCat("--seeds=", absl::GetFlag(FLAGS_seeds)),
                  "a number, first..last, or random");
  }
  const std::optional<CaseFaults> faults = FaultsNamed(absl::GetFlag(FLAGS_faults));
  if (!faults)
    return Reject(absl::StrCat("--faults=", absl::GetFlag(FLAGS_faults)),
                  "none, harmless, any or seed");
  options.faults = *faults;
  if (absl::GetFlag(FLAGS_chooser) == "exhaustive") return PlayEverything(options);
  const std::optional<CaseChooser> chooser = ChooserNamed(absl::GetFlag(FLAGS_chooser));
  if (!chooser) {
    return Reject(absl::StrCat("--chooser=", absl::GetFlag(FLAGS_chooser)),
                  "uniform, starve, pct2, pct3, mutate, all or exhaustive");
  }
  options.chooser = *chooser;
  return PlaySeeds(options);
}

}  // namespace
}  // namespace weir::chaos

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "plays the standard plans under seeds, faults included, and checks every event.\n"
      "  chaos --plans=standard --seeds=1..1000 --chooser=all --minutes=20");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  if (rest.size() > 1) return weir::chaos::Reject(rest[1], "options only");
  return weir::chaos::Main();
}
