// What a worker says of itself in every heartbeat, read from its schedulers' own counters.
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

struct WorkerProgress {
  int64_t acts = 0;      // done by all its ranks together
  bool asleep = true;    // every rank waits for messages
  std::string activity;  // "rank 3: actor 'forward layers.1' since 2.1 s"; for people; 4 KiB travel
};

}  // namespace weir
