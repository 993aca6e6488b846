// A plan as JSON: what `weir plan --json` prints and the page of `weir view` reads. The sentences
// are those of the screen, and the lists are those of the sections (plan_sections.h).
// Thread rule: pure functions, but for the facts about this machine's memory and cores.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "nlohmann/json.hpp"
#include "tools/plan/place_axes.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/predict_step.h"
#include "tools/train/memory_budget.h"

namespace weir::plan {

// The ranks that the JSON lists. The field `ranks_left_out` counts the others.
enum class RanksInJson : uint8_t {
  kAll,       // each is lowered, which takes about a second on large meshes, and megabytes of text
  kLookedAt,  // those in `memory`, which stand for all
};

// Returns the object. The arguments are those of Summarize (plan_summary.h), which has its
// precondition.
absl::StatusOr<nlohmann::ordered_json> PlanJson(const compiler::LogicalPlan& plan,
                                                const sim::JobCosts& costs,
                                                const sim::StepPrediction& prediction,
                                                const train::NeedAndPlans& memory,
                                                const PlacedAxes& placed, RanksInJson ranks);

}  // namespace weir::plan
