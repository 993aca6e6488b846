// Plans that pass registers on and compute nothing: a chain on one rank, and a ball thrown back and
// forth between two ranks.
// Thread rule: pure functions.
#pragma once

#include <vector>

#include "proto/plan.pb.h"

namespace weir::bench {

constexpr int kHopBytes = 64;

// Returns a chain of `length` actors, each of which passes a register of `slots` slots to the next.
proto::RankPlan ChainPlan(int length, int slots, int acts_per_step);

// Returns plans for two ranks with one actor each. Each actor passes kHopBytes on to the other. One
// token is under way, so two acts are one round trip.
std::vector<proto::RankPlan> PingPongPlans(int acts_per_step);

}  // namespace weir::bench
