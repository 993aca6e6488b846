// A worker sends two reports of its own accord: its progress while the job runs, and its last words
// when the job was aborted. A WorkerProgress is the content of a worker's heartbeat, read from its
// schedulers' own counters.
// Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::control {

// Last words are one frame; longer ones are not taken.
inline constexpr size_t kLastWordsBytesMax = 256 << 10;

struct WorkerProgress {
  int64_t acts = 0;   // done by all its ranks together
  bool done = false;  // every rank has done all acts it was asked for
  // A text for people, as "rank 3: actor 'forward layers.1' since 2.1 s". A heartbeat carries at
  // most 4 KiB of the text.
  std::string activity;
  int64_t resident_bytes = 0;  // of the process; 0: not known
};

}  // namespace weir::control
