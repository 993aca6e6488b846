// Solves the rhythm of a job: its stations as a timed graph, slots and start times from
// compiler/rates. Thread rule: pure functions.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"
#include "compiler/rates/solve_registers.h"
#include "compiler/rhythm/job_rhythm.h"
#include "compiler/rhythm/station_graph.h"

namespace weir::compiler {

struct RhythmOptions {
  // Ranks of each stage whose sizes are looked at: the first, the last, and those between from the
  // front. The sizes of uneven shards are mostly told by the first and the last. Where a stage has
  // more ranks than kRanksMany, only the first: each has transfers with many others, and lowering
  // one takes as long as a rank's whole compilation may.
  int64_t ranks_of_stage_max = 2;
  static constexpr int64_t kRanksMany = 256;
};

// The graph of a job's stations, with slots as the job's choice gives them. Precondition:
// plan.stages. Errors: what a rank's plan is rejected for.
absl::StatusOr<StationGraph> BuildStationGraph(const LogicalPlan& plan, const CostModel& costs,
                                               const RhythmOptions& options = {});

// What all registers of a device take, by device of the graph. A message lies where it is read.
std::map<int, int64_t> RegisterBytes(const TimedGraph& graph, const std::vector<int64_t>& slots);

// kInvalidArgument: a deadlock (W0494), or no slots fit under runtime.register_bytes_max (W0495).
absl::StatusOr<RegisterSolution> SolveStations(const LogicalPlan& plan, const StationGraph& graph);

absl::StatusOr<JobRhythm> SolveRhythm(const LogicalPlan& plan, const CostModel& costs,
                                      const RhythmOptions& options = {});

}  // namespace weir::compiler
