// The ranks of a job that this process holds, ready to work: plans lowered for them,
// sessions for training and for evaluation, the data, and what they report. All ranks when a
// job runs in one process; some of them in a worker process, with a network to the others.
//
//   Open -> { Load | RunSteps | Evaluate | SaveShards | WriteTrace }*
//
// With several groups, each call is made on all of them at once and returns when all are done.
// Thread rule: one thread; Stop and Progress from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/train/evaluator.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/metric_log.h"
#include "tools/train/on_nonfinite.h"
#include "tools/train/session_states.h"

namespace weir {

// What a network of the group carries; tells its messages apart from those of the other.
enum class GroupRole : uint16_t { kTraining, kEvaluation };

struct PreparedTraining;  // prepare_training.h

struct RankGroupOptions {
  std::vector<int> ranks;      // empty: all
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  int64_t first_step = 0;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  std::string plan_id;  // what must come out of compiling; empty: anything
  const PreparedTraining* prepared =
      nullptr;         // with all ranks: what was compiled and opened before; null: nothing
  uint32_t epoch = 1;  // of the plan; messages carry it
  // Makes the network of a role; null: all ranks are in this process.
  std::function<NetworkFactory(GroupRole role)> network;
};

class RankGroup {
 public:
  static absl::StatusOr<std::unique_ptr<RankGroup>> Open(const Job& job,
                                                         const RankGroupOptions& options);

  const LogicalPlan& plan() const { return *training_.plan; }
  const Dataset& dataset() const { return *dataset_; }
  int threads_per_device() const { return training_.threads_per_device; }
  int64_t evaluation_batches() const { return evaluation_batches_; }  // 0: nothing is held out
  int64_t bytes_per_device() const;  // the most of any rank of this group, its evaluation included
  // The states of this group's ranks.
  std::map<std::string, StateType> States(StateSet set) const {
    return StatesOf(*training_.session, set);
  }

  // Each rank its shards, from a file that has them all (CheckStates).
  absl::Status Load(const std::string& path, StateSet set);
  // What the ranks of this group reported, by step.
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps);
  // The present weights on the held-out data; by batch. Precondition: evaluation_batches() > 0.
  // After an error there is no more evaluation: this group has left its network, so that the others
  // see an end too. Training can go on.
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate();
  // Writes the shards that these ranks own into the file that a SafetensorsWriter has begun, and
  // that will be at `path`.
  absl::StatusOr<std::map<std::string, SavedPart>> SaveShards(StateSet set,
                                                              const std::string& temporary_path,
                                                              const std::string& path);
  // One more step that repeats step `as_step`: where values are first not finite
  // (Session::InspectStep).
  absl::StatusOr<std::vector<NonfiniteFinding>> InspectStep(int64_t as_step);

  // Any thread: ends what runs, with `reason`; the group is then for DescribeStall only.
  void Stop(const absl::Status& reason);
  SessionProgress Progress() const;
  std::string DescribeStall() const;
  Session& session() { return *training_.session; }

 private:
  RankGroup() = default;

  std::shared_ptr<const Dataset> dataset_;
  std::unique_ptr<DatasetFeed> feed_;
  MetricLog log_;
  JobSession training_;  // after what it feeds from and reports to
  int64_t evaluation_batches_ = 0;
  mutable std::mutex
      mutex_;  // guards the making and the end of evaluator_ against Stop and Progress
  std::unique_ptr<Evaluator> evaluator_;
};

}  // namespace weir
