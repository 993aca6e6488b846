// Plays a training step of a pipeline, station by station, with the costs that start times are
// planned with. The play gives the chart and the bubble of `weir plan`. Stations take any work that
// is ready, as the runtime does, and do not wait for planned starts. The times of transfers count,
// but the play ignores that messages may share a link. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/pipeline_schedule.h"
#include "compiler/rhythm/play_schedule.h"
#include "compiler/rhythm/station_graph.h"

namespace weir::compiler {

enum class Transfers : uint8_t { kCounted, kNotCounted };

struct StationPlay {
  SchedulePlay play;  // acts of the three passes
  Transfers transfers = Transfers::kCounted;
};

// Plays three steps and returns the second, which includes the ends of its neighbours. A job with
// very many acts plays one step, part by part and without transfers. Returns an empty play if even
// that is too large to look at.
StationPlay PlayStations(const PipelineSchedule& schedule, const StationGraph& graph,
                         const IdVector<RegisterId, int64_t>& slots);

}  // namespace weir::compiler
