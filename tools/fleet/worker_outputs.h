// The part of a worker that runs a model for its results: the commands of a starter to ranks that
// are already open.
// Thread rule: the thread that owns the ranks.
#pragma once

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "tools/train/output_ranks.h"

namespace weir::fleet {

// Opens the data of the command's job, as this host has them, and the ranks. The session has all
// that depends on the worker. Tells what the ranks hold.
absl::Status OpenOutputs(const proto::OutputsCommand& command, train::JobSessionOptions session,
                         train::OutputRanks* ranks, proto::WorkerAnswer* answer);

// Executes every act but open and load.
absl::Status DoOutputs(const proto::OutputsCommand& command, train::OutputRanks* ranks,
                       proto::WorkerAnswer* answer);

}  // namespace weir::fleet
