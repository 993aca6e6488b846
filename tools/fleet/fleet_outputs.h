// A job that runs its model for its results, with its ranks spread over worker processes. A request
// becomes commands to all workers.
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/fleet/fleet.h"
#include "tools/train/output_runner.h"

namespace weir::fleet {

class FleetOutputs final : public train::OutputRunner {
 public:
  // Open starts the processes. `*fleet` is set as soon as there may be processes, even if Open
  // returns an error: the fleet reports the failure, and must outlive the runner. `threads` of each
  // device; 0: the cores of a host, shared evenly.
  FleetOutputs(const FleetOptions& options, int threads, std::unique_ptr<Fleet>* fleet)
      : options_(options), threads_(threads), fleet_(fleet) {}

  // kInvalidArgument (W0955): the job's collectives are for ranks in one process.
  absl::StatusOr<std::shared_ptr<const compiler::LogicalPlan>> Open(
      const train::OutputOrder& order) override;
  absl::Status RunStep() override;
  // Asks the first worker that has the output.
  absl::StatusOr<std::string> Read(const std::string& output, int64_t begin,
                                   int64_t bytes) override;

 private:
  absl::Status Load(const train::OutputOrder& order,
                    const IdVector<WorkerId, proto::WorkerAnswer>& answers);

  const FleetOptions options_;
  const int threads_;
  std::unique_ptr<Fleet>* const fleet_;        // null in it before Open
  std::map<std::string, WorkerId> holder_of_;  // by output: the first worker that has it
};

}  // namespace weir::fleet
