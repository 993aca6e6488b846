// Shows the gain from register counts: the memory and the period of each choice that a job has, and
// of points between the least memory that runs and the least memory with which the busiest device
// never waits. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "compiler/ir/logical_plan.h"

namespace weir::compiler {

struct RhythmPoint {
  std::string name;          // "SOLVED"; empty on the curve
  std::string refused;       // why this choice cannot run; the other fields are unset then
  int64_t device_bytes = 0;  // registers of the fullest device
  int64_t all_bytes = 0;     // of one device of each stage
  int64_t micro_batch_ns = 0;
  int64_t step_ns = 0;
};

// Compares ONE, TWO, TWICE_STAGES, SCHEDULE and SOLVED, and, if the job overrides all counts, the
// job as it is.
absl::StatusOr<std::vector<RhythmPoint>> CompareRegisterChoices(const LogicalPlan& plan,
                                                                const CostModel& costs);

// Returns at most `points_max` points, from the least memory to the shortest period.
absl::StatusOr<std::vector<RhythmPoint>> RegisterCurve(const LogicalPlan& plan,
                                                       const CostModel& costs, int points_max);

// Returns the choices and the curve as a table with bars of throughput.
std::string CurveText(const std::vector<RhythmPoint>& choices,
                      const std::vector<RhythmPoint>& curve);

// Returns the section of `weir plan` about time: the period and its bound, the actors that set the
// bound, and the registers with more than one slot.
absl::StatusOr<std::string> ExplainRhythm(const LogicalPlan& plan, const CostModel& costs);

}  // namespace weir::compiler
