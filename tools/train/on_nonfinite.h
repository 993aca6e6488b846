// What a run does when the norm of the gradients, or the loss, is NaN or infinite. It is of the
// run, not of the job: plans of all kinds are the same but for one attribute of the op clip_scale,
// which every plan that trains has. Thread rule: pure.
#pragma once

#include <cstdint>

#include "proto/plan.pb.h"

namespace weir {

enum class OnNonfinite : uint8_t {
  kStop,  // neither that update nor any later one is made; the job ends and names the tensor that
          // was first
  kSkip,  // that update is left out, on all ranks alike, since all see the same norm; the run goes
          // on
  kContinue,  // the update is made, and makes the weights NaN
};

// Makes the plan do so. Plans come from the compiler as kStop.
void SetOnNonfinite(OnNonfinite on_nonfinite, RankPlan* plan);

}  // namespace weir
