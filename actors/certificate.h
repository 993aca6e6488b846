// The proof that a plan cannot come to a standstill, checked by every rank when it loads its plan.
//
// A plan says when each act starts (PlanTiming). The check goes over every edge once and asks
// whether
//   a token     is taken only after the act that publishes it has ended,
//   a slot      is taken only after the acts that read its last token have ended,
//   an actor    begins an act only after its last has ended,
//   a stream    begins an act only after the one before it in its order has ended,
// for all steps for ever: times repeat with each iteration, so the tokens of one iteration tell. If
// all hold, then of the acts that are left the one with the least start can always be done, in
// whatever order the others were: no order of events ends in a deadlock (the counting of acts is
// deterministic, so no choice of one actor takes from another what it needs). Of a remote register
// each rank checks the same edge from its side; that both sides say the same of it is checked by
// actors/verify_plans.h, or, between processes, when the transport connects.
//
// The compiler proves its plans the same way with code of its own (compiler/rates/start_times.h):
// no error of one hides behind the other. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "actors/plan.h"

namespace weir {

// O(edges) where both ends of an edge are even, else O(tokens of a step, or, where steps are not
// alike, of an iteration). kInvalidArgument: W0541 the plan has no certificate, W0508 times that no
// plan can have, W0509 an act that starts too early, with the edge and both actors.
absl::Status CheckCertificate(const Plan& plan);

// When act `act` of `actor`, counted from the first of the job, starts by the plan.
int64_t PlannedStartNs(const Plan& plan, const PlanActor& actor, int64_t act);

// Hashes the plan's statements about both ends of a remote register. Two ranks that agree get the
// same number. A plan that says nothing of the far end gives 0.
uint64_t EdgeStatement(const Plan& plan, const PlanRegister& r);

}  // namespace weir
