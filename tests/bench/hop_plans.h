// Plans that hand registers around and compute nothing: a chain on one rank, a ball
// thrown back and forth between two.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace weir::bench {

constexpr int kHopBytes = 64;

// `length` actors in a row, each handing a register of `slots` slots to the next.
RankPlan ChainPlan(int length, int slots, int acts_per_step);

// Two ranks with one actor each, that passes kHopBytes on to the other; one token is
// under way, so two acts are one round trip.
std::vector<RankPlan> PingPongPlans(int acts_per_step);

}  // namespace weir::bench
