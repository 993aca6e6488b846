// What register counts buy: the memory and the period of each choice that a job has, and of all
// between the least memory that runs and the least that lets the busiest device never wait. Thread
// rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"

namespace weir::compiler {

struct RhythmPoint {
  std::string name;          // "SOLVED"; empty on the curve
  std::string refused;       // why this choice cannot run; the rest is unset then
  int64_t device_bytes = 0;  // registers of the fullest device
  int64_t all_bytes = 0;     // of one device of each stage
  int64_t micro_batch_ns = 0;
  int64_t step_ns = 0;
};

// ONE, TWO, TWICE_STAGES, SCHEDULE and SOLVED, and, if the job overrides all counts, that as it is.
absl::StatusOr<std::vector<RhythmPoint>> CompareRegisterChoices(const LogicalPlan& plan,
                                                                const CostModel& costs);

// From the least memory to the shortest period, at most `points_max` of them.
absl::StatusOr<std::vector<RhythmPoint>> RegisterCurve(const LogicalPlan& plan,
                                                       const CostModel& costs, int points_max);

// Both as a table with bars of throughput.
std::string CurveText(const std::vector<RhythmPoint>& choices,
                      const std::vector<RhythmPoint>& curve);

// The section of `weir plan` about time: period and bound, who sets it, which registers have more
// than one slot.
absl::StatusOr<std::string> ExplainRhythm(const LogicalPlan& plan, const CostModel& costs);

}  // namespace weir::compiler
