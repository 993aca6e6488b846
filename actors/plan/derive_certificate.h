// Derives a certificate for plans that no compiler wrote. One iteration of the whole job is played:
// every act starts as soon as its tokens, slots and turn are there, and the start of each act is
// written into the plans. If the play comes to its end, the state is the same as before the play,
// so the play can be repeated for ever; if not, no certificate exists. Not here: devices (acts of
// one device may overlap in these times), memory. Thread rule: pure functions.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/plan.pb.h"

namespace weir::actors {

// `plans` holds the plans of all ranks of a job, in order; steps_per_iteration is set where an
// actor does not act in every step. An act takes the actor's timing.time_ns, or 1 ns. Replaces all
// times in the plans but time_ns and latency_ns. Errors: those of PlanFromProto and VerifyPlans;
// kInvalidArgument (W0542) if the job comes to a standstill, with the actors that wait for each
// other.
absl::Status DeriveCertificate(std::vector<proto::RankPlan>* plans);

}  // namespace weir::actors
