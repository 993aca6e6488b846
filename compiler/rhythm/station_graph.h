// A timed graph of a job's stations (see Station) describes one step of the whole job, with an
// update. The size of the graph does not depend on the number of ranks.
//
// The shapes of the stages (lower/stage_shape.h) give the waits, because a shape includes
// everything that any rank does. The waits of a rank are therefore among the waits here: a rank has
// some of the consumers of a register, with the same slots, and the first chunks of a message, if
// it has fewer chunks. Times that hold here hold on every rank, and each rank's own check of its
// plan confirms that. A few lowered ranks give the times and the sizes: a station takes as long as
// the slowest of these ranks, and a register has the bytes of the largest. For the other ranks the
// times and sizes are a guess. A wrong guess costs time and memory, never soundness. Thread rule:
// one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "compiler/ir/job_rhythm.h"
#include "compiler/ir/logical_plan.h"
#include "compiler/ir/rank_graph.h"
#include "compiler/rates/timed_graph.h"
#include "compiler/rhythm/stage_twins.h"

namespace weir::compiler {

// The role of a station's acts in the pipeline.
struct StationPass {
  std::optional<PipelinePass> pass;  // none: the acts compute no part of a pass
  int64_t part = 0;
  Precedence precedence;
};

struct StationGraph {
  TimedGraph timed;  // device = stage
  // Of the actors and registers of `timed`:
  IdVector<ActorId, Station> stations;
  IdVector<ActorId, StationPass> passes;
  IdVector<RegisterId, RegisterFamily> families;
};

// Returns the time of one act of `actor`, on average over the acts of a span.
int64_t ActNs(const RankActor& actor, const CostModel& costs);

class StationGraphBuilder {
 public:
  // Starts from the shapes of all stages.
  StationGraphBuilder(const LogicalPlan& plan, const CostModel& costs);

  // Adds the times of a rank's acts and the sizes of its registers, for the rank in the same
  // position of each of the stage's `twins`.
  void Add(const RankGraph& graph, const std::vector<StageTwin>& twins);

  StationGraph Finish();

 private:
  struct StationData {
    std::string name;
    int64_t stage = 0;
    int priority = 0;
    int64_t micro_batches = 1;  // acts / chunks
    int64_t chunks = 1;
    int64_t act_ns = 1;
    StationPass pass;
  };
  struct RegisterData {
    std::string name;
    int64_t bytes = 0;
    int64_t slots = 0;
    int64_t latency_ns = 0;
  };

  struct Load {
    double ns = 0;
    int64_t chunks = 1;
  };

  void AddStations(const RankGraph& shape);
  void AddLoads(const std::map<Station, Load>& loads, const StageTwin& twin);
  // `twin`: null for a shape, whose registers have no sizes.
  void AddRegisters(const RankGraph& graph, const StageTwin* twin);
  int64_t LatencyOf(const RankGraph& graph, const RankTensor& message, const StageTwin& twin) const;

  const LogicalPlan& plan_;
  const CostModel& costs_;
  std::map<Station, StationData> stations_;
  std::map<RegisterFamily, RegisterData> registers_;
};

}  // namespace weir::compiler
