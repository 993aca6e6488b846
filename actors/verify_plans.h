// Checks that the plans of all ranks of a job fit together: the same job, every rank
// once, and both sides of every edge agree in peer, slots, bytes, tokens and delay.
// Each plan by itself is sound already (actors/plan.h).
// Thread rule: a pure function.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "actors/plan.h"

namespace weir {

// `plans[r]` must be the plan of rank r. Errors are kInvalidArgument, W0506.
absl::Status VerifyPlans(absl::Span<const Plan> plans);

}  // namespace weir
