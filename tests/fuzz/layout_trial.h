// Trains a generated job for a few steps, on its mesh and on one device. The losses must agree.
// Thread rule: one thread; each run uses its own threads.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir::fuzz {

// Returns "" if both runs agree, or a code if the job is refused on its mesh or on one device. An
// error is a fault of Weir.
absl::StatusOr<std::string> TrainOnMeshAndAlone(const proto::Job& job);

}  // namespace weir::fuzz
