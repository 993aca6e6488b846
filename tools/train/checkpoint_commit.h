// The starter's part in a checkpoint folder: it makes the folder, collects the reports of all
// holders of shards, and commits the checkpoint once every shard is on disk. Until then the
// checkpoint has no name, and `latest` names the one before.
//
//   idle --Begin--> { Add }* --Commit--> committing --Take--> idle
//
// A commit that is given up, or that fails, leaves nothing behind. Thread rule: one owner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/train/background_task.h"
#include "tools/train/session_states.h"
#include "tools/train/shard_save.h"

namespace weir::train {

// A checkpoint to write into a folder.
struct CheckpointOrder {
  std::string directory;         // of the run's checkpoints
  store::CheckpointFacts facts;  // with the step
  int64_t bytes_per_second = 0;  // the most that all processes write together; 0: no limit
  store::Retention retention;    // applied once the checkpoint is committed
  Nonfinite nonfinite = Nonfinite::kRefuse;
};

// A checkpoint that is committed.
struct CheckpointWritten {
  std::string path;                // its folder
  int64_t bytes = 0;               // of the tensors
  int64_t bytes_of_rank_most = 0;  // of the rank that has written most
  int64_t num_files = 0;
  uint32_t index_sum = 0;  // store::CheckpointIndex::sum
  std::string warning;     // an earlier checkpoint that could not be removed, for people; or empty
};

class CheckpointCommit {
 public:
  CheckpointCommit() = default;

  // Makes the folder for shards. `states` are those of all ranks. A checkpoint begun before and not
  // taken is given up. CannotWrite if the folder cannot be made.
  absl::Status Begin(const CheckpointOrder& order, std::map<std::string, StateType> states);
  const CheckpointOrder& order() const { return order_; }
  const std::string& token() const { return token_; }  // of store::PendingCheckpoint
  const std::string& folder() const { return pending_->folder(); }
  const std::string& final_path() const { return pending_->final_path(); }

  // Adds what a process has written. kOutOfRange (W0963): the order refuses values that are not
  // finite; the error names the first such state.
  absl::Status Add(SavedShards saved);
  // Begins to commit. Precondition: all processes have reported.
  void Commit();
  bool is_committing() const { return committing_.is_begun(); }
  // Returns the outcome of the commit; nullopt: it goes on after `limit_ms`. Errors: CannotWrite;
  // kInternal (W0714) if shards are missing or overlap. Precondition: is_committing().
  std::optional<absl::StatusOr<CheckpointWritten>> Take(int64_t limit_ms);
  // Removes what is not committed.
  void GiveUp();

 private:
  absl::StatusOr<CheckpointWritten> CommitAll();

  CheckpointOrder order_;
  std::map<std::string, StateType> states_;
  std::string token_;
  std::unique_ptr<store::PendingCheckpoint> pending_;
  std::vector<store::ShardFileRecord> files_;
  BackgroundTask<absl::StatusOr<CheckpointWritten>> committing_;
};

}  // namespace weir::train
