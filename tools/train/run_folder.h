// The checkpoints that a run has on disk, and the right of the run to write more: a folder of
// checkpoints, or one file. The process that may start a run again has the object, and each attempt
// of the run borrows it. So no other run can take the folder between two attempts.
//
// The lock belongs to the folder, and the run writes under the name of --checkpoint:
//
//   the folder is       the run's checkpoints are   its next checkpoint goes
//   where it was        there                       there
//   renamed             in the renamed folder       into the folder that has the name, or makes it
//   removed             gone                        likewise
//
// The run holds the renamed folder, too, until a checkpoint is in the new one; from then on the run
// has the new one alone. If the folder has its name back before that, it is again the folder of the
// run. The object writes no checkpoint: RunCheckpoints does.
//
// Others may replace what stands at the path of a checkpoint. So the object remembers the identity
// (checkpoint::Identity) of the checkpoint with which the run began, of the newest ones before it,
// and of those that the run has written, and no other is one from which the run goes on. Thread
// rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/checkpoint/find_whole.h"
#include "tools/checkpoint/identity.h"

namespace weir::train {

// Returns whether `path` names a folder of checkpoints: it ends in "/", or a folder is there. Any
// other path is that of one file.
bool IsFolderPath(const std::string& path);
// Checks for a run that does not begin yet whether it could write checkpoints at `path`, the value
// of --checkpoint. kNotFound (W0741): another run writes into the folder. kInvalidArgument (W0926):
// the path lies in a committed checkpoint. CannotWrite: the folder cannot be made, or nothing in
// it.
absl::Status CheckPlaceOfCheckpoints(const std::string& path);

class RunFolder {
 public:
  // kOnce: the run ends with its first failure, so it loads a checkpoint once and compares none.
  enum class Loads : uint8_t { kOnce, kAfterFailures };
  // `path` is the value of --checkpoint; empty: the run writes no checkpoints. The path stays that
  // of a folder, or of a file, also if somebody renames what is there.
  explicit RunFolder(const std::string& path, Loads loads = Loads::kAfterFailures);

  // The id of the run, which its checkpoints carry (store::CheckpointFacts). All starts of the run
  // after failures have this id, and no other run has it, also none that resumes a checkpoint of
  // this one.
  const std::string& run_id() const { return run_id_; }
  bool is_folder() const { return is_folder_; }
  // The path without slashes at its end.
  const std::string& path() const { return path_; }
  // Returns the path at which a checkpoint of `step` is written.
  std::string PathFor(int64_t step) const;

  // Returns whether a Claim has succeeded. What is refused from then on costs a checkpoint or
  // another output, and not the run.
  bool has_begun() const { return has_begun_; }
  // Makes the folder where there is none, and takes the right for the folder that has the name. If
  // the run has that right, does nothing. If the path is that of a file, only checks the path.
  // Errors as of CheckPlaceOfCheckpoints.
  absl::Status Claim();
  // Returns a sentence for people if somebody has renamed or removed the folder since the last
  // call. Then the run has no right for the folder that has the name before the next Claim.
  std::string NoteRenaming();

  // Note that the run has written the checkpoint of `step`: in the folder, with this sum of its
  // index (store::CheckpointIndex::sum), or as the one file, with this sum of its header
  // (store::SafetensorsReader::header_sum). The sums are those of what was written, since others
  // may have replaced it meanwhile. A file does not name its run. Precondition for a folder: Claim
  // was called after the last NoteRenaming.
  void NoteWritten(int64_t step, uint32_t index_sum);
  void NoteFile(int64_t step, uint32_t header_sum);
  // Returns the checkpoints that count for --keep (store::Retention): all that the run has written,
  // and, if it began with one of this folder, that one and those before it, as they were then.
  const store::CheckpointSet& own() const { return own_; }
  struct Written {
    int64_t step = 0;
    std::string path;  // now
  };
  // Returns the newest checkpoint that this run has written and that is there; nullopt: none.
  std::optional<Written> Last() const;

