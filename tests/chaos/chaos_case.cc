#include "tests/chaos/chaos_case.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/random.h"
#include "runtime/base/status.h"

namespace weir::chaos {
namespace {

constexpr const char* kNames[] = {"uniform", "starve", "pct2", "pct3", "mutate", "all"};

// The runs of a round of `mutate`.
constexpr int kFreshRuns = 4;
constexpr int kMutatedRuns = 12;
constexpr int kMutationsMax = 4;

actors::SimEngineOptions::Chooser EngineChooser(CaseChooser chooser) {
  switch (chooser) {
    case CaseChooser::kStarve: return actors::SimEngineOptions::Chooser::kStarveOne;
    case CaseChooser::kPct2:
    case CaseChooser::kPct3: return actors::SimEngineOptions::Chooser::kPriorities;
    default: return actors::SimEngineOptions::Chooser::kUniform;
  }
}

}  // namespace

std::optional<CaseChooser> ChooserNamed(const std::string& name) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<CaseChooser>(i);
  }
  return std::nullopt;
}

const char* Name(CaseChooser chooser) { return kNames[static_cast<size_t>(chooser)]; }

absl::StatusOr<std::unique_ptr<CasePlayer>> CasePlayer::Create(const std::string& name) {
  const StandardPlan* plan = FindPlan(name);
  if (plan == nullptr) return absl::NotFoundError(absl::StrCat("there is no plan '", name, "'"));
  std::unique_ptr<CasePlayer> player(new CasePlayer(name));
  for (size_t i = 0; i < player->worlds_.size(); ++i) {
    // A single rank sends no messages, so the mapping of messages makes no difference.
    if (i > 0 && plan->ranks.size() == 1) break;
    WEIR_ASSIGN_OR_RETURN(player->worlds_[i],
                          World::Create(*plan, static_cast<transport::SimNetwork::Mapping>(i)));
  }
  return player;
}

CasePlayer::Draft CasePlayer::DraftOf(uint64_t seed, CaseChooser chooser, CaseFaults faults) {
  uint64_t num_draws = 0;
  const auto draw = [&](uint64_t bound) {
    return MixKey(MixKey(seed, 0xCA5E), num_draws++) % bound;
  };
  Draft draft;
  const uint64_t mapping = draw(worlds_.size());
  draft.world = worlds_[1] == nullptr ? worlds_[0].get() : worlds_[mapping].get();
  actors::SimEngineOptions& engine = draft.run.engine;
  engine.seed = seed;
  engine.chooser = EngineChooser(chooser);
  engine.depth = chooser == CaseChooser::kPct2 ? 2 : 3;
  engine.check = actors::SimEngineOptions::Check::kEveryStep;
  engine.pieces = draw(2) == 0 ? actors::SimEngineOptions::Pieces::kWhole
                               : actors::SimEngineOptions::Pieces::kDrawn;
  draft.run.steps_per_call = 1 + static_cast<int64_t>(draw(2));
  actors::SimFaultLevel level = static_cast<actors::SimFaultLevel>(draw(3));
  if (faults != CaseFaults::kBySeed) level = static_cast<actors::SimFaultLevel>(faults);
  draft.run.faults = actors::DrawFaults(MixKey(seed, 0xFA17), level, draft.world->shape());
  return draft;
}

RunResult CasePlayer::PlayOne(const Draft& draft, CaseResult* sum) {
  RunResult result;
  if (tell_ == nullptr) {
    result = draft.world->Play(draft.run);
  } else {
    std::ostringstream told;
    result = draft.world->Explain(draft.run, told);
    static_cast<std::ostringstream*>(tell_)->str(told.str());
  }
  ++sum->num_runs;
  sum->num_events += result.num_events;
  sum->num_errors += result.ended_with_error;
  sum->history_hash = MixKey(sum->history_hash, result.history_hash);
  sum->failure = result.failure;
  return result;
}

// Each round starts from nothing, so that it can be repeated alone.
void CasePlayer::PlayRound(Draft draft, uint64_t seed, CaseResult* sum) {
  actors::SimCoverage met;
  std::vector<std::vector<uint32_t>> rare;  // decisions of the runs that met something new
  uint64_t num_draws = 0;
  const auto draw = [&](uint64_t bound) {
    return MixKey(MixKey(seed, 0x0DD), num_draws++) % bound;
  };
  draft.run.engine.coverage = &met;
  std::vector<uint32_t> script;
  for (int i = 0; i < kFreshRuns + kMutatedRuns; ++i) {
    draft.run.engine.seed = MixKey(seed, static_cast<uint64_t>(i));
    if (i >= kFreshRuns && !rare.empty()) {
      // Decisions that were found later are rarer.
      const size_t from_end = std::min<size_t>(draw(rare.size()), draw(rare.size()));
      script = rare[rare.size() - 1 - from_end];
      for (uint64_t k = draw(kMutationsMax) + 1; k > 0 && !script.empty(); --k) {
        script[draw(script.size())] = static_cast<uint32_t>(draw(64));
      }
      if (draw(2) == 0) script.resize(draw(script.size() + 1));
      draft.run.engine.chooser = actors::SimEngineOptions::Chooser::kScript;
      draft.run.engine.script = script;
    }
    const size_t before = met.count();
    PlayOne(draft, sum);
    if (!sum->failure.empty()) break;
    if (met.count() > before) rare.push_back(draft.world->engine().decisions());
  }
  coverage_ |= met;
}

CaseResult CasePlayer::Play(uint64_t seed, CaseChooser chooser, CaseFaults faults) {
  if (chooser == CaseChooser::kAll) {
    // A round is as long as many runs, so only few seeds are rounds.
    const uint64_t which = MixKey(seed, 0xA11) % 64;
    chooser = which == 0 ? CaseChooser::kMutate : static_cast<CaseChooser>(which % 4);
  }
  CaseResult result;
  Draft draft = DraftOf(seed, chooser, faults);
  if (chooser == CaseChooser::kMutate) {
    PlayRound(std::move(draft), seed, &result);
  } else {
    draft.run.engine.coverage = nullptr;
    PlayOne(draft, &result);
  }
  return result;
}

CaseResult CasePlayer::Explain(uint64_t seed, CaseChooser chooser, CaseFaults faults,
                               std::ostream& out) {
  std::ostringstream last;
  tell_ = &last;
  CaseResult result = Play(seed, chooser, faults);
  tell_ = nullptr;
  out << last.str();
  return result;
}

}  // namespace weir::chaos
