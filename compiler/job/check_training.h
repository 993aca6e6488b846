// Checks the parts of a job beside its graph: how to train, and how to run. import_graph.h checks
// whether these parts suit the graph.
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "compiler/ir/logical_plan.h"
#include "proto/job.pb.h"
#include "runtime/base/schedule.h"
#include "runtime/base/update_rate.h"
#include "sbp/mesh.h"

namespace weir::compiler {

// Bounds of Runtime, far above what helps.
inline constexpr int64_t kRegisterSlotsMax = 4096;
inline constexpr int64_t kThreadsPerDeviceMax = 1024;
// Bound of Training: the gradients that are under way must lie somewhere.
inline constexpr int64_t kGradientDelayMax = 64;

// kInvalidArgument (W0440 to W0446, W0545 to W0547, W0861, W0862, W0865, W0866) names the field. If
// `mode` does not train, the fields that only training needs are not checked.
absl::Status CheckTraining(const proto::Job& job, const sbp::Mesh& stage_mesh, PlanMode mode);

// Returns the updates that `training` asks for, with defaults filled in. Precondition:
// CheckTraining.
UpdateRate UpdateRateOf(const proto::Training& training);
// Returns whether the plan has a loss scale that adapts. Precondition: CheckTraining.
bool LossScaleAdapts(const proto::Training& training);
// Returns the learning rates that `training` sets, with defaults filled in. A step of the schedule
// is a step of the optimiser.
LearningRateSchedule LearningRatesOf(const proto::Training& training);
// kInvalidArgument: W0921 if there is no learning rate, W0922 if it is 0 in some steps of the run.
absl::Status CheckLearningRates(const proto::Training& training);
// Steps that the optimiser makes in the run.
int64_t OptimizerSteps(const proto::Training& training, const UpdateRate& updates);

}  // namespace weir::compiler
