// The checkpoints of a run: writes them on the way and at the end, remembers the last good one, and
// accounts for the time that they cost.
//
// A checkpoint is one file or a folder of checkpoints, as the path says (IsFolderPath). The run
// waits while a file is written. For a folder, the run waits while the states are copied into
// memory, and the copies are written beside the next steps; if the next checkpoint is due before
// the last is on disk, the run waits for the last. A write that the disk refuses becomes a warning,
// and the next checkpoint tries again. The last checkpoint of the run is waited for, and tried
// twice. If somebody renames or removes the folder, the next checkpoint goes into a folder that has
// the name then, unless another run writes there. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"
#include "runtime/base/clock.h"
#include "runtime/store/batch_position.h"
#include "runtime/store/checkpoint_folder.h"
#include "tools/train/job_runner.h"
#include "tools/train/progress.h"
#include "tools/train/trainer.h"

namespace weir::train {

// Returns whether `path` names a folder of checkpoints: it ends in "/", or a folder is there. Any
// other path is that of one file.
bool IsFolderPath(const std::string& path);
// Checks for a run that does not begin yet whether it could write checkpoints at `path`, the value
// of --checkpoint. kInvalidArgument: another run writes into the folder (W0741), or the path lies
// in a committed checkpoint (W0926). CannotWrite: the folder cannot be made, or nothing in it.
absl::Status CheckPlaceOfCheckpoints(const std::string& path);

class RunCheckpoints {
 public:
  // All must outlive this object.
  RunCheckpoints(const proto::Job& job, const TrainOptions& options, const Clock* clock,
                 Progress* progress);

  // Takes the folder for this run, and makes it if it is not there. Call before the ranks are
  // loaded. Errors as of CheckPlaceOfCheckpoints.
  absl::Status Claim();
  // Call once, before all that follows. `runner` must outlive this object. `prepared` is of the
  // run.
  void Open(JobRunner* runner, const PreparedTraining& prepared);
  // Call when the job has another plan from now on.
  void TakePlan(const PreparedTraining& prepared);
  // Call once the ranks are loaded, before the first step: takes memory for checkpoints on the way.
  absl::Status Prepare();

  bool is_wanted() const { return !options_.checkpoint.empty(); }
  // The step of the last checkpoint of this run that is on disk; -1: there is none.
  int64_t last_step() const { return last_step_; }
  // Returns whether a checkpoint of `step` is on disk or on its way there.
  bool Has(int64_t step) const { return last_step_ == step || begun_step_ == step; }
  // Returns the path of --checkpoint without slashes at its end.
  std::string base_path() const;
  // Returns the path of the checkpoint of `step`.
  std::string PathOf(int64_t step) const;
  // Returns whether the time between two checkpoints has passed (--checkpoint-every 60s).
  bool IsDueByTime() const;

  // Writes a checkpoint after `step` steps, or begins to. Errors other than those of the disk.
  absl::Status WriteOnTheWay(int64_t step);
  // Call between steps: takes the outcome of a checkpoint that has been written meanwhile. Errors
  // as WriteOnTheWay.
  absl::Status Look();
  // Writes the last checkpoint of the run, of `step` if that is right after an update, and waits
  // for all. Adds what fails to `problems`. Returns an error only if the ranks are gone.
  absl::Status WriteLast(int64_t step, std::vector<absl::Status>* problems);
  // Writes the state to one file beside the checkpoints of the run.
  absl::Status WriteStopped(int64_t step, const std::string& path);
  // Waits for a checkpoint that is being written, before the run ends or goes back. If somebody has
  // taken the folder away, there is no last_step() afterwards.
  void Await();

  // Costs are what the metrics of a step report.
  struct Costs {
    std::optional<double> write_seconds;  // of the checkpoint that has ended since
    std::optional<double> stall_seconds;  // the time that the run has waited since
  };
  // Returns the costs since the last call; `step` steps are done. The costs of a file belong to the
  // step of the checkpoint.
  Costs TakeCosts(int64_t step);
  CheckpointTotals totals() const { return totals_; }

 private:
  absl::Status SaveFile(int64_t step, const std::string& path);
  absl::Status BeginFolder(int64_t step);
  // Gives up the folder if its name is no longer that of the folder into which the run wrote: a
  // checkpoint that is there is not of this run.
  void NoteLostFolder();
  // Takes the outcome of a begun checkpoint; OkStatus and nothing else if it goes on.
  absl::Status EndFolder(JobRunner::Wait wait);
  // Writes the checkpoint of `step` and waits for it.
  absl::Status SaveNow(int64_t step);
  void NoteWritten(const CheckpointWritten& written);
  // Returns OkStatus if `status` is the disk's refusal, or says that another run has the folder.
  // That becomes a warning.
  absl::Status WarnOf(int64_t step, const absl::Status& status);
  // Says which checkpoint is the last good one: of this run, or the one with which it began, which
  // an earlier attempt of the same job has written.
  std::string LastText() const;
  // Returns whether a checkpoint of this run is there. Somebody may have removed it.
  bool IsLastThere() const;
  int64_t SamplesAt(int64_t step) const {
    return store::SamplesUsed(sample_offset_, step, samples_per_step_);
  }
  // Returns whether somebody has asked the run to end, and waits for that.
  bool IsInterrupted() const {
    return options_.interrupted != nullptr && options_.interrupted->load();
  }
  double SecondsSince(int64_t ns) const;
  void AddStall(int64_t since_ns);

  const proto::Job& job_;
  const TrainOptions& options_;
  const Clock* const clock_;
  Progress* const progress_;
  const bool is_folder_;
  JobRunner* runner_ = nullptr;
  std::unique_ptr<store::FolderClaim> claim_;  // null: the run has no folder
  std::string plan_id_, data_;
  int64_t samples_per_step_ = 1, sample_offset_ = 0;

  int64_t last_step_ = -1;
  int64_t begun_step_ = -1;    // of the checkpoint that is being written; -1: none
  int64_t last_begun_ns_ = 0;  // when the run or its last checkpoint began
  bool fails_ = false;         // the last attempt on the way
  bool is_ending_ = false;     // no step follows
  // Not yet reported by TakeCosts.
  int64_t cost_step_ = -1;  // of the checkpoint
  double stall_seconds_ = 0;
  std::optional<double> write_seconds_;
  CheckpointTotals totals_;
};

// Returns "; 5 checkpoints, for each of which on the way the steps waited 12.1 ms, 0.31% of the
// time"; empty if the run wrote none into a folder.
std::string CheckpointsText(const TrainResult& result);

}  // namespace weir::train