  // kIdentity: the checkpoint is the one that the run knows. kContents: the checkpoint is also
  // whole. Values without checksums, as other programs write them, count as whole.
  enum class Depth : uint8_t { kIdentity, kContents };
  struct Found {
    std::optional<Written> written;
    std::vector<std::string> warnings;  // which newer ones are passed over, and why
  };
  // Returns the newest checkpoint that this run has written and that passes the check.
  Found FindWritten(Depth depth) const;
  // The run no longer counts those as its own that FindWritten passed over.
  void GoBackTo(const Found& found);
  // Goes back to the newest checkpoint from which the run can go on, and returns it: the newest one
  // that it has written and that passes the check of contents, or else that with which the run
  // began, or the newest before that one. If none passes, the path is that with which the run
  // began; empty: it began without one.
  checkpoint::WholeCheckpoint GoBackToWhole();
  // Decides whether a start that has failed before it had loaded the checkpoint at `chosen`, which
  // GoBackToWhole has returned, is made once more: because that checkpoint is gone from its path or
  // damaged by now, or another one stands there, and the run has another one. If so, goes back as
  // GoBackToWhole does. nullopt: the checkpoint is what it was, or the run has no other. Such
  // starts come to an end: nothing is written between them, and each follows on a change that
  // somebody else has made to the chosen checkpoint. A checkpoint that the run has written is then
  // passed over for good, or is taken from where somebody has moved the folder. One with which the
  // run began is looked at anew each time.
  std::optional<checkpoint::WholeCheckpoint> GoBackFurther(const std::string& chosen);

  // Notes the checkpoint with which the run begins (--resume); empty: none. Call once, before it is
  // loaded. Reads its index or header and those of the newest ones before it, unless the run loads
  // a checkpoint once: an index may have 256 MiB.
  void NoteStart(const std::string& resume);
  // Checks before a load that what stands at `path` is the checkpoint that the run knows by that
  // path. OK if the run knows none. kDataLoss (W0967): another one is there; or an error of opening
  // it.
  absl::Status CheckKnown(const std::string& path) const {
    return CheckKnown(path, Depth::kIdentity);
  }

  // Returns the present path of a checkpoint which lay in the folder when the run began. Any other
  // path is returned as it is. Once a checkpoint is in a new folder, the run has lost the old one,
  // and the path is returned as it is.
  std::string PresentPathOf(const std::string& checkpoint) const;

 private:
  // A checkpoint that the run knows. Absent identity: it was not read, or could not be, and any
  // other counts as the same.
  struct Known {
    int64_t step = 0;
    std::string path;  // when the run began; empty in written_
    std::optional<checkpoint::Identity> identity;
  };

  // Adds a checkpoint that the run has written to written_.
  void NoteKnown(Known written);
  // Takes the right for the folder that has the name, if the path is that of a folder.
  absl::Status TakeFolder();
  // Returns the present path of the folder that has the run's checkpoints; "": there is none.
  std::string PresentFolder() const;
  // Returns the path of the checkpoint of `step`, one of written_; "": the folder is gone.
  std::string PathOfWritten(int64_t step) const;
  absl::Status CheckKnown(const std::string& path, Depth depth) const;
  // Checks what stands at the present path of a checkpoint that the run knows.
  static absl::Status Check(const std::string& path, const Known& known, Depth depth);
  // Returns the newest of begun_with_ that is whole, as GoBackToWhole does.
  checkpoint::WholeCheckpoint FindStart() const;

  const std::string path_;
  const bool is_folder_;
  const Loads loads_;
  const std::string run_id_;
  bool has_begun_ = false;
  // The right for the folder that has the name, as of the last NoteRenaming; null: the run has
  // none, or writes a file.
  std::unique_ptr<store::FolderClaim> claim_;
  // The right for a renamed folder that has the run's checkpoints; null: that of claim_ has them.
  std::unique_ptr<store::FolderClaim> renamed_;
  std::vector<Known> written_;     // that the run has written there, the steps ascending
  store::CheckpointSet own_;       // also those that were replaced or removed since
  std::string first_resume_;       // with which the run began; empty: none
  std::vector<Known> begun_with_;  // that checkpoint, and those before it, the newest first
};

}  // namespace weir::train
