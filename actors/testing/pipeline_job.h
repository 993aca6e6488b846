// Makes a pipelined training job of any number of stages by formula: forward through the stages,
// backward back through them, and one stash register per stage whose slots decide the schedule.
// `num_stages - stage` slots and a preference for backward give 1F1B. Stage 0 reads data; every
// stage accumulates and updates a state of its own.
// Thread rule: a pure function.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace weir::actors {

struct PipelineJob {
  int num_stages = 2;
  int micro_batches = 4;
  int words = 8;          // of an activation
  int stash_slots = 0;    // 0: num_stages - stage (1F1B)
  int message_slots = 2;  // of every edge between stages
  int num_queues = 1;     // of each device; actors take them in turn
  int depth = 1;          // acts that a device takes
};

std::vector<proto::RankPlan> MakePipelineJob(const PipelineJob& job);

}  // namespace weir::actors
