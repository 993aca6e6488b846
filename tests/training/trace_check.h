// Reads the act records of a finished run and replays what they say about registers: no register
// ever held more slots than it has, and at the end each is as before the first step. Needs the
// whole run in the rings. Thread rule: the session is at rest.
#pragma once

#include "absl/status/status.h"
#include "actors/launch.h"

namespace weir::testing {

// kInternal names the register, the rank and the count.
absl::Status CheckRegistersByTrace(const Session& session);

// The most micro-batches whose forward had begun and whose backward had not ended, on this rank.
int MostInFlight(const Session& session, int rank);

}  // namespace weir::testing
