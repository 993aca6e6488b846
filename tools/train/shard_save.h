// One process' part in a checkpoint folder: a copy of the states that its ranks save, and the
// writing of that copy beside the next steps. The starter of the job has made the folder, and
// commits the checkpoint when all processes have reported.
//
//   idle --Begin--> writing --Take--> idle          (the ranks' host sees the folder)
//   idle --BeginSending--> sending --NextBytes ... the last--> idle   (it does not)
//
// Begin returns when the copy is made. A new Begin gives up a write that goes on.
// Thread rule: one owner, that of the session.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/clock.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/shard_file.h"
#include "tools/train/background_task.h"
#include "tools/train/state_copy.h"
#include "tools/train/write_pace.h"

namespace weir::train {

// Where a process writes its shards.
struct ShardSaveOrder {
  std::string directory;         // of the run's checkpoints
  int64_t step = 0;              // steps done
  std::string token;             // of store::PendingCheckpoint
  int64_t bytes_per_second = 0;  // the most that this process writes; 0: no limit
  std::string job_id;            // of the run (store::CheckpointFacts)
};

// SavedShards are the shards that a process has written, or a part of them.
struct SavedShards {
  std::vector<store::ShardFileRecord> files;
  // The states with values that are not finite, and these values, for people.
  std::map<std::string, std::string> nonfinite;
};

// A part of the copy on its way to a starter whose folder this host does not see.
struct SentBytes {
  std::string bytes;
  std::map<std::string, std::string> nonfinite;  // as in SavedShards, of the states begun here
  int64_t end = 0;                               // the position after the last byte
  bool is_last = false;
};

class ShardSave {
 public:
  explicit ShardSave(const Clock* clock) : clock_(clock) {}
  ~ShardSave() { GiveUp(); }
  ShardSave(const ShardSave&) = delete;
  ShardSave& operator=(const ShardSave&) = delete;

  // Takes the memory of the copy, and touches it beside the next steps, so that the first
  // checkpoint takes no longer than the others. If there is no memory, the first checkpoint says
  // so.
  void Prepare(const actors::Session& session, const compiler::LogicalPlan& plan);
  // Copies the states of the local ranks and begins to write them, a file for each rank.
  // CannotWrite if there is no memory for the copy.
  absl::Status Begin(const actors::Session& session, const compiler::LogicalPlan& plan,
                     const ShardSaveOrder& order);
  // Copies the states for NextBytes. Returns the entries of each rank's file, in the order of the
  // bytes.
  absl::StatusOr<std::map<RankId, std::vector<store::ShardEntry>>> BeginSending(
      const actors::Session& session, const compiler::LogicalPlan& plan,
      const ShardSaveOrder& order);

  // Returns what was written once it is on disk, or why it is not. nullopt: the writing goes on
  // after `limit_ms`. Precondition: Begin was ok.
  std::optional<absl::StatusOr<SavedShards>> Take(int64_t limit_ms);
  // Returns the bytes from position `begin` on, about `bytes_max` of them, whole elements.
  // Precondition: BeginSending was ok. kInvalidArgument if no shard has that position.
  absl::StatusOr<SentBytes> NextBytes(int64_t begin, int64_t bytes_max);

  // Lets the writing go as fast as the disk allows, because somebody waits for it.
  void LiftPace();
  // Ends the writing; what is written is left to the maker of the folder.
  void GiveUp();
  // Returns the bytes of the last copy.
  int64_t bytes() const { return copy_.bytes(); }

 private:
  void AwaitTouching();
  // Takes the copy.
  absl::Status Copy(const actors::Session& session, const compiler::LogicalPlan& plan,
                    const ShardSaveOrder& order);
  // On the thread of the task.
  absl::StatusOr<SavedShards> WriteAll(const ShardSaveOrder& order);

  const Clock* const clock_;
  StateCopy copy_;
  std::unique_ptr<WritePace> pace_;
  BackgroundTask<absl::StatusOr<SavedShards>> writing_;
  BackgroundTask<absl::Status> touching_;  // uses copy_
};

}  // namespace weir::train
