// The job that the simulation of recovery trains: a model whose every value is a pure function of
// the samples that it has seen, in order. So a sample that is lost, repeated or taken out of order
// shows in every value, and two states are of the same step if and only if they are equal.
//
// The mesh has the axes dp (replicas) and tp (shards). The states are of 32-bit whole numbers:
//
//   w      sharded over tp, and replicated over dp
//   m      likewise; with ZeRO sharded over dp, too, so that no replica has it
//   seen   replicated: how many samples, and the sum of their numbers
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/store/checkpoint_index.h"
#include "tools/fleet/recovery_plan.h"

namespace weir::chaos {

// How the model lies over ranks and processes.
struct RecoveryLayout {
  int32_t dp = 1, tp = 1;
  bool shards_over_dp = false;  // ZeRO
  int32_t ranks_per_worker = 1;

  int32_t num_ranks() const { return dp * tp; }
  int32_t num_workers() const { return num_ranks() / ranks_per_worker; }
  IdVector<WorkerId, std::vector<RankId>> RanksOf() const;
  // The shards that each rank holds.
  IdVector<RankId, std::vector<fleet::HeldState>> ShardsOf() const;
  std::string ToText() const;  // "dp=2,tp=2 in 4 processes"
};

// The tensors of the model, which no layout changes.
std::map<std::string, store::TensorFacts> RecoveryTensors();

// The values of a shard, row-major.
using ShardValues = std::vector<int32_t>;
// Returns the values before the first sample.
ShardValues FirstValues(const fleet::HeldState& shard);
// Lets a shard see one more sample.
void SeeSample(const fleet::HeldState& shard, int64_t sample, ShardValues* values);
// Returns the values of a shard that has seen the samples 0 to below `num_samples`. The sequential
// run of the model: each value has been computed once and for all.
ShardValues ValuesAfter(const fleet::HeldState& shard, int64_t num_samples);
// Returns what is wrong with values that should have seen `num_samples` samples; "" if nothing is.
std::string CompareValues(const fleet::HeldState& shard, const ShardValues& values,
                          int64_t num_samples);

}  // namespace weir::chaos
