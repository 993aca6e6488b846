// A job whose ranks are spread over worker processes. A request of the trainer becomes commands to
// all workers, and the answers of the workers become one answer.
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/update_rate.h"
#include "tools/console/console.h"
#include "tools/fleet/buddy_copies.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/fleet_checkpoint.h"
#include "tools/fleet/input_watch.h"
#include "tools/fleet/recovery_plan.h"
#include "tools/train/job_runner.h"

namespace weir::fleet {

class FleetRunner final : public train::JobRunner {
 public:
  // Compiles the job, spreads the ranks evenly over options.processes and starts the processes.
  // `*fleet` is set as soon as there may be processes, even if Open returns an error: the fleet
  // reports the failure, and must outlive the runner.
  static absl::StatusOr<std::unique_ptr<train::JobRunner>> Open(
      const FleetOptions& options, const proto::Job& job,
      const train::RunnerOptions& runner_options, std::unique_ptr<Fleet>* fleet);

  const train::RunnerFacts& facts() const override { return facts_; }
  absl::Status Load(const train::LoadOrder& order) override;
  absl::StatusOr<std::map<int64_t, train::StepMetrics>> RunSteps(int64_t steps) override;
  int64_t StepsToNextCopy() const override;
  train::CopyCosts TakeCopyCosts() override { return buddies_.TakeCosts(); }
  absl::StatusOr<std::map<int64_t, train::StepMetrics>> Evaluate() override;
  absl::StatusOr<uint32_t> Save(const train::SaveOrder& order) override;
  absl::Status PrepareCheckpoints() override { return checkpoint_.Prepare(); }
  absl::Status BeginCheckpoint(const train::CheckpointOrder& order) override {
    return checkpoint_.Begin(order, facts_.states);
  }
  absl::StatusOr<std::optional<train::CheckpointWritten>> EndCheckpoint(Wait wait) override;
  absl::StatusOr<std::vector<actors::NonfiniteFinding>> InspectStep(int64_t as_step) override;
  absl::StatusOr<std::vector<train::ShardSum>> SumWeights() override;
  std::vector<actors::RankWorkReport> Work() const override { return work_; }
  absl::Status WriteTrace(const std::string& path) override;
  absl::StatusOr<train::Recovery> Recover(const train::RecoveryOrder& order) override;
  absl::Status PrepareToGrow() override;
  bool StatesOutlive(RankId rank) const override;
  absl::Status Replace(RankId rank, const std::string& evidence) override;

 private:
  FleetRunner(Fleet* fleet, const FleetOptions& options, const train::RunnerOptions& runner_options)
      : fleet_(fleet), options_(options), runner_options_(runner_options), checkpoint_(fleet) {}
  // Takes the job of the ranks that are to be opened, and makes the commands that open them.
  void TakeJob(const proto::Job& job, const train::PreparedTraining& prepared);
  absl::Status TakeFacts(const IdVector<WorkerId, proto::WorkerAnswer>& answers);
  absl::Status LetWorkersWrite(const train::SaveOrder& order, store::SafetensorsWriter* writer);
  absl::Status CollectShards(const train::SaveOrder& order, store::SafetensorsWriter* writer);

  absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> RunAfterCopies(int64_t steps, bool keeps);
  void TakeWork(const IdVector<WorkerId, proto::WorkerAnswer>& answers);

