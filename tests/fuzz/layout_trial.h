// Trains a generated job for a few steps, on its mesh and on one device: the losses must agree.
// Thread rule: one thread; a run of its own uses threads of its own.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace weir {

// "" if both runs agree; a code if the job is refused, on its mesh or on one device. An error is a
// fault of ours.
absl::StatusOr<std::string> TrainOnMeshAndAlone(const Job& job);

}  // namespace weir
