// The checkpoints of a simulated job, as the starter writes them (tools/train/run_checkpoints.cc,
// tools/fleet/fleet_checkpoint.cc) and as a person finds them. The folder, its index and its commit
// are the product's code (checkpoint_folder.h, pending_file.h).
//
// The invariants: every committed checkpoint is whole, with the right values, `latest` names one,
// and none whose commit has returned is missing.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/shard_file.h"
#include "tests/chaos/recovery_world.h"

namespace weir::chaos {

// Returns the folder of the checkpoint of a step.
std::string CheckpointPath(int64_t step);
// Returns whether the status is that of a command whose workers were lost, or of another epoch.
bool RanksAreGone(const absl::Status& status);

class RecoveryCheckpoints {
 public:
  explicit RecoveryCheckpoints(RecoveryWorld* world) : world_(world) {}

  // All processes start.
  void Open(const store::Retention& retention);
  // The starter gives up what it has open: all processes have ended.
  void Drop() { pending_.reset(); }

  // Returns the last step that this start of the job has saved; -1: none.
  int64_t saved() const { return saved_; }
  // Returns the step whose checkpoint is on its way, or else saved().
  int64_t begun() const { return std::max(saved_, begun_); }

  // Begins to write the states of all workers, which rest. Errors: those of workers that are lost.
  // A write that the disk refuses is a warning.
  absl::Status Begin(const store::CheckpointFacts& facts);
  // Commits the checkpoint on its way if all shards are written. Errors are those of Begin.
  absl::Status Look() { return begun_ < 0 ? absl::OkStatus() : End(Wait::kNo); }
  // Waits for that, and commits it.
  absl::Status Await();

  // Checks all that is committed.
  void CheckFolder();
  // A step, and how many samples its states have seen.
  struct Found {
    int64_t step = 0, samples = 0;
  };
  // Returns the checkpoint from which a person resumes; nullopt: there is none.
  std::optional<Found> FindLast();
  // Returns what the checkpoint of a step says, which must be whole.
  Found Check(int64_t step);
  int64_t num_commits() const { return num_commits_; }

 private:
  enum class Wait : uint8_t { kNo, kYes };

  bool Ends() const { return world_->starter_is_gone() || !world_->violation().empty(); }
  void Violate(const std::string& what);
  absl::Status WarnOf(const absl::Status& status);
  absl::Status GiveUp(const absl::Status& reason);
  absl::Status End(Wait wait);
  absl::Status Commit();
  std::string CheckOne(int64_t step, int64_t* samples);

  RecoveryWorld* const world_;
  store::Retention retention_;
  int64_t saved_ = -1, begun_ = -1;  // steps
  store::CheckpointFacts facts_;     // of the checkpoint on its way
  std::unique_ptr<store::PendingCheckpoint> pending_;
  IdVector<WorkerId, bool> parts_;  // that are written
  std::vector<store::ShardFileRecord> files_;
  int64_t durable_ = -1;  // the last step whose commit has returned
  int64_t num_commits_ = 0;
};

}  // namespace weir::chaos
