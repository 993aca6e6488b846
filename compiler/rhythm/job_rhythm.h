// The rhythm of a job: when the acts of every station start, so that the same times hold on every
// rank. Solved once, for the logical plan (solve_rhythm.h); each rank applies it to its own actors
// (rank_rhythm.h), from which its slots follow. Thread rule: immutable once made.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "compiler/lower/rank_graph.h"

namespace weir::compiler {

struct StationTime {
  int64_t start_ns = 0;
  int64_t turn_ns = 0;  // from one micro-batch to the next
  int64_t chunk_ns = 0;
  int64_t time_ns = 0;     // 0: nobody acts here
  int64_t latency_ns = 0;  // of the messages that leave here
};

// Registers that all ranks of a stage may have: the outputs of a station with the same readers,
// whichever of these a rank has.
struct RegisterFamily {
  Station producer;
  std::vector<Station> consumers;  // ascending
  int64_t tokens = 0;              // per step; 0: of each act (messages)
  int64_t initial_tokens = 0;
  friend auto operator<=>(const RegisterFamily&, const RegisterFamily&) = default;
};

struct JobRhythm {
  int64_t iteration_ns = 0;
  int64_t micro_batch_ns = 0;
  double bubble = 0;  // of a pipeline in training, as its stations play it; 0: none, or unknown
  std::vector<std::vector<StationTime>> stations;  // by item, by place
  // Solved slots. A register gets never fewer than the times ask for.
  std::map<RegisterFamily, int64_t> slots;
  const StationTime* Find(const Station& station) const;
};

}  // namespace weir::compiler
