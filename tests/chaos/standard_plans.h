// The plans that chaos is tried on: every shape the protocol knows, small enough for thousands
// of runs a second. Some are the hand-written ones of actors/testing/plans, some made by formula.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"

namespace weir::chaos {

struct StandardPlan {
  std::string name;
  std::vector<proto::RankPlan> ranks;
  int64_t steps = 2;  // of a run
};

// chain, diamond, repeat, accumulate, chunked, ring, train_loop, pipeline2, pipeline4, delay, skip,
// grid8x8, and others; and each on a device with queues, such as chain_2x64 on two queues that take
// 64 acts ahead.
const std::vector<StandardPlan>& StandardPlans();
// Returns the plan of this name, from StandardPlans() or from the plans that are too large for
// every day (grid32x16). Null if no plan has the name.
const StandardPlan* FindPlan(const std::string& name);

// `actors` mixing actors and `ranks` ranks in a row, `micro_batches` tokens a step along it.
std::vector<proto::RankPlan> MakeGrid(int actors, int ranks, int micro_batches);

// The plan on devices with `num_queues` queues that take `depth` acts ahead; actors have queues
// that are drawn from `seed`.
StandardPlan OnQueues(const StandardPlan& plan, int num_queues, int depth, uint64_t seed);

}  // namespace weir::chaos
