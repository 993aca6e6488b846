// The checkpoints of a run: writes them on the way and at the end, remembers the last good one, and
// accounts for the time that they cost.
//
// A checkpoint is one file or a folder of checkpoints, as the path says (IsFolderPath). The run
// waits while a file is written. For a folder, the run waits while the states are copied into
// memory, and the copies are written beside the next steps; if the next checkpoint is due before
// the last is on disk, the run waits for the last. A write that the disk refuses becomes a warning,
// and the next checkpoint tries again. The last checkpoint of the run is waited for, and tried
// twice. Where the folder is, and which checkpoints are there, is known to the RunFolder, which may
// outlive this object. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/base/clock.h"
#include "runtime/store/batch_position.h"
#include "tools/train/job_runner.h"
#include "tools/train/progress.h"
#include "tools/train/run_folder.h"
#include "tools/train/trainer.h"

namespace weir::train {

class RunCheckpoints {
 public:
  // All must outlive this object.
  RunCheckpoints(const proto::Job& job, const TrainOptions& options, RunFolder* folder,
                 const Clock* clock, Progress* progress);

  // Takes the folder for this run, and notes the checkpoint with which the run begins, unless an
  // earlier attempt of the run has done so. Call before the ranks are loaded. Errors as of
  // CheckPlaceOfCheckpoints.
  absl::Status Claim();
  // Call once, before all that follows. `runner` must outlive this object. `prepared` is of the
  // run.
  void Open(JobRunner* runner, const PreparedTraining& prepared);
  // Call when the job has another plan from now on.
  void TakePlan(const PreparedTraining& prepared);
  // Call once the ranks are loaded, before the first step: takes memory for checkpoints on the way.
  absl::Status Prepare();

  bool is_wanted() const { return !options_.checkpoint.empty(); }
  // Returns the last checkpoint of the run, from the step on with which this attempt began, that is
  // on disk; nullopt: there is none.
  std::optional<RunFolder::Written> Last() const;
  // Returns whether the checkpoint of `step` is on its way to the disk.
  bool IsUnderWay(int64_t step) const { return begun_step_ == step; }
  // Returns whether a checkpoint of `step` is on disk or on its way there.
  bool Has(int64_t step) const { return IsUnderWay(step) || IsLast(step); }
  // Returns the path of --checkpoint without slashes at its end.
  const std::string& base_path() const { return folder_->path(); }
  // Returns the path of the checkpoint of `step`, which the run has or writes.
  std::string PathOf(int64_t step) const {
    return IsLast(step) ? Last()->path : folder_->PathFor(step);
  }
  // Returns the present path of the checkpoint that the run resumes.
  std::string ResumePath() const { return folder_->PresentPathOf(options_.resume); }
  // Checks that this path still has the checkpoint that the run knows. Errors as of
  // RunFolder::CheckKnown.
  absl::Status CheckResume() const { return folder_->CheckKnown(ResumePath()); }

  // Returns the newest checkpoint that the run has written, and that is still there and no other.
  RunFolder::Found FindWritten() const { return folder_->FindWritten(RunFolder::Depth::kIdentity); }
  // Returns the checkpoint found, if it is from the step on with which this attempt began.
  std::optional<RunFolder::Written> OfThisAttempt(const RunFolder::Found& found) const;
  // Call when the run goes back to the checkpoint found, and not to states in memory. Says which
  // newer ones are passed over. If none of this attempt is left, the run goes back to that with
  // which the attempt began: errors as of CheckResume.
  absl::Status GoBackTo(const RunFolder::Found& found);
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
  // Waits for a checkpoint that is being written, before the run ends or goes back. Then Last() is
  // what the run can go back to.
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
  // Returns what JobRunner::Save does.
  absl::StatusOr<uint32_t> SaveFile(int64_t step, const std::string& path);
  absl::Status BeginFolder(int64_t step);
  // Says so if somebody has renamed or removed the folder.
  void SayRenaming();
  // Takes the outcome of a begun checkpoint; OkStatus and nothing else if it goes on.
  absl::Status EndFolder(JobRunner::Wait wait);
  // Writes the checkpoint of `step` and waits for it.
  absl::Status SaveNow(int64_t step);
  void NoteWritten(int64_t step, const CheckpointWritten& written);
  // Returns OkStatus if `status` is the disk's refusal, or says that another run has the folder.
  // That becomes a warning.
  absl::Status WarnOf(int64_t step, const absl::Status& status);
  // Says which checkpoint is the last good one: of this run, or the one with which it began, which
  // an earlier attempt of the same job has written.
  std::string LastText() const;
  // Returns whether Last() is that of `step`.
  bool IsLast(int64_t step) const;
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
  RunFolder* const folder_;
  const Clock* const clock_;
  Progress* const progress_;
  JobRunner* runner_ = nullptr;
  std::string plan_id_, data_;
  int64_t first_step_ = 0;  // with which this attempt began
  int64_t samples_per_step_ = 1, sample_offset_ = 0;

  int64_t begun_step_ = -1;    // of the checkpoint that is being written; -1: none
  int64_t last_begun_ns_ = 0;  // when the run or its last attempt at a checkpoint began
  bool fails_ = false;         // the last attempt on the way
  bool is_ending_ = false;     // the last checkpoint is written, and no step waits for it
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
