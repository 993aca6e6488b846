// Measures the way to another machine over TCP: one stream, as a probe and the target of a probe
// (address_probe.h) speak it. The prober sends 'e' and gets it back, some times; then 'b' and as
// many bytes as the way takes for a while; the end of its stream is answered by one byte, so that
// the time counts until the last byte has arrived. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string>

#include "tools/launch/wake_event.h"

namespace weir::hosts {

struct LinkSpeed {
  std::string error;            // empty: measured
  int64_t round_trip_ns = 0;    // of one byte: the median of some tries
  double bytes_per_second = 0;  // of one stream in this direction
};

// Measures the way to an address with a port, where a probe's target listens. Takes 0.4 s, and at
// most `limit_ms`.
LinkSpeed MeasureLink(const std::string& address, int64_t limit_ms);

// Serves one connection of a prober until it ends, `wake` is readable, or 5 s have passed.
void ServeLinkProbe(int connection, const launch::WakeEvent& wake);

}  // namespace weir::hosts
