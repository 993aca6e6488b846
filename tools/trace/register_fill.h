// Finds how many slots of a register were in use at each moment of a recorded run. A slot is in use
// from the first act that writes it until its last reader has given it up. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

struct FillChange {
  int64_t at = 0;      // ns, as everything in a trace
  int64_t in_use = 0;  // slots from this moment on
};

struct RegisterFill {
  // Ascending; the first is the begin of the first whole step. Changes at one moment are one.
  std::vector<FillChange> changes;
  int64_t most = 0;     // slots in use at a time
  int64_t full_ns = 0;  // all slots were in use, within the whole steps
};

RegisterFill FindFill(const RecordedRun& run, RecordedRegisterId register_index);

}  // namespace weir::trace
