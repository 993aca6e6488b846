// A pipeline schedule played in virtual time, part by part, and the chart of any such play. The
// rules are those of the actors (tokens, slots, one act of a stage at a time, the best of what is
// ready) with one act per part, pass and micro-batch; transfers and what follows the backward
// passes take no time. Not here: acts smaller than a part and transfers (rhythm/play_stations.h);
// ranks and links: the simulator plays whole plans. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir.h"
#include "compiler/pipeline_schedule.h"

namespace weir::compiler {

// Time of an act by pass, then part. Without a split the backward act holds both.
using PartCosts = std::array<std::vector<int64_t>, 3>;

// A forward act takes one unit, each kind of gradient another.
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

// Empty (a bubble of 0) if there are more acts than anyone would look at. Costs are at least 1.
SchedulePlay PlaySchedule(const PipelineSchedule& schedule, const PartCosts& costs);

// A row per stage, a column per forward pass of a mean part over a micro-batch, with what takes
// most of that time: F forward, B backward, W weight gradients, in lower case those of a stage's
// later parts, "·" nothing. With the last digit of the micro-batch where there is room; the middle
// is left out of long ones.
struct ScheduleChart {
  std::string text;
  double column = 0;  // time of one
  bool numbered = false;
};
ScheduleChart DrawSchedule(const SchedulePlay& play, size_t columns_max);

}  // namespace weir::compiler
