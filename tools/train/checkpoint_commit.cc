#include "tools/train/checkpoint_commit.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::train {
namespace {

store::StateOwner OwnerOf(actors::StateClass state_class) {
  switch (state_class) {
    case actors::StateClass::kOptimizerSlot: return store::StateOwner::kOptimizerSlot;
    case actors::StateClass::kDelayedGradient: return store::StateOwner::kDelayedGradient;
    default: return store::StateOwner::kWeight;
  }
}

std::map<std::string, store::TensorFacts> TensorsOf(
    const std::map<std::string, StateType>& states) {
  std::map<std::string, store::TensorFacts> tensors;
  for (const auto& [name, type] : states) {
    if (!BelongsTo(type.state_class, StateSet::kAll)) continue;
    const TensorSlice whole = TensorSlice::Whole(type.dtype, type.shape);
    tensors[name] = {store::ShardEntry::Of(name, whole).dtype, type.shape,
                     OwnerOf(type.state_class)};
  }
  return tensors;
}

}  // namespace

absl::Status CheckpointCommit::Begin(const CheckpointOrder& order,
                                     std::map<std::string, StateType> states) {
  GiveUp();
  order_ = order;
  states_ = std::move(states);
  token_ = store::PendingCheckpoint::NewToken();
  WEIR_ASSIGN_OR_RETURN(pending_,
                        store::PendingCheckpoint::Open(order.directory, order.facts.step, token_,
                                                       store::PendingCheckpoint::Role::kMake));
  return absl::OkStatus();
}

absl::Status CheckpointCommit::Add(SavedShards saved) {
  if (order_.nonfinite == Nonfinite::kRefuse && !saved.nonfinite.empty()) {
    const auto& [state, found] = *saved.nonfinite.begin();
    return NotFinite(final_path(), state, found);
  }
  for (store::ShardFileRecord& file : saved.files) files_.push_back(std::move(file));
  return absl::OkStatus();
}

void CheckpointCommit::Commit() {
  committing_.Begin([this] { return CommitAll(); });
}

absl::StatusOr<CheckpointWritten> CheckpointCommit::CommitAll() {
  CheckpointWritten written;
  written.path = final_path();
  written.num_files = static_cast<int64_t>(files_.size());
  for (const store::ShardFileRecord& file : files_) {
    const int64_t bytes = file.bytes - file.header_bytes;
    written.bytes += bytes;
    written.bytes_of_rank_most = std::max(written.bytes_of_rank_most, bytes);
  }
  WEIR_ASSIGN_OR_RETURN(const store::CheckpointIndex index,
                        store::MakeIndex(order_.facts, TensorsOf(states_), files_, written.path));
  WEIR_ASSIGN_OR_RETURN(written.warning, pending_->Commit(index, order_.retention));
  written.index_sum = pending_->index_sum();
  return written;
}

std::optional<absl::StatusOr<CheckpointWritten>> CheckpointCommit::Take(int64_t limit_ms) {
  std::optional<absl::StatusOr<CheckpointWritten>> written = committing_.Take(limit_ms);
  if (written.has_value()) GiveUp();
  return written;
}

void CheckpointCommit::GiveUp() {
  while (committing_.is_begun() && !committing_.Take(1000).has_value()) {
  }
  pending_.reset();
  files_.clear();
}

}  // namespace weir::train
