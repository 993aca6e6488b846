// The memory of each rank over one step of a recorded run: how many bytes of the arena hold
// something that is still needed, and which tensors hold them at the fullest moment, and why.
//
// In use are the states (weights and what the optimiser keeps) and the scratch space all the time,
// and each slot of a register from the first act that writes it until its last reader has given it
// up. Slots of several registers may lie in one place at different times, so the sum of all slots
// may be more than the arena, and the bytes in use never are. The sizes and places are those of the
// plan, the times are those of the record. Memory that a kernel takes for itself is not in the
// arena, and not here. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

// A HeldTensor is tensors that are in use at the peak, equal ones of all layers as one.
struct HeldTensor {
  std::string name;  // of the registers, of all layers
  int64_t registers = 0;
  int64_t slots = 0;  // in use at the peak
  int64_t bytes = 0;  // of these slots
  // The function that wrote the largest of them, and the act that reads it last, with their times
  // from the begin of the step (the reader may be in a later step). Empty: not in the record.
  std::string writer, last_reader;
  RankId reader_rank;
  int64_t written_at = 0, read_until = 0;
  // It was there before the first step, as a weight is, or a later step reads it.
  bool lags = false;
};

struct RankMemory {
  RankId rank;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;
  std::map<std::string, int64_t> state_bytes;  // by class: "weights", "optimiser", …
  int64_t always_bytes = 0;                    // of scratch and states
  int64_t peak_bytes = 0;
  int64_t peak_at = 0;   // ns, as everything in a trace
  std::string peak_act;  // the function of the act of this rank that runs or comes next then
  // The most bytes in use in each of kMemoryParts equal parts of the step.
  std::vector<int64_t> most;
  std::vector<HeldTensor> held;  // registers at the peak, most bytes first
};

struct MemoryUse {
  int64_t step = 0;
  int64_t begin = 0, end = 0;     // of the step
  std::vector<RankMemory> ranks;  // empty: the trace does not say where tensors lie
};

inline constexpr int64_t kMemoryParts = 300;

// Precondition: run.first_step <= step <= run.last_step.
MemoryUse FindMemoryUse(const RecordedRun& run, int64_t step);

}  // namespace weir::trace
