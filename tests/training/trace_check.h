// Checks registers with the act records of a finished run: no register ever held more slots than it
// has, and at the end each register is as before the first step. The rings must hold the whole run.
// Thread rule: the session is at rest.
#pragma once

#include "absl/status/status.h"
#include "actors/session/session.h"
#include "runtime/base/ids.h"

namespace weir::training {

// kInternal names the register, the rank and the count.
absl::Status CheckRegistersByTrace(const actors::Session& session);

// Returns the most micro-batches on this rank whose forward had begun and whose backward (or last
// act of phase `until`) had not ended.
int MostInFlight(const actors::Session& session, RankId rank,
                 actors::ActorPhase until = actors::ActorPhase::kBackward);

// Returns the bubble of the only step that ran: the share of time in which ranks did no act of a
// pass, from the first forward act to the last backward act of any rank.
double MeasuredBubble(const actors::Session& session);

}  // namespace weir::training
