// The action of a run when the norm of the gradients, or the loss, is NaN or infinite. The action
// belongs to the run and not to the job: the plans of all three kinds differ only in one attribute
// of the op clip_scale, which every training plan has. A loss scale that adapts skips such updates
// whatever the action of the run, since gradients that overflow tell it to be smaller.
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

// Sets the action of the plan. The compiler makes plans with kStop, or with kSkip if a loss scale
// adapts; the latter stay as they are.
void SetOnNonfinite(OnNonfinite on_nonfinite, proto::RankPlan* plan);

}  // namespace weir::train
