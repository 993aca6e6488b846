// Decides from which states a job goes on after it has lost workers: the step of which every shard
// is still in some worker's memory, and who gives whom which shard.
//
// A worker has the states of its copies (kept_states.h), and of its ranks at rest, which may be
// ahead of the copies. A worker without the states of the step takes them from ranks that held the
// same shards, which are replicas: in data parallelism, the same place in the other replicas.
// Shards without a replica come from the copy that the worker's buddy has (guarded_states.h).
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/tensor_slice.h"
#include "tools/fleet/guarded_states.h"

namespace weir::fleet {

// The states that a worker has: numbers of steps done; -1: none.
struct WorkerStanding {
  int64_t kept_step = -1;
  int64_t resting_step = -1;
  int64_t older_kept_step = -1;
  std::vector<WholeCopy> guarded;  // of the lone shards of other workers
};

struct HeldState {
  std::string name;
  TensorSlice slice;
};

// For each worker, shards of its ranks, in the order of ranks and names.
using LoneShardsOf = IdVector<WorkerId, std::vector<GuardedShard>>;

// Returns the shards that end with one host, or, if all workers are on one host, with one worker.
// Each is of one worker: of those that hold the shard, the one with the fewest bytes so far.
// `host_of[worker]` names the host.
LoneShardsOf LoneShards(const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                        const IdVector<RankId, std::vector<HeldState>>& shards_of,
                        const IdVector<WorkerId, std::string>& host_of);

// A Transfer gives a shard of a state of rank `from` to rank `to`, which holds the same shard.
struct Transfer {
  RankId from, to;
  std::string name;
  int64_t bytes = 0;
  WorkerId giver;  // has the bytes: the worker of rank `from`, or the buddy of that worker
  enum class Source : uint8_t { kReplica, kBuddy } source = Source::kReplica;
};

struct RecoveryPlan {
  int64_t step = -1;                    // steps done; -1: memory does not have all states
  IdVector<WorkerId, bool> has_states;  // of the step
  std::vector<Transfer> transfers;      // to workers that have them not
  int64_t bytes = 0;                    // of the transfers
  // Without a step: the workers whose lone shards are in nobody's memory, of no step.
  std::vector<WorkerId> without_states;
};

// Returns the plan for the last step that memory has whole. `may_begin_at` says at which steps a
// run may begin: not between the gradients of an update. `shards_of[rank]` are the shards that the
// rank holds, and lone[worker] those whose copies the buddy of the worker has.
RecoveryPlan PlanRecovery(const IdVector<WorkerId, WorkerStanding>& standings,
                          const IdVector<WorkerId, std::vector<RankId>>& ranks_of,
                          const IdVector<RankId, std::vector<HeldState>>& shards_of,
                          const LoneShardsOf& lone,
                          const std::function<bool(int64_t step)>& may_begin_at);

// A StateMove is a part of a transfer: bytes of the shard, row-major.
struct StateMove {
  RankId from, to;
  std::string name;
  int64_t begin = 0;
  int64_t bytes = 0;
  WorkerId giver;
};
// Returns the parts of the transfers in order, in batches of at most `bytes_max` bytes each.
std::vector<std::vector<StateMove>> BatchesOf(const std::vector<Transfer>& transfers,
                                              int64_t bytes_max);

}  // namespace weir::fleet
