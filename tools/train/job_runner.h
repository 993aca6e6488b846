// Whoever holds the ranks of a job and does what the trainer asks of all of them: this
// process (LocalRunner), or worker processes (FleetRunner, tools/train/fleet_runner.h). The
// trainer does not know which, and the answer does not depend on it.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/train/rank_group.h"

namespace weir {

// Known once the ranks are loaded.
struct RunnerFacts {
  std::string data;  // what is learnt, for people
  int64_t num_ranks = 1;
  std::string mesh;  // text form
  int threads_per_device = 1;
  int64_t bytes_per_device = 0;
  std::map<std::string, StateType> states;  // of all ranks, optimiser states too
  int64_t evaluation_batches = 0;           // 0: nothing is held out
  std::string where;                        // "" or "in 2 processes", for people
};

// Puts a trace at `path`, as a whole or not at all. kNotFound (W0075) if that cannot be done.
absl::Status WriteTraceFile(const std::string& path, const std::string& trace);

struct PreparedTraining;  // prepare_training.h

struct RunnerOptions {
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  int64_t first_step = 0;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  const PreparedTraining* prepared =
      nullptr;  // what was compiled and opened before; null: the runner does so
};

// After an error of kUnavailable, kAborted, kDeadlineExceeded or kCancelled the ranks are gone;
// after any other of Save, WriteTrace and Evaluate they are as before, but that there is no more
// evaluation after one that failed.
class JobRunner {
 public:
  virtual ~JobRunner() = default;
  virtual const RunnerFacts& facts() const = 0;
  // Reads every state of `set` from a file that fits them (checked before, CheckStates).
  virtual absl::Status Load(const std::string& path, StateSet set) = 0;
  // What was reported of each step.
  virtual absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) = 0;
  // The present weights on what is held out; what was reported of each batch.
  virtual absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() = 0;
  // Every state of order.set, atomically. CannotWrite (pending_file.h), or W0963 as of NoteParts.
  virtual absl::Status Save(const SaveOrder& order) = 0;
  // One more step that repeats step `as_step`: where values are first not finite, on each rank that
  // has any.
  virtual absl::StatusOr<std::vector<NonfiniteFinding>> InspectStep(int64_t as_step) = 0;
  // What each rank has done since the job began, as of the end of the last RunSteps. Ranks without
  // an account are left out.
  virtual std::vector<RankWorkReport> Work() const = 0;
  // One Perfetto file of all ranks, also after RunSteps has failed. Errors of WriteTraceFile, or
  // what kept the ranks from telling; kFailedPrecondition if whoever ends the job writes the trace.
  virtual absl::Status WriteTrace(const std::string& path) = 0;
};

class LocalRunner final : public JobRunner {
 public:
  static absl::StatusOr<std::unique_ptr<JobRunner>> Open(const Job& job,
                                                         const RunnerOptions& options);

  const RunnerFacts& facts() const override { return facts_; }
  absl::Status Load(const std::string& path, StateSet set) override {
    return group_->Load(path, set);
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    return group_->RunSteps(steps);
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() override { return group_->Evaluate(); }
  absl::Status Save(const SaveOrder& order) override;
  absl::StatusOr<std::vector<NonfiniteFinding>> InspectStep(int64_t as_step) override {
    return group_->InspectStep(as_step);
  }
  std::vector<RankWorkReport> Work() const override { return group_->session().Work(); }
  absl::Status WriteTrace(const std::string& path) override;

 private:
  LocalRunner() = default;
  std::unique_ptr<RankGroup> group_;
  RunnerFacts facts_;
};

}  // namespace weir
