// What must hold of all ranks together after every event of a simulation:
//   I1 per register: free + held by the producer + under way + being read = slots
//   I3 no slot is bound to a writer while a reader may look at it
//   I4 slots that are in use at the same time do not share memory, nor leave the arena
// (I2, tokens of an edge come once and in order, is checked by every rank on receipt;
// I7, rest means done, by the engine; I8 is RankExecutor::CheckAtRest.)
// An actor may write an output over an input that it alone still reads.
// Thread rule: ranks and network at rest, one thread.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"
#include "runtime/transport/sim_transport.h"

namespace weir {

// kInternal (W0518) naming rank, register and counts.
absl::Status CheckSimInvariants(absl::Span<RankExecutor* const> ranks, const SimNetwork& network);

}  // namespace weir
