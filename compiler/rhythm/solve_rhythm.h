// Solves the rhythm of a job. The stations of the job become a timed graph, and compiler/rates
// finds slots and start times. Thread rule: pure functions.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "compiler/ir/job_rhythm.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/rates/solve_registers.h"
#include "compiler/rhythm/station_graph.h"

namespace weir::compiler {

struct RhythmOptions {
  // The number of ranks of each stage whose sizes count: the first, the last, and others from the
  // front. The first and the last rank mostly show the sizes of uneven shards. In a stage with more
  // than kRanksMany ranks only the first rank counts: each rank has transfers with many others, and
  // the lowering of one rank takes as long as a rank's whole compilation may.
  int64_t ranks_of_stage_max = 2;
  static constexpr int64_t kRanksMany = 256;
};

// Returns the graph of a job's stations. Slots are those of the job's choice. Precondition:
// plan.stages is filled in. Errors: those for which a rank's plan is rejected.
absl::StatusOr<StationGraph> BuildStationGraph(const LogicalPlan& plan, const CostModel& costs,
                                               const RhythmOptions& options = {});

// Returns the bytes of all registers of a device, by device of the graph. A message lies on the
// device that reads the message.
std::map<int, int64_t> RegisterBytes(const TimedGraph& graph,
                                     const IdVector<RegisterId, int64_t>& slots);

// kInvalidArgument: a deadlock (W0494), or no slots fit under runtime.register_bytes_max (W0495).
absl::StatusOr<RegisterSolution> SolveStations(const LogicalPlan& plan, const StationGraph& graph);

absl::StatusOr<JobRhythm> SolveRhythm(const LogicalPlan& plan, const CostModel& costs,
                                      const RhythmOptions& options = {});

}  // namespace weir::compiler
