// Hand-written plans with the times that sessions want of every plan.
// Not here: the plans (test_plans.h), which what plants bugs in the protocol uses without this.
// Thread rule: a pure function.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace weir {

// The plans of all ranks of a job, in order, with a certificate; ends the program if there is none.
std::vector<RankPlan> Certified(std::vector<RankPlan> plans);

}  // namespace weir
