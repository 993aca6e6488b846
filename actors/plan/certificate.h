// A certificate proves that a plan cannot come to a standstill. Every rank checks the certificate
// when it loads its plan.
//
// A plan says when each act starts (PlanTiming, PlanRhythm). The check goes over every edge once
// and asks whether
//   a token     is taken only after the act that publishes it has ended,
//   a slot      is taken only after the acts that read its last token have ended,
//   an actor    begins an act only after its last act has ended,
//   a stream    begins an act only after the act before it in the stream's order has ended,
// for all steps for ever. Times repeat with each iteration, so the tokens of one iteration suffice.
// If all four hold, then among the remaining acts the act with the least start can always be done,
// in whatever order the others were done, so no order of events ends in a deadlock. (The counting
// of acts is deterministic, so no choice of one actor takes from another actor a token or slot that
// the other needs.) Each rank checks its own side of the edge of a remote register.
// actors/plan/verify_plans.h checks that both sides agree, or, between processes, the transport
// does when it connects.
//
// The compiler proves its plans the same way with code of its own (compiler/rates/start_times.h),
// so no error of one proof hides behind the other. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "actors/plan/plan.h"

namespace weir::actors {

// Takes O(edges) where both ends of an edge are even, else O(tokens of a step), or O(tokens of an
// iteration) if steps are not alike. kInvalidArgument: W0541 the plan has no certificate, W0508
// times that no plan can have, W0509 an act that starts too early, with the edge and both actors.
absl::Status CheckCertificate(const Plan& plan);

// Returns the planned start of act `act` of `actor`, counted from the first act of the job.
int64_t PlannedStartNs(const Plan& plan, const PlanActor& actor, int64_t act);

// Hashes the plan's statements about both ends of a remote register. Two ranks that agree get the
// same number. A plan that says nothing of the far end gives 0.
uint64_t EdgeStatement(const Plan& plan, const PlanRegister& r);

}  // namespace weir::actors
