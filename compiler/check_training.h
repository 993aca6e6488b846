// Whether the parts of a job beside its graph make sense: how to train, how to run.
// Not whether they suit the graph; that is for importing it.
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"
#include "sbp/mesh.h"

namespace weir::compiler {

// Bounds of Runtime, far above what helps.
inline constexpr int64_t kRegisterSlotsMax = 4096;
inline constexpr int64_t kThreadsPerDeviceMax = 1024;

// kInvalidArgument (W0440 to W0446) names the field. What only training needs is looked at
// only if `mode` trains.
absl::Status CheckTraining(const Job& job, const Mesh& stage_mesh, PlanMode mode);

}  // namespace weir::compiler
