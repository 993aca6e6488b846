// The time of one step of a whole job, with an update, as one graph: its stations (see Station),
// whatever the number of ranks.
//
// Who waits for whom is told by the shapes of the stages (lower/stage_shape.h), which have all that
// any rank does. So a rank's waits are among those here: of a register, a rank has some of the
// consumers and the same slots; of a message with fewer chunks, the first ones. Times that hold
// here hold on every rank, and its own check of its plan says so. What acts and registers take is
// told by a few lowered ranks: a station takes what the slowest of them takes, and a register the
// bytes of the largest. That is a guess for the others, which costs time and memory, never
// soundness. Thread rule: one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "compiler/cost/cost_model.h"
#include "compiler/lower/rank_graph.h"
#include "compiler/rates/timed_graph.h"
#include "compiler/rhythm/job_rhythm.h"

namespace weir::compiler {

// What the acts of a station are for the pipeline.
struct StationPass {
  std::optional<PipelinePass> pass;  // none: they compute no part of a pass
  int64_t part = 0;
  PipelineSchedule::Turn turn;
};

struct StationGraph {
  TimedGraph timed;                      // device = stage
  std::vector<Station> stations;         // of the actors of `timed`
  std::vector<StationPass> passes;       // likewise
  std::vector<RegisterFamily> families;  // of its registers
};

// What an act of `actor` takes.
int64_t ActNs(const RankActor& actor, const CostModel& costs);

class StationGraphBuilder {
 public:
  // With the shapes of all stages.
  StationGraphBuilder(const LogicalPlan& plan, const CostModel& costs);

  // Adds the times of a rank's acts and the sizes of its registers.
  void Add(const RankGraph& graph);

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

  void AddStations(const RankGraph& shape);
  enum class Sizes : uint8_t { kUnknown, kKnown };  // of a shape, of a rank
  void AddRegisters(const RankGraph& graph, Sizes sizes);

  const LogicalPlan& plan_;
  const CostModel& costs_;
  std::map<Station, StationData> stations_;
  std::map<RegisterFamily, RegisterData> registers_;
};

}  // namespace weir::compiler
