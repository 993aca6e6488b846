// Finds replicas of weights that are no longer equal. Ranks that hold the same shard of a weight
// compute the same bits, step after step. If their bits differ, then a memory, a processor or a
// wire has changed some on the way, or the processors round differently: nothing else in a run
// shows it.
//
//   SumWeights on each process -> FindDivergence of all sums
//
// Thread rule: SumWeights belongs to the session's owner; the others are pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/session/session.h"
#include "runtime/base/ids.h"
#include "runtime/base/tensor_slice.h"

namespace weir::train {

// The checksum of a shard of a weight on a rank.
struct ShardSum {
  RankId rank;
  std::string name;  // of the weight
  TensorSlice slice;
  uint32_t crc = 0;  // CRC32C of its bytes
};

// Returns the sums of all weights of the local ranks.
absl::StatusOr<std::vector<ShardSum>> SumWeights(const actors::Session& session);

// Replicas that differ.
struct Divergence {
  std::string name;  // of the first weight, by name, that differs
  TensorSlice slice;
  int64_t weights = 0;  // how many weights differ
  // The ranks whose bits of the shard most of its holders do not have; empty if no bits have a
  // majority of the holders.
  std::vector<RankId> odd;
  std::vector<RankId> holders;  // of the shard, in order
};

// Returns whether any shard is on more than one rank.
bool HasReplicas(const std::vector<ShardSum>& sums);

// Compares the sums of all ranks. nullopt: all replicas are equal, or there are none.
std::optional<Divergence> FindDivergence(const std::vector<ShardSum>& sums);

// Returns "rank 2 has other bits of 'layers.0.wq' than ranks 0, 1, 3; 12 weights differ".
std::string DivergenceText(const Divergence& divergence);

}  // namespace weir::train
