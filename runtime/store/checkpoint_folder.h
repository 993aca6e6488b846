// The folder of a run's checkpoints:
//
//   DIR/latest                        the name of a committed checkpoint, and its CRC32C
//   DIR/step-000000120/index.pb       a committed checkpoint
//   DIR/step-000000120/rank-00000.safetensors ...
//   DIR/step-000000140.partial-TOKEN/ a checkpoint that is being written
//
// For a moment, or after a crash, there are also step-...removed-TOKEN/ (a checkpoint that is being
// removed), step-...replaced-TOKEN/ (one that makes room for another of its step, where the file
// system cannot exchange names) and latest.partial-TOKEN. The next checkpoint removes them.
//
// A checkpoint is committed by the rename of its folder, when the files and the folder are on disk.
// `latest` is replaced afterwards, so it names a committed one at any time. Each process that
// writes into a partial folder holds a shared lock on it; a partial folder without a lock is a
// leftover of a killed run.
//
// Without a shared disk, each host has such a folder at the path that the job names. All hosts have
// the same index, which says which host has which file. The hosts commit their parts before the
// starter commits its own, and set `latest` after it.
//
// All operations go through a FileSystem, and tests/disk crashes at each of them. A checkpoint
// whose Commit has returned survives a loss of power. Thread rule: any thread; one run at a time
// writes into a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/file_system.h"

namespace weir::store {

// Returns "step-000000120".
std::string StepFolderName(int64_t step);
// Returns the step of such a name; nullopt: the name is another.
std::optional<int64_t> StepOfName(const std::string& name);
// Returns whether a name in the folder of a run says that a checkpoint was committed there:
// `latest`, or a step that is whole, damaged or removed. A step that a run is writing, or was
// writing when it was killed, says nothing.
bool IsOfCheckpoints(const std::string& name);

// Returns whether `path` is a folder that holds checkpoints or is one checkpoint. A folder of
// public weights is neither.
bool IsCheckpointFolder(const std::string& path);
// Returns whether `path` is the file that names the newest checkpoint of the folder around it.
bool IsLatestFile(const std::string& path);
// Returns the folder of the checkpoint that `path` names: the path if it is that of a checkpoint,
// else the one that its `latest` names. kNotFound (W0711): none is committed, or `latest` names
// none; the error lists those that are there; or an error of CheckStepIsThere.
absl::StatusOr<std::string> ResolveCheckpoint(const std::string& path,
                                              FileSystem* files = MachineFiles());

// Checks a path that names a step of a run (DIR/step-000000120). kNotFound (W0711): there is no
// such folder in DIR, which has other checkpoints, or the folder has no index; the error lists the
// checkpoints that are there. OK: the checkpoint is there, or the path has another form.
absl::Status CheckStepIsThere(const std::string& path, FileSystem* files = MachineFiles());

// Returns the files of the checkpoint that `path` names that are in its folder, the index first;
// none if there is no such checkpoint.
std::vector<std::string> FilesOfCheckpoint(const std::string& path);

// Returns the steps of the committed checkpoints in `directory`, ascending; none if there is no
// such folder.
std::vector<int64_t> CommittedSteps(const std::string& directory,
                                    FileSystem* files = MachineFiles());
// Returns the step that `latest` names; nullopt: there is no `latest`. kDataLoss (W0711): the file
// is damaged, or is no plain file.
absl::StatusOr<std::optional<int64_t>> ReadLatest(const std::string& directory,
                                                  FileSystem* files = MachineFiles());
// Replaces `latest`. Precondition: the step is committed. CannotWrite if the disk refuses.
absl::Status PointLatest(const std::string& directory, int64_t step,
                         FileSystem* files = MachineFiles());

// A name in a folder of checkpoints that is no checkpoint: a run writes it at this moment, or was
// killed while it wrote, replaced or removed it.
struct Leftover {
  enum class Kind : uint8_t { kPartial, kRemoved, kReplaced, kWithoutIndex };
  std::string name;
  Kind kind = Kind::kPartial;
};
// Returns them in the order of their names.
std::vector<Leftover> LeftoversIn(const std::string& directory, FileSystem* files = MachineFiles());

// Returns the folder of the committed checkpoint that `path` names or lies in; "": none. Nothing
// needs to be at `path`.
std::string CheckpointAround(const std::string& path);

// Tries whether the folder `directory` can be made, or whether folders can be made in it, and
// leaves nothing behind. CannotWrite if not. A folder on a full disk passes: there may be room once
// a checkpoint is due.
absl::Status TryFolder(const std::string& directory);

// The right of one run to write checkpoints into a folder, until the object goes away. It ends with
// the process in any case. On a file system without locks for folders, such as NFS, any number of
// runs have the right.
class FolderClaim {
 public:
  // Returns the right for `directory`, and makes the folder where there is none. A folder that was
  // made goes away with the object if nothing is in it then. kNotFound (W0741): another run has the
  // right; the error names its process. CannotWrite if the folder cannot be made or opened.
  static absl::StatusOr<std::unique_ptr<FolderClaim>> Take(const std::string& directory);
  // Returns kNotFound (W0741) if another run has the right for `directory`, and takes none.
  static absl::Status Check(const std::string& directory);
  // Returns whether `status` says that another run has the right (W0741).
  static bool IsOfAnotherRun(const absl::Status& status);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

