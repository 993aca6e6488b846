// A case is one seed of one chooser on one plan. A run takes everything else from these three, so
// plan, chooser and seed are enough to repeat it.
//
//   uniform, starve, pct2, pct3   one run
//   mutate                        a round of runs: some uniform runs, then mutations of the
//   decisions
//                                 of the runs that met something new
//   all                           any of these, by the seed
//
// The seed also decides how a message's bytes move, whether messages come in pieces, how many steps
// run at once and which faults happen.
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/chaos/world.h"

namespace weir::chaos {

enum class CaseChooser : uint8_t { kUniform, kStarve, kPct2, kPct3, kMutate, kAll };
// Returns null if there is no such chooser.
std::optional<CaseChooser> ChooserNamed(const std::string& name);
const char* Name(CaseChooser chooser);

enum class CaseFaults : uint8_t { kNone, kHarmless, kAny, kBySeed };

struct CaseResult {
  std::string failure;        // of the first failed run; empty if no run failed
  uint64_t history_hash = 0;  // of all runs of the case
  int64_t num_runs = 0;
  int64_t num_events = 0;
  int64_t num_errors = 0;  // runs that ended with an error, as expected
};

// A plan with its worlds, and the record of what its runs have met.
class CasePlayer {
 public:
  // kNotFound: there is no such plan.
  static absl::StatusOr<std::unique_ptr<CasePlayer>> Create(const std::string& plan);

  CaseResult Play(uint64_t seed, CaseChooser chooser, CaseFaults faults);
  // Prints the events of the run that fails, or of the last run.
  CaseResult Explain(uint64_t seed, CaseChooser chooser, CaseFaults faults, std::ostream& out);

  const actors::SimCoverage& coverage() const { return coverage_; }
  const std::string& plan() const { return plan_; }

 private:
  struct Draft {
    World* world = nullptr;
    World::Run run;
  };
  explicit CasePlayer(std::string plan) : plan_(std::move(plan)) {}
  Draft DraftOf(uint64_t seed, CaseChooser chooser, CaseFaults faults);
  RunResult PlayOne(const Draft& draft, CaseResult* sum);
  void PlayRound(Draft draft, uint64_t seed, CaseResult* sum);

  const std::string plan_;
  std::array<std::unique_ptr<World>, 3> worlds_;  // by SimNetwork::Mapping
  actors::SimCoverage coverage_;
  std::ostream* tell_ = nullptr;
};

}  // namespace weir::chaos
