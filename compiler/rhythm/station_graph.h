// The time of one step of a whole job, with an update, as one graph: its stations (see Station), whatever the number of ranks. Built from a few
// lowered ranks: those of a stage do the same but for the sizes of their shards and the peers that they send to, so
// a station takes what the slowest of them takes, and a register the bytes of the largest.
//
// Ranks that were not looked at may have an edge that none of the others has. Edges that could be are added with no
// bytes and no bound on slots. Should one be missing still, the rank's own check of its plan finds it.
// Thread rule: one thread.
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
  TimedGraph timed;                  // device = stage
  std::vector<Station> stations;     // of the actors of `timed`
  std::vector<StationPass> passes;   // likewise
  std::vector<RegisterFamily> families;  // of its registers
};

// What an act of `actor` takes.
int64_t ActNs(const RankActor& actor, const CostModel& costs);

class StationGraphBuilder {
 public:
  StationGraphBuilder(const LogicalPlan& plan, const CostModel& costs) : plan_(plan), costs_(costs) {}

  void Add(const RankGraph& graph);

  enum class Ranks : uint8_t { kAll, kSome };  // whether all ranks of the job were added
  StationGraph Finish(Ranks ranks);

 private:
  struct StationData {
    std::string name;
    int64_t stage = 0;
    int priority = 0;
    int64_t micro_batches = 1;  // acts / chunks
    int64_t chunks = 1;
    int64_t act_ns = 1;
    StationPass pass;
    bool fills = false;         // the second half of an exchange; the sends stand before it
  };
  struct RegisterData {
    std::string name;
    int64_t bytes = 0;
    int64_t slots = 0;
    int64_t latency_ns = 0;
  };

  void AddStations(const RankGraph& graph);
  void AddRegisters(const RankGraph& graph);
  StationData& Other(const Station& station, const StationData& known, int64_t stage, const std::string& name);
  void AddPossibleEdges();
  void EqualizeChunks();

  const LogicalPlan& plan_;
  const CostModel& costs_;
  std::map<Station, StationData> stations_;
  std::map<RegisterFamily, RegisterData> registers_;
};

}  // namespace weir::compiler
