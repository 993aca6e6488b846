// Reads the act records of a finished run and replays what they say about registers: no register
// ever held more slots than it has, and at the end each is as before the first step. Needs the
// whole run in the rings. Thread rule: the session is at rest.
#pragma once

#include "absl/status/status.h"
#include "actors/launch.h"

namespace weir::testing {

// kInternal names the register, the rank and the count.
absl::Status CheckRegistersByTrace(const Session& session);

// The most micro-batches whose forward had begun and whose backward (or last act of phase `until`)
// had not ended, on this rank.
int MostInFlight(const Session& session, int rank, ActorPhase until = ActorPhase::kBackward);

// Of the only step that ran: the share of the time, from the first forward to the last act of a
// backward pass of any rank, in which ranks did no such act.
double MeasuredBubble(const Session& session);

}  // namespace weir::testing
