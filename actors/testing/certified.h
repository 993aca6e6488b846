// Adds to hand-written plans the times that sessions require of every plan. Not here: the plans
// (test_plans.h), which the programs that plant bugs in the protocol use without this header.
// Thread rule: a pure function.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace weir::actors {

// `plans` holds the plans of all ranks of a job, in order. Returns them with a certificate; ends
// the program if there is none.
std::vector<proto::RankPlan> Certified(std::vector<proto::RankPlan> plans);

}  // namespace weir::actors
