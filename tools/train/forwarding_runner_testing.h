// A JobRunner that hands every call to another runner. A test derives a runner from it, and says
// what the runner does otherwise. Thread rule: as job_runner.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/train/job_runner.h"

namespace weir::train {

class ForwardingRunner : public JobRunner {
 public:
  explicit ForwardingRunner(std::unique_ptr<JobRunner> runner) : runner_(std::move(runner)) {}

  const RunnerFacts& facts() const override { return runner_->facts(); }
  absl::Status Load(const LoadOrder& order) override { return runner_->Load(order); }
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    return runner_->RunSteps(steps);
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() override { return runner_->Evaluate(); }
  absl::StatusOr<uint32_t> Save(const SaveOrder& order) override { return runner_->Save(order); }
  absl::Status PrepareCheckpoints() override { return runner_->PrepareCheckpoints(); }
  absl::Status BeginCheckpoint(const CheckpointOrder& order) override {
    return runner_->BeginCheckpoint(order);
  }
  absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait wait) override {
    return runner_->EndCheckpoint(wait);
  }
  absl::StatusOr<std::vector<actors::NonfiniteFinding>> InspectStep(int64_t as_step) override {
    return runner_->InspectStep(as_step);
  }
  absl::StatusOr<std::vector<ShardSum>> SumWeights() override { return runner_->SumWeights(); }
  std::vector<actors::RankWorkReport> Work() const override { return runner_->Work(); }
  absl::Status WriteTrace(const std::string& path) override { return runner_->WriteTrace(path); }

 private:
  const std::unique_ptr<JobRunner> runner_;
};

}  // namespace weir::train
