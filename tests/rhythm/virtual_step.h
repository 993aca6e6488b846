// Plays the plans of a job in virtual time, through the runtime's protocol, and says how long it
// takes and what it leaves idle. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "actors/plan.h"
#include "proto/job.pb.h"

namespace weir::testing {

struct VirtualStep {
  int64_t all_steps_ns = 0;
  double bubble =
      0;  // of the steps after the first, as the report of their trace says; 0 with one step
  std::vector<int64_t> arena_bytes;  // by rank
};

// What an act takes; null: what the plan was made with, and messages too.
using ActCost = std::function<int64_t(const Plan& plan, const PlanActor& actor)>;

// Failures are reported to the test.
VirtualStep PlayJob(const Job& job, int steps, const ActCost& cost = nullptr);

}  // namespace weir::testing
