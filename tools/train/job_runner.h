// A JobRunner holds the ranks of a job and executes the trainer's requests on all of them. The
// ranks are in this process (LocalRunner) or in worker processes (FleetRunner,
// tools/fleet/fleet_runner.h). The trainer does not know which, and the answers do not depend on
// it.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/train/checkpoint_commit.h"
#include "tools/train/rank_group.h"
#include "tools/train/replica_check.h"

namespace weir::train {

// Facts that are known once the ranks are loaded.
struct RunnerFacts {
  std::string data;  // the data that is learnt, for people
  int64_t num_ranks = 1;
  std::string mesh;  // text form
  int threads_per_device = 1;
  int64_t bytes_per_device = 0;
  std::map<std::string, StateType> states;  // of all ranks, optimiser states too
  int64_t evaluation_batches = 0;           // 0: nothing is held out
  std::string where;                        // "" or "in 2 processes", for people
};

// Writes a trace to `path`, completely or not at all. CannotWrite (runtime/store/pending_file.h) if
// the file cannot be written.
absl::Status WriteTraceFile(const std::string& path, const std::string& trace);

struct PreparedTraining;  // prepare_training.h

struct RunnerOptions {
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  int64_t first_step = 0;
  int64_t sample_offset = 0;  // of the training data (store::BatchPosition)
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  // The result of earlier compiling and opening. Null: the runner does both.
  const PreparedTraining* prepared = nullptr;
  live::TellDoing tell;  // of ranks that are loaded; null: nobody is told
};

// The states from files with which a run can go on after it has lost ranks.
struct RecoveryOrder {
  int64_t step = 0;  // steps done in these states
  // kStays: lost processes start anew. kShrinks: they leave, and the others go on with fewer ranks.
  // kGrows: nobody was lost, all ranks rest after the same step, and processes that have left start
  // anew.
  enum class Mesh : uint8_t { kStays, kShrinks, kGrows } mesh = Mesh::kStays;
  // Unless the mesh stays: the job from now on, and its preparation.
  const proto::Job* job = nullptr;
  const PreparedTraining* prepared = nullptr;
};
// Where a run goes on.
struct Recovery {
  int64_t step = 0;         // steps done
  bool has_states = false;  // false: the states of the order must be loaded
  std::string text;         // where the states come from, for people
  // What the steps have reported that all ranks had done, though RunSteps failed; empty unless
  // `step` is later than the last step of a RunSteps that did not fail.
  std::map<int64_t, StepMetrics> reported;
};

// What copies of states in the memory of other processes have cost (runtime.buddy_every). A value
// that is absent has nothing new.
struct CopyCosts {
  std::optional<double> stall_seconds;  // the time that the steps waited
  std::optional<double> seconds;        // from the copy until all buddies had it, beside the steps
  std::optional<int64_t> bytes;         // that travelled, of all processes
};

// Returns whether nothing more can be done with the ranks after `status`.
bool RanksAreGone(const absl::Status& status);

// After an error of kUnavailable, kAborted, kDeadlineExceeded or kCancelled the ranks are gone,
// unless Recover brings them back.
// After any other error of Save, WriteTrace or Evaluate the ranks are as before, except that a
// failed evaluation allows no further evaluation.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  virtual const RunnerFacts& facts() const = 0;
  // Reads every state of order.set from a file that fits the states (checked before with
  // CheckCheckpoint, or found by MapWeights).
  virtual absl::Status Load(const LoadOrder& order) = 0;
  // Runs `steps` steps and returns the reports of each step.
  virtual absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) = 0;
  // Returns the number of steps, from 1 on, after which the runner may copy states to other
  // processes before it runs more. A call of RunSteps should run no more steps.
  virtual int64_t StepsToNextCopy() const { return std::numeric_limits<int64_t>::max(); }
  // Returns what these copies have cost since the last call.
  virtual CopyCosts TakeCopyCosts() { return {}; }
  // Evaluates the present weights on the held-out data and returns the reports of each batch.
  virtual absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() = 0;
  // Writes every state of order.set, atomically, and returns the sum of the header that it has
  // written (store::SafetensorsWriter::header_sum): others may replace the file at once. Errors:
  // CannotWrite (pending_file.h), or W0963 as in NoteParts.
  virtual absl::StatusOr<uint32_t> Save(const SaveOrder& order) = 0;
  // Takes the memory of the copies of BeginCheckpoint ahead, beside the next steps. May do nothing:
  // then the first checkpoint takes it. Errors: none but that the ranks are gone.
  virtual absl::Status PrepareCheckpoints() { return absl::OkStatus(); }
  // Begins to write a checkpoint into a folder: copies every state into memory, and returns when
  // the copies are made. Processes write the copies beside the next steps. A checkpoint begun
  // before and not ended is given up. Errors: CannotWrite.
  virtual absl::Status BeginCheckpoint(const CheckpointOrder& order) = 0;
  // Returns the outcome of the checkpoint begun; nullopt: it goes on. kYes waits for the outcome
  // and lifts the order's limit of bytes in a second; kPaced waits a moment and keeps the limit.
  // Errors: CannotWrite, or W0963 as in NoteParts; the checkpoint is then given up.
  enum class Wait : uint8_t { kNo, kPaced, kYes };
  virtual absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait wait) = 0;
  // Runs one more step that repeats step `as_step`. Returns the first values that are not finite,
  // on each rank that has any.
  virtual absl::StatusOr<std::vector<actors::NonfiniteFinding>> InspectStep(int64_t as_step) = 0;
  // Returns the checksums of all weights on all ranks.
  virtual absl::StatusOr<std::vector<ShardSum>> SumWeights() = 0;
  // Returns the work of each rank since the job began, as of the end of the last RunSteps. Ranks
  // without an account are left out.
  virtual std::vector<actors::RankWorkReport> Work() const = 0;
  // Writes one Perfetto file of all ranks, even after RunSteps has failed. Errors: those of
  // WriteTraceFile, or the reason why ranks cannot report; kFailedPrecondition if the code that
  // ends the job writes the trace.
  virtual absl::Status WriteTrace(const std::string& path) = 0;
  // Brings the ranks back after some of them were lost: from the last step whose states are still
  // in memory, or, if the order has later ones or memory has not all of them, ready to load the
  // states of the order. kUnimplemented: these ranks do not come back. With Mesh::kGrows nothing
  // has changed after an error, unless the ranks are gone. If the ranks are gone after an error,
  // the next call may help.
  virtual absl::StatusOr<Recovery> Recover(const RecoveryOrder& order);
  // Makes ready for a Recover with Mesh::kGrows, while all ranks rest: the states of the last step
  // then outlive a process that is lost meanwhile. kResourceExhausted: a process has no memory for
  // them, and the ranks go on as before. kUnimplemented: so do ranks that cannot do it.
  virtual absl::Status PrepareToGrow();
  // Gives up the process of a rank that is slow, as if the process had failed; `evidence` is for
  // people. Returns kUnavailable: the ranks are gone until Recover brings them back, with a new
  // process for that rank. kUnimplemented: these ranks do not come back, and go on as before.
  virtual absl::Status Replace(RankId rank, const std::string& evidence);
  // Returns whether the states of the steps that are done outlive the process of this rank: Replace
  // then loses no step.
  virtual bool StatesOutlive(RankId /*rank*/) const { return true; }
};

