// Counts what boxings send, for tests. Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "sbp/boxing_over_hosts.h"

namespace weir::sbp {

// Returns the bytes that cross from host to host, counted message by message. `places` know the
// hosts.
inline int64_t CountBytesBetweenHosts(const Boxing& boxing, const Places& places) {
  int64_t bytes = 0;
  for (const BoxingStep& step : boxing.steps) {
    for (RankId rank : places.all_ranks()) {
      for (const auto& [peer, pieces] :
           BuildExchange({boxing.type}, {step}, boxing.places, rank).sends) {
        if (places.HostOf(peer) == places.HostOf(rank)) continue;
        for (const Piece& piece : pieces) bytes += piece.src.volume() * SizeOf(boxing.type.dtype);
      }
    }
  }
  return bytes;
}

}  // namespace weir::sbp
