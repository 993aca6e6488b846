// A training step of a pipeline as its stations would play it, with the costs that start times are
// planned with: the chart and the bubble of `weir plan`. Stations take what is ready, as the
// runtime does, and do not wait for planned starts. What transfers take counts, but that messages
// may share a link. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/pipeline_schedule.h"
#include "compiler/play_schedule.h"
#include "compiler/rhythm/station_graph.h"

namespace weir::compiler {

enum class Transfers : uint8_t { kCounted, kNotCounted };

struct StationPlay {
  SchedulePlay play;  // acts of the three passes
  Transfers transfers = Transfers::kCounted;
};

// The second of three steps, so with the ends of its neighbours; of jobs with very many acts one
// step, part by part and without transfers. `slots` of the registers of the graph. Empty if that,
// too, were too much to look at.
StationPlay PlayStations(const PipelineSchedule& schedule, const StationGraph& graph,
                         const std::vector<int64_t>& slots);

}  // namespace weir::compiler
