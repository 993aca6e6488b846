// Checks that plans of a job fit together: the same job, every rank once, and both sides of every
// edge agree in peer, slots, bytes, tokens, delay and the times when the actors at both ends act.
// Each plan by itself is sound already (actors/plan/plan.h).
// Thread rule: pure functions.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "actors/plan/plan.h"

namespace weir::actors {

// Checks the plans of all ranks of a job: `plans[r]` must be the plan of rank r. Errors are
// kInvalidArgument, W0506.
absl::Status VerifyPlans(absl::Span<const Plan> plans);

// Checks the plans of one or more ranks of a job, in any order. The far side of an edge to a rank
// that is not among them is checked when the transport connects.
absl::Status VerifyLocalPlans(absl::Span<const Plan> plans);

}  // namespace weir::actors
