#include "tests/chaos/exhaustive.h"

#include <vector>

#include "absl/container/flat_hash_set.h"

namespace weir::chaos {

ExhaustiveResult PlayAll(World& world, const World::Run& run, int64_t runs_max) {
  ExhaustiveResult result;
  absl::flat_hash_set<uint64_t> states;
  std::vector<uint32_t> script;  // the decisions that the next run begins with
  World::Run each = run;
  each.engine.chooser = actors::SimEngineOptions::Chooser::kFirst;
  each.engine.states_seen = &states;
  for (;;) {
    each.engine.script = script;
    const RunResult played = world.Play(each);
    ++result.num_runs;
    result.failure = played.failure;
    if (!result.failure.empty()) break;
    // Finds the last decision that could have been different.
    const std::vector<uint32_t>& bounds = world.engine().bounds();
    script = world.engine().decisions();
    while (!script.empty() && script.back() + 1 == bounds[script.size() - 1]) script.pop_back();
    if (script.empty()) break;
    ++script.back();
    if (result.num_runs == runs_max) {
      result.end = ExhaustiveResult::End::kOutOfRuns;
      break;
    }
  }
  result.num_states = static_cast<int64_t>(states.size());
  return result;
}

}  // namespace weir::chaos
