// Plays a pipeline schedule in virtual time, part by part, and draws the chart of any such play.
// The rules are those of the actors: tokens, slots, one act of a stage at a time, and the best of
// the ready acts. One act stands for each part, pass and micro-batch. Transfers and the work after
// the backward passes take no time. Not here: acts smaller than a part, and transfers
// (rhythm/play_stations.h); ranks and links (the simulator plays whole plans). Thread rule: pure
// functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/pipeline_schedule.h"

namespace weir::compiler {

// The time of an act, by pass and then by part. Without a split the backward act includes both
// kinds of gradients.
using PartCosts = std::array<std::vector<int64_t>, 3>;

// A forward act takes one unit, and each kind of gradient takes another.
PartCosts EvenCosts(const PipelineSchedule& schedule);

struct SchedulePlay {
  struct Act {
    PipelinePass pass = PipelinePass::kForward;
    int64_t part = 0;
    int64_t micro_batch = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };
  std::vector<std::vector<Act>> stages;  // in order of time
  int64_t span = 0;                      // from the first to the last act
  double bubble = 0;                     // 1 - time in acts / (stages x span)
};

// Returns an empty play (a bubble of 0) if there are more acts than a person would look at. Costs
// are at least 1.
SchedulePlay PlaySchedule(const PipelineSchedule& schedule, const PartCosts& costs);

// The chart has a row per stage, and a column per mean time of a part's forward pass over a
// micro-batch. A column shows the pass that takes most of its time: F forward, B backward, W weight
// gradients, "·" nothing. Lower case marks the later parts of a stage. Where there is room, the
// chart also shows the last digit of the micro-batch. A long chart leaves out its middle.
struct ScheduleChart {
  std::string text;
  double column = 0;  // the time of one column
  bool numbered = false;
};
ScheduleChart DrawSchedule(const SchedulePlay& play, size_t columns_max);

}  // namespace weir::compiler
