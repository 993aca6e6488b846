// Plays the plans of a job in virtual time, through the runtime's protocol, and reports the time
// and the idle share. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/plan/plan.h"
#include "proto/job.pb.h"

namespace weir::rhythm {

struct VirtualStep {
  int64_t all_steps_ns = 0;
  // The bubble of the steps after the first, as the report of their trace says; 0 with one step.
  double bubble = 0;
  std::vector<int64_t> arena_bytes;  // by rank
};

// Returns the time of an act. Null: acts and messages take the times that the plan was made with.
using ActCost = std::function<int64_t(const actors::Plan& plan, const actors::PlanActor& actor)>;

// Plays the job. Reports failures to the test.
VirtualStep PlayJob(const proto::Job& job, int steps, const ActCost& cost = nullptr);

}  // namespace weir::rhythm
