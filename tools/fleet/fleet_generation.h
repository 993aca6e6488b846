// A job that generates, with its ranks spread over worker processes. A request of the generator
// becomes commands to all workers.
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/fleet/fleet.h"
#include "tools/train/generation_runner.h"

namespace weir::fleet {

class FleetGeneration final : public train::GenerationRunner {
 public:
  // Open of the first plan starts the processes. `*fleet` is set as soon as there may be processes,
  // even if Open returns an error: the fleet reports the failure, and must outlive the runner.
  // `threads` of each device; 0: the cores of a host, shared evenly.
  FleetGeneration(const FleetOptions& options, int threads, std::unique_ptr<Fleet>* fleet)
      : options_(options), threads_(threads), fleet_(fleet) {}

  // kInvalidArgument (W0955): the job's collectives are for ranks in one process.
  absl::Status Open(train::GenerationPlan plan, const train::GenerationOrder& order) override;
  absl::Status RunStep(train::GenerationPlan plan, const train::TokenRows& tokens) override;
  // Asks the first worker that has the logits, for some rows at a time.
  absl::StatusOr<std::vector<std::vector<float>>> Logits(train::GenerationPlan plan,
                                                         const std::vector<int64_t>& rows) override;
  std::vector<int64_t> RowEnds(train::GenerationPlan plan) const override {
    return row_ends_.at(plan);
  }
  absl::StatusOr<bool> CarryCache() override;
  absl::Status Close(train::GenerationPlan plan) override;

 private:
  absl::Status Load(train::GenerationPlan plan, const train::GenerationOrder& order,
                    const IdVector<WorkerId, proto::WorkerAnswer>& answers);

  const FleetOptions options_;
  const int threads_;
  std::unique_ptr<Fleet>* const fleet_;                   // null in it before the first Open
  std::map<train::GenerationPlan, WorkerId> has_logits_;  // the first worker that has them
  std::map<train::GenerationPlan, std::vector<int64_t>> row_ends_;
};

}  // namespace weir::fleet