  // Says what a loss will cost from now on, unless that was said.
  void SayLossOutlook();
  LoneShardsOf ShardsOfOneProcess() const;
  // The parts of a recovery (fleet_runner_recovery.cc). Workers keep copies of their states from
  // time to time, so that the loss of another worker costs few steps.
  absl::Status TakeShards(const IdVector<WorkerId, proto::WorkerAnswer>& answers);
  bool KeepIsDue() const;
  void NoteKept(const IdVector<WorkerId, proto::WorkerAnswer>& answers);
  // Asks the workers which states they have, and plans. Also takes into `reported` what steps have
  // reported that are done beyond steps_done_. Unless the mesh stays, other ranks with other shards
  // follow.
  using Mesh = train::RecoveryOrder::Mesh;
  absl::StatusOr<RecoveryPlan> PlanFromMemory(Mesh mesh,
                                              std::map<int64_t, train::StepMetrics>* reported);
  absl::StatusOr<IdVector<RankId, std::vector<HeldState>>> ShardsFrom(
      const IdVector<WorkerId, proto::WorkerAnswer>& answers) const;
  // Checks that the input files of this machine that the ranks are about to read again are those
  // with which the run has begun.
  absl::Status CheckInputsHere(const std::vector<std::string>& files) const;
  // Does so on the host of each process of the job, before others come back.
  absl::Status CheckInputsOfLiving() const;
  // Returns the files that each recovery reads.
  std::vector<std::string> DataFiles() const;
  absl::StatusOr<IdVector<WorkerId, proto::WorkerAnswer>> OpenAgain(
      Mesh mesh, const RecoveryPlan& plan, const train::Recovery& recovery,
      const std::vector<std::string>& files);
  absl::StatusOr<train::Recovery> GoOn(const train::RecoveryOrder& order,
                                       const std::vector<WorkerId>& anew, int64_t fenced_before);
  absl::Status MoveStates(const std::vector<Transfer>& transfers);
  absl::Status MoveOwnStates(const std::vector<Transfer>& transfers);
  // Fills the shards of another mesh with the states of the plan, if it has some, and lets workers
  // without ranks leave. Adds the transfers to the plan.
  absl::Status EnterMesh(IdVector<RankId, std::vector<HeldState>> shards_of, RecoveryPlan* plan);
  // Lets the buddies have the states of the last step while all ranks rest. Waits for a minute at
  // most: then the copies before count.
  absl::Status LetBuddiesHaveStep();
  WorkerId WorkerOf(RankId rank) const;
  std::string GivenText(const RecoveryPlan& plan, Transfer::Source source) const;
  std::vector<std::string> NamesOf(const std::vector<WorkerId>& workers) const;
  std::string RecoveryText(Mesh mesh, const RecoveryPlan& plan, int64_t fenced) const;

  // The copies of the states, and the pace at which they are made where none go to buddies.
  struct Keeping {
    bool is_on = false;   // workers keep copies
    bool is_due = true;   // before the next steps
    int64_t kept_ns = 0;  // when the last copies were made
    int64_t took_ns = 0;  // how long the slowest of them took
    int64_t bytes = 0;    // of the largest; 0: none was made yet
  };

  Fleet* const fleet_;
  const FleetOptions options_;
  train::RunnerOptions runner_options_;  // without the preparation
  proto::Job job_;
  const MonotonicClock clock_{};
  console::Console* console_ = nullptr;
  UpdateRate updates_;
  int64_t steps_done_ = 0;
  IdVector<WorkerId, proto::WorkerCommand> open_commands_;  // of the first epoch of the mesh
  // Where states are in memory, and the number of that mesh (OpenCommand.layout). While the mesh
  // changes they are of the old one. Without shards nothing recovers.
  StateLayout in_memory_;
  uint32_t layout_ = 0;
  IdVector<WorkerId, WorkerStanding> standings_;  // as of the last answers
  std::set<WorkerId> dismissed_;  // since the last step that is done, by a smaller mesh
  bool is_changing_ = false;      // a change of the mesh has begun, and not ended
  std::set<std::string> metrics_of_every_step_;  // names; empty: no step has reported
  Keeping keeping_;
  BuddyCopies buddies_;
  std::string outlook_;  // the last that was said
  train::RunnerFacts facts_;
  FleetCheckpoint checkpoint_;
  std::vector<actors::RankWorkReport> work_;  // as of the last run
  // Workers may still be at work, and answer to nothing but the end of the job.
  bool failed_ = false;
};

}  // namespace weir::fleet
