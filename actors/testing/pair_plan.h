// A PairPlan is the smallest plan that has an edge: two actors without programs and the register
// between them, with any rates, for tests that go through all rates. Thread rule: a pure function.
#pragma once

#include "proto/plan.pb.h"

namespace weir::actors {

struct PairPlan {
  int producer_acts = 1, consumer_acts = 1;  // per step
  int producer_period = 1, consumer_period = 1;
  int producer_tokens = 1, consumer_tokens = 1;
  int producer_phase = 0, consumer_phase = 0;
  int producer_every = 1, consumer_every = 1, consumer_every_phase = 0;
  int slots = 1, initial = 0, tokens = 1, chunks = 1;
  int steps = 1;
};

proto::RankPlan MakePairPlan(const PairPlan& p);

}  // namespace weir::actors
