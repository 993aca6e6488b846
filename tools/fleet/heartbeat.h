// How often the workers of a job say that they live, and how long their silence may last. Each
// heartbeat costs the starter some processor time, so many workers beat more rarely than few.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace weir::fleet {

struct Heartbeat {
  int64_t every_ms = 0;
  int64_t dead_after_ms = 0;
};

// Returns the values of a job. A value above 0 is the user's and stays; 0 is chosen: a heartbeat
// every 4 ms for each worker, at least every second and twice within a given dead_after_ms; death
// after four heartbeats, but not before 4 s.
Heartbeat ChooseHeartbeat(const Heartbeat& given, int num_workers);

// Returns up to which age a host's report of processor use says something of a worker that is
// silent. A report is younger than the silence only if the host still reports: one that is cut off
// has sent its last one no more than a heartbeat after the worker's last sign of life.
int64_t UseAgeMaxMs(const Heartbeat& heartbeat);

}  // namespace weir::fleet
