// A StateCopy holds the bytes of the states that the ranks of one process save, as of the end of a
// step. A checkpoint is written from the copy while the ranks run on.
//
// Ranks that hold the same shard share it: each of n replicas saves about 1/n of the bytes, so that
// p ranks save 1/p each. Every element of a state is in the copy of exactly one rank of the job.
// The copy keeps its memory from checkpoint to checkpoint; its size is that of the shares. The
// system hands out memory at the first touch of each page, which takes longer than the copy itself,
// so Reserve and Touch do that before the first checkpoint. Thread rule: Reserve and Take belong to
// the session's owner; between two calls of them any thread reads, and one thread may touch.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "runtime/base/tensor_slice.h"
#include "tools/train/session_states.h"

namespace weir::train {

// The place of a rank among the ranks that hold the same shard.
struct ReplicaPlace {
  int64_t index = 0;
  int64_t count = 1;
};

// Returns the place of the rank with coordinates `coords` for a state of `layout` on `mesh`: the
// replicas differ in the coordinates of the axes along which the layout broadcasts.
ReplicaPlace PlaceAmongReplicas(const sbp::Layout& layout, const sbp::Mesh& mesh,
                                const sbp::Coords& coords);

// Returns the part of the shard `slice` of state `name` that the replica at `place` saves: a
// contiguous part, or nullopt. The parts of all replicas together are the slice. A slice of few
// bytes is not split: one replica, which follows from the name, saves all of it.
std::optional<TensorSlice> ShareOf(const std::string& name, const TensorSlice& slice,
                                   const ReplicaPlace& place);

class StateCopy {
 public:
  struct Shard {
    RankId rank;
    std::string name;  // of the state
    TensorSlice slice;
    const char* data = nullptr;  // slice.bytes() of them
  };

  // Takes memory for the shares of the states of `set`, as Take would. Errors as of Take.
  absl::Status Reserve(const actors::Session& session, const compiler::LogicalPlan& plan,
                       StateSet set);
  // Touches each page of the memory. Takes some 0.3 s per GiB.
  void Touch();
  // Copies the shares of the states of `set` that the local ranks of the session save. `plan` is
  // the plan of the session. kResourceExhausted: there is no memory for the copy.
  absl::Status Take(const actors::Session& session, const compiler::LogicalPlan& plan,
                    StateSet set);

  // In the order of ranks, and within a rank in the order of a file of shards (store::ShardWriter):
  // states with wide elements first, otherwise as in the plan. The data lie in this order, without
  // gaps.
  const std::vector<Shard>& shards() const { return shards_; }
  int64_t bytes() const { return bytes_; }

 private:
  // A share of what a rank holds.
  struct Source {
    Shard shard;
    int64_t position = 0;  // of the first byte in what the rank holds
  };
  struct Free {
    void operator()(char* memory) const { ::free(memory); }
  };

  // Returns the shares in their order, and sets bytes_.
  absl::StatusOr<std::vector<Source>> FindSources(const actors::Session& session,
                                                  const compiler::LogicalPlan& plan, StateSet set);
  // Takes memory for bytes_ bytes if there is less.
  absl::Status Allocate();

  std::vector<Shard> shards_;
  int64_t bytes_ = 0;
  int64_t capacity_ = 0;
  std::unique_ptr<char, Free> memory_;
};

}  // namespace weir::train
