// The start of every job in a fleet, whatever the job does: its ranks are spread, its processes
// begin, and its files are compared.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/fleet/fleet.h"

namespace weir::fleet {

// Spreads the ranks evenly over the processes and hosts of `options`, and launches the processes.
// `bytes_of_rank` is the memory that each rank needs. `*fleet` is set as soon as there may be
// processes, even if an error is returned: the fleet reports the failure.
absl::Status LaunchFleet(const FleetOptions& options, int num_ranks,
                         const IdVector<RankId, int64_t>& bytes_of_rank,
                         std::unique_ptr<Fleet>* fleet);

// Returns the command that opens the ranks of a worker for a plan with the id `plan_id`. The
// command names the input files if the workers may have no files in common with this process.
proto::OpenCommand OpenCommandFor(const Fleet& fleet, WorkerId worker, const FleetOptions& options,
                                  const proto::Job& job, int threads_per_device,
                                  const std::string& plan_id);

// Writes into the command what depends on the worker's host: the paths of the input files, and the
// number of ranks there. All input files of the fleet are named (NameInputs).
void SetPlace(const Fleet& fleet, WorkerId worker, const FleetOptions& options,
              const proto::Job& job, proto::OpenCommand* open);

// Lets the command ask for the fingerprints of these input files in place of others, if the workers
// may have no files in common with this process.
void NameInputs(const Fleet& fleet, WorkerId worker, const std::vector<std::string>& files,
                google::protobuf::RepeatedPtrField<std::string>* names);

// Compares these input files on the hosts, as the answers to the commands that name them tell, with
// those of this host: as they were when the run began if `inputs` knows them, else as they are now.
// An answer without files has none to compare. `inputs` may be null. Rejected (W0883): a host has
// another file.
absl::Status CheckInputs(const Fleet& fleet, const InputWatch* inputs,
                         const std::vector<std::string>& input_files,
                         const IdVector<WorkerId, proto::WorkerAnswer>& answers);

// Compares what the kernels of the workers depend on, as the answers tell. Rejected (W0844): two
// workers differ, so that replicas might differ in their bits, and the job does not allow that
// (runtime.mixed_processors). Kernels of GPUs do not depend on processors.
absl::Status CheckProcessors(const Fleet& fleet, const proto::Job& job,
                             const IdVector<WorkerId, proto::WorkerAnswer>& answers);

// The processor of a worker.
struct ProcessorOfWorker {
  std::string where;    // "host b"
  std::string kernels;  // what its kernels depend on
};
// Returns the error of the first processor that differs from the first one.
absl::Status CheckSameProcessors(const std::vector<ProcessorOfWorker>& processors);

}  // namespace weir::fleet
