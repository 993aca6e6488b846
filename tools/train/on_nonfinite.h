// The action of a run when the norm of the gradients, or the loss, is NaN or infinite. The action
// belongs to the run and not to the job: the plans of all three kinds differ only in one attribute
// of the op clip_scale, which every training plan has. With a loss scale that adapts, an update
// whose gradients are not finite is skipped whatever the action of the run, and the action is about
// the loss: gradients that overflow while the loss is finite only tell the scale to be smaller.
// Thread rule: pure.
#pragma once

#include <cstdint>

#include "proto/plan.pb.h"

namespace weir::train {

enum class OnNonfinite : uint8_t {
  // Neither that update nor any later update is made. The job ends and names the first tensor that
  // was not finite.
  kStop,
  // That update is skipped on all ranks alike, because all ranks see the same norm. The run
  // continues.
  kSkip,
  kContinue,  // the update is made, and the weights become NaN
};

// Sets the action of the plan. The compiler makes plans with kStop. A clip_scale that the compiler
// made with kSkip stays as it is, since it follows the decision of another clip_scale.
void SetOnNonfinite(OnNonfinite on_nonfinite, proto::RankPlan* plan);

}  // namespace weir::train
