// The ranks of a job that this process holds, ready to work: their lowered plans, the sessions for
// training and evaluation, the data, and the reports. A job in one process has all ranks in one
// group. A worker process has some of the ranks, with a network to the others.
//
//   Open -> { Load | RunSteps | Evaluate | SaveShards | WriteTrace }*
//
// With several groups, each call runs on all groups at once and returns when all are done.
// Thread rule: one thread; Stop and Progress from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "tools/train/evaluator.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/loaded_ranks.h"
#include "tools/train/metric_log.h"
#include "tools/train/on_nonfinite.h"
#include "tools/train/session_states.h"
#include "tools/train/shard_save.h"

namespace weir::train {

// The purpose of a network of the group. The role tells its messages apart from those of the other
// network.
enum class GroupRole : uint16_t { kTraining, kEvaluation };

struct PreparedTraining;  // prepare_training.h

struct RankGroupOptions {
  std::vector<RankId> ranks;   // empty: all
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  int64_t devices_here = 0;    // as in JobSessionOptions
  int64_t first_step = 0;
  int64_t sample_offset = 0;  // of the training data (store::BatchPosition)
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  std::string plan_id;  // required result of compiling; empty: any plan
  // The result of earlier compiling and opening, for a group of all ranks or for these ranks (data
  // and plans alone count). Null: nothing is prepared.
  const PreparedTraining* prepared = nullptr;
  // Solved by another process for the same job; null: Open solves them.
  std::shared_ptr<const compiler::JobRhythm> rhythm, evaluation_rhythm;
  std::optional<proto::Data> data;  // with paths of this host; absent: as the job says
  uint32_t epoch = 1;               // of the plan; messages carry the epoch
  // Makes the network of a role; null: all ranks are in this process.
  std::function<NetworkFactory(GroupRole role)> network;
  transport::Exchange* exchange = nullptr;  // of the job's processes; outlives the group
  live::TellDoing tell;                     // of passes and ranks; null: nobody is told
};

class RankGroup final : public LoadedRanks {
 public:
  static absl::StatusOr<std::unique_ptr<RankGroup>> Open(const proto::Job& job,
                                                         const RankGroupOptions& options);

  const compiler::LogicalPlan& plan() const { return *training_.plan; }
  // Returns the data and the plans, with which another group of the same job opens without
  // compiling. The other group may outlive this one.
  PreparedTraining Prepared() const;
  const store::Dataset& dataset() const { return *dataset_; }
  int threads_per_device() const { return training_.threads_per_device; }
  int64_t evaluation_batches() const { return evaluation_batches_; }  // 0: nothing is held out
  int64_t bytes_per_device() const;  // the most of any rank of this group, with its evaluation
  // Returns the states of this group's ranks.
  std::map<std::string, StateType> States(StateSet set) const {
    return StatesOf(*training_.session, set);
  }

  // Loads each rank's shards from a file that has all shards (CheckCheckpoint, or MapWeights).
  absl::Status Load(const LoadOrder& order);
  // Runs `steps` steps and returns the reports of this group's ranks, by step.
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps);
  // Evaluates the present weights on the held-out data, or their averages if the job says so and an
  // update has set them, and returns reports by batch. Precondition:
  // evaluation_batches() > 0. After an error no further evaluation is possible: this group has left
  // its network, so that the other groups see an end too. Training can continue.
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate();
  // Writes the shards that these ranks own into the file that a SafetensorsWriter has begun. The
  // final name of the file is `path`.
  absl::StatusOr<std::map<std::string, SavedPart>> SaveShards(StateSet set,
                                                              const std::string& temporary_path,
                                                              const std::string& path);
  // Begins to save the shards of these ranks into a folder (ShardSave).
  absl::Status BeginShards(const ShardSaveOrder& order) {
    return shards_.Begin(*training_.session, *training_.plan, order);
  }
  // Takes the memory for that ahead (ShardSave).
  void PrepareShards() { shards_.Prepare(*training_.session, *training_.plan); }
  ShardSave& shards() { return shards_; }
  // Runs one more step that repeats step `as_step`, and returns the first values that are not
  // finite (Session::InspectStep).
  absl::StatusOr<std::vector<actors::NonfiniteFinding>> InspectStep(int64_t as_step);

  // Any thread: ends the running work with `reason`. Afterwards the group only serves
  // DescribeStall and ListWaits, when the work has ended.
  void Stop(const absl::Status& reason) override;
  actors::SessionProgress Progress() const override;
  std::string DescribeStall() const override;
  std::vector<actors::Wait> ListWaits() const override;  // of training and evaluation
  actors::Session& session() { return *training_.session; }

 private:
  RankGroup() = default;
  // Returns the evaluator; null if there is none. Only the group's thread may use the result,
  // because that thread alone ends the evaluator.
  Evaluator* evaluator() const ABSL_LOCKS_EXCLUDED(mutex_);

  std::shared_ptr<const store::Dataset> dataset_;
  std::unique_ptr<DatasetFeed> feed_;
  MetricLog log_;
  JobSession training_;  // depends on the feed and the log above
  const MonotonicClock clock_{};
  int64_t evaluation_batches_ = 0;
  proto::Job settings_;    // the field `training` of the job, and nothing else
  int64_t next_step_ = 0;  // of the training
  std::shared_ptr<const compiler::LogicalPlan> evaluation_plan_;  // null: nothing is held out
  // The group's thread makes and ends the evaluator; Stop and Progress use it under the mutex.
  mutable Mutex mutex_;
  std::unique_ptr<Evaluator> evaluator_ ABSL_GUARDED_BY(mutex_);
  ShardSave shards_{&clock_};
};

}  // namespace weir::train
