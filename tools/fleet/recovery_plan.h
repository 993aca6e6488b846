// Decides from which states a job goes on after it has lost workers: the step of which every shard
// is still in some worker's memory, and who gives whom which shard.
//
// A worker has the states of its copies (kept_states.h), and of its ranks at rest, which may be
// ahead of the copies. A worker without the states of the step takes them from ranks that held the
// same shards, which are replicas: in data parallelism, the same place in the other replicas.
// Shards without a replica come from the copy that the worker's buddy has (guarded_states.h).
//
// If the mesh becomes smaller, ranks hold other shards than before. Then each new shard is put
// together from the parts of old shards that overlap it.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

// Returns whether a worker's ranks have, or had, the states of that step.
bool HasStates(const WorkerStanding& standing, int64_t step);

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

// A MovedPart is a part of a shard that moves into another shard of the same state.
struct MovedPart {
  TensorSlice part;
  TensorSlice given;  // the shard of rank `from`, which has the part
  TensorSlice taken;  // the shard of rank `to`, which has the part, too
};

// A Transfer gives a shard of a state of rank `from` to rank `to`, which holds the same shard.
struct Transfer {
  RankId from, to;
  std::string name;
  int64_t bytes = 0;
  WorkerId giver;  // has the bytes: the worker of rank `from`, or the buddy of that worker
  enum class Source : uint8_t { kReplica, kBuddy } source = Source::kReplica;
  // Rank `to` holds another shard, and gets a part of it; `bytes` are those of the part.
  std::optional<MovedPart> moved;
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

// Where states are: the ranks of each worker, the shards of each rank, and those whose copies the
// buddy of each worker has.
struct StateLayout {
  IdVector<WorkerId, std::vector<RankId>> ranks_of;
  IdVector<RankId, std::vector<HeldState>> shards_of;
  LoneShardsOf lone;
};
// Returns the plan for ranks that will hold other shards: the last step of which memory has every
// element of every state, and who has states of it. The plan has no transfers yet.
RecoveryPlan PlanForOtherShards(const IdVector<WorkerId, WorkerStanding>& standings,
                                const StateLayout& layout,
                                const std::function<bool(int64_t step)>& may_begin_at);
// Returns the transfers that fill all shards of `to` from what the workers of the layout have of
// the states of `step`: a worker's own memory first, then that of other ranks, then copies of
// buddies. nullopt: memory does not have all elements.
std::optional<std::vector<Transfer>> PlanTransfers(
    const IdVector<WorkerId, WorkerStanding>& standings, const StateLayout& layout, int64_t step,
    const IdVector<WorkerId, std::vector<RankId>>& to_ranks_of,
    const IdVector<RankId, std::vector<HeldState>>& to_shards_of);

// A StateMove is a part of a transfer: bytes of the shard, or of its moved part, row-major.
struct StateMove {
  RankId from, to;
  std::string name;
  int64_t begin = 0;
  int64_t bytes = 0;
  WorkerId giver;
  std::optional<MovedPart> moved;  // as in the transfer
};
// Returns the parts of the transfers in order, in batches of at most `bytes_max` bytes each.
std::vector<std::vector<StateMove>> BatchesOf(const std::vector<Transfer>& transfers,
                                              int64_t bytes_max);

}  // namespace weir::fleet
