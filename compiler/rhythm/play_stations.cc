#include "compiler/rhythm/play_stations.h"

#include <algorithm>
#include <limits>

#include "compiler/rates/greedy_play.h"

namespace weir::compiler {
namespace {

constexpr int64_t kSteps = 3;
constexpr int64_t kStepShown = 1;
// The most acts of all stations in all steps: a play of this size takes a tenth of a second.
constexpr int64_t kActsMax = int64_t{1} << 17;

// Returns the time of each part's act: the sum over the stations that compute the part.
PartCosts CostsOfParts(const PipelineSchedule& schedule, const StationGraph& graph) {
  PartCosts costs;
  for (auto& list : costs) list.assign(schedule.num_parts(), 0);
  for (ActorId a : graph.timed.actors.ids()) {
    const StationPass& pass = graph.passes[a];
    const TimedGraph::Actor& actor = graph.timed.actors[a];
    if (pass.pass.has_value())
      costs[static_cast<int>(*pass.pass)][pass.part] += actor.time_ns * actor.chunks;
  }
  for (auto& list : costs) {
    for (int64_t& ns : list) ns = std::max<int64_t>(1, ns);
  }
  return costs;
}

SchedulePlay ActsOfStep(const PipelineSchedule& schedule, const StationGraph& graph,
                        const GreedyPlay& played) {
  SchedulePlay play;
  play.stages.resize(schedule.num_stages);
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0, busy = 0;
  for (ActorId a : graph.timed.actors.ids()) {
    const StationPass& pass = graph.passes[a];
    if (!pass.pass.has_value()) continue;
    const TimedGraph::Actor& actor = graph.timed.actors[a];
    for (int64_t k = 0; k < actor.acts; ++k) {
      const int64_t ended = played.ends(a)[kStepShown * actor.acts + k];
      play.stages[actor.device].push_back({*pass.pass, pass.part,
                                           k / actor.chunks % schedule.micro_batches,
                                           ended - actor.time_ns, ended});
      begin = std::min(begin, ended - actor.time_ns);
      end = std::max(end, ended);
      busy += actor.time_ns;
    }
  }
  if (end <= begin) return {};
  for (auto& acts : play.stages) {
    for (SchedulePlay::Act& act : acts) {
      act.begin -= begin;
      act.end -= begin;
    }
    std::sort(acts.begin(), acts.end(),
              [](const auto& x, const auto& y) { return x.begin < y.begin; });
  }
  play.span = end - begin;
  play.bubble = 1 - static_cast<double>(busy) /
                        (static_cast<double>(play.span) * static_cast<double>(schedule.num_stages));
  return play;
}

}  // namespace

StationPlay PlayStations(const PipelineSchedule& schedule, const StationGraph& graph,
                         const IdVector<RegisterId, int64_t>& slots) {
  int64_t acts = 0;
  for (const TimedGraph::Actor& actor : graph.timed.actors) acts += kSteps * actor.acts;
  if (acts <= kActsMax) {
    TimedGraph timed = graph.timed;
    for (RegisterId r : timed.registers.ids()) timed.registers[r].slots = slots[r];
    GreedyPlay played(timed, [&](ActorId actor, int64_t micro_batch) {
      return graph.passes[actor].precedence.At(micro_batch % schedule.micro_batches);
    });
    if (played.Run(kSteps)) return {ActsOfStep(schedule, graph, played), Transfers::kCounted};
  }
  return {PlaySchedule(schedule, CostsOfParts(schedule, graph)), Transfers::kNotCounted};
}

}  // namespace weir::compiler