// What people read after "rank 1" if StatesOutlive is false.
inline constexpr char kKeepsItsProcess[] =
    " keeps its process: no other process has its states (--buddy-every N lets a buddy keep them, "
    "but not with gradient_delay)";

class LocalRunner final : public JobRunner {
 public:
  static absl::StatusOr<std::unique_ptr<JobRunner>> Open(const proto::Job& job,
                                                         const RunnerOptions& options);

  const RunnerFacts& facts() const override { return facts_; }
  absl::Status Load(const LoadOrder& order) override { return group_->Load(order); }
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    return group_->RunSteps(steps);
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() override { return group_->Evaluate(); }
  absl::StatusOr<uint32_t> Save(const SaveOrder& order) override;
  absl::Status PrepareCheckpoints() override {
    group_->PrepareShards();
    return absl::OkStatus();
  }
  absl::Status BeginCheckpoint(const CheckpointOrder& order) override;
  absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait wait) override;
  absl::StatusOr<std::vector<actors::NonfiniteFinding>> InspectStep(int64_t as_step) override {
    return group_->InspectStep(as_step);
  }
  absl::StatusOr<std::vector<ShardSum>> SumWeights() override {
    return train::SumWeights(group_->session());
  }
  std::vector<actors::RankWorkReport> Work() const override { return group_->session().Work(); }
  absl::Status WriteTrace(const std::string& path) override;

 private:
  LocalRunner() = default;
  CheckpointCommit commit_;  // outlives the group, which may still write into its folder
  std::unique_ptr<RankGroup> group_;
  RunnerFacts facts_;
};

}  // namespace weir::train
