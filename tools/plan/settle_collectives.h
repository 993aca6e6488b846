// Decides what does the sums and gathers of a job that leaves it open (runtime.collectives: AUTO).
// The result is an ordinary job: NCCL from a size of tensors on, or exchanges. The process that a
// user starts decides once, and the processes of the job get the decision with the job, so all of
// them plan the same transfers.
//
// NCCL is for groups of ranks that are all on GPUs. It is taken for tensors of the size from which
// on the cost model prices a gather and a sum of every group along one axis of the mesh lower as an
// operation of the group than as exchanges. The order of NCCL's sums is its own, so a job that
// needs the bits of the CPU says EXCHANGES.
// Thread rule: a pure function.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "proto/job.pb.h"

namespace weir::plan {

struct SettledCollectives {
  // A line for people: "collectives: NCCL for tensors of 64 KiB and more, where groups of dp=4 are
  // cheaper than exchanges; exchanges below". Empty: the job does not leave it open.
  std::string text;
};

// Writes the decision into the job. `obstacle` says why NCCL cannot be used where the job runs;
// empty: it can. Errors: those of the job.
absl::StatusOr<SettledCollectives> SettleCollectives(const compiler::CostModel& costs,
                                                     const std::string& obstacle, proto::Job* job);

}  // namespace weir::plan