  // Returns whether the right is that for the folder which has the name now. If somebody has
  // renamed or removed the folder, another run may have the right for a new one of that name.
  bool IsInPlace() const { return folder_->IsAt(directory_ + "/"); }
  // Returns a path of the folder now: the one that Take was given if the folder still has that
  // name, else an absolute one. "": somebody has removed the folder, or renamed it where this
  // host cannot find it.
  std::string PresentPath() const { return IsInPlace() ? directory_ : folder_->PresentPath(); }

 private:
  FolderClaim(std::string directory, std::unique_ptr<OpenedFile> folder, bool is_made)
      : directory_(std::move(directory)), folder_(std::move(folder)), is_made_(is_made) {}

  const std::string directory_;
  const std::unique_ptr<OpenedFile> folder_;  // locked
  const bool is_made_;                        // the folder, by this object
};

// Checkpoints by step and by the sum of their index (CheckpointIndex::sum), which tells a
// checkpoint from any other of its step.
using CheckpointSet = std::set<std::pair<int64_t, uint32_t>>;

// A Retention says which checkpoints of a run stay.
struct Retention {
  int64_t keep = 0;        // the newest so many; 0: all
  int64_t keep_every = 0;  // also those whose step is a multiple; 0: none
  // Those of the run, beside the one that is being committed. Others are neither counted nor
  // removed. Absent: all in the folder are of the run.
  std::optional<CheckpointSet> own;
};

// A checkpoint that is being written, as one process of the run sees it.
class PendingCheckpoint {
 public:
  // kMake: of the process that will call Publish on this host. The folder disappears with the
  // object unless it was published. kJoin: of a process that only writes its shards.
  enum class Role : uint8_t { kMake, kJoin };
  // Makes DIR and DIR/step-...partial-TOKEN where they do not exist. `files` must outlive the
  // object. The starter draws the token (NewToken), so that all processes use one folder. kMake
  // also removes leftovers. CannotWrite if the folder cannot be made.
  static absl::StatusOr<std::unique_ptr<PendingCheckpoint>> Open(
      const std::string& directory, int64_t step, const std::string& token, Role role,
      FileSystem* files = MachineFiles());
  static std::string NewToken();
  ~PendingCheckpoint();
  PendingCheckpoint(const PendingCheckpoint&) = delete;
  PendingCheckpoint& operator=(const PendingCheckpoint&) = delete;

  // The folder into which ShardWriter writes.
  const std::string& folder() const { return folder_; }
  // The path that the checkpoint has once it is published.
  const std::string& final_path() const { return final_path_; }

  // Writes the index, flushes the folder and gives it its final name, in place of an earlier
  // checkpoint of that step. Precondition: every ShardWriter of this folder has finished. `index`
  // must pass CheckOwners: call MakeIndex. Does not touch `latest`. CannotWrite if the disk
  // refuses, or if the folder of the shards no longer has the name that it was given.
  absl::Status Publish(const CheckpointIndex& index);
  // Returns the sum of the index that Publish has written (CheckpointIndex::sum). Precondition:
  // Publish has returned OkStatus.
  uint32_t index_sum() const { return index_sum_; }
  // Publishes, points `latest` to the checkpoint, and removes the earlier ones of the run that
  // `retention` does not keep. Checkpoints of later steps stay. Returns a sentence about an earlier
  // checkpoint that could not be removed, or "". Errors as of Publish; after an error `latest`
  // names what it named before, or this checkpoint.
  absl::StatusOr<std::string> Commit(const CheckpointIndex& index, const Retention& retention);

 private:
  explicit PendingCheckpoint(FileSystem* files) : files_(files) {}

  FileSystem* const files_;
  std::string directory_, folder_, final_path_;
  Role role_ = Role::kJoin;
  std::unique_ptr<OpenedFile> lock_;  // the folder, locked
  bool is_published_ = false;
  uint32_t index_sum_ = 0;
};

// Joins what the holders of shards have reported into an index: sets the seals and the content sums
// of the tensors. `tensors` are all states of the job; their `content` is ignored. kDataLoss
// (W0714) names a tensor that was not written by exactly one owner per element.
absl::StatusOr<CheckpointIndex> MakeIndex(CheckpointFacts facts,
                                          std::map<std::string, TensorFacts> tensors,
                                          std::vector<ShardFileRecord> files,
                                          const std::string& path);

// Returns the steps to remove. Never returns a step of `in_use` (being read, as --resume) nor
// `latest`. Pure.
std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& committed,
                                   const Retention& retention, std::optional<int64_t> latest,
                                   const std::set<int64_t>& in_use);
// Returns the steps from which a run may go on, the one to try first at the front: the one that
// `latest` names and those before it, from the newest on. If there is none of these, all are tried.
// Pure.
std::vector<int64_t> StepsToResume(std::vector<int64_t> committed, std::optional<int64_t> latest);
// Removes a checkpoint, so that at no time a half of it looks committed. CannotWrite if the disk
// refuses.
absl::Status RemoveCheckpoint(const std::string& directory, int64_t step,
                              FileSystem* files = MachineFiles());

}  // namespace weir::store
