// The part of a worker that generates: the commands of a starter to ranks that are already open.
// Thread rule: the thread that owns the ranks.
#pragma once

#include "absl/status/statusor.h"
#include "proto/worker.pb.h"
#include "tools/train/generation_ranks.h"

namespace weir::fleet {

// kInternal: a plan of another version.
absl::StatusOr<train::GenerationPlan> GenerationPlanOf(const proto::GenerationCommand& command);
proto::GenerationCommand::Plan ToProto(train::GenerationPlan plan);

// Executes every act but open and load. kFailedPrecondition: the plan is not open. kInternal: the
// starter sends inputs of another size than it says.
absl::Status DoGeneration(const proto::GenerationCommand& command, train::GenerationRanks* ranks,
                          proto::WorkerAnswer* answer);

}  // namespace weir::fleet
