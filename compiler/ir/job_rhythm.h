// The rhythm of a job: the start of every act of every station. The same times hold on every rank.
// The compiler solves the rhythm once, for the logical plan (solve_rhythm.h). Each rank applies the
// rhythm to its own actors (rank_rhythm.h) and derives its slots. Thread rule: immutable once made.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/ir/rank_graph.h"

namespace weir::compiler {

// The times at which the acts of a station start. `time_ns` of 0: no actor acts here.
struct StationTime : Timing {
  int64_t latency_ns = 0;  // of the messages that leave the station
};

// Stands for the registers that the ranks of a stage may have for the outputs of one station that
// have the same readers. A rank may have only some of these outputs.
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
  // The bubble of a pipeline in training, when its stations play the step. 0: none, or unknown.
  double bubble = 0;
  std::vector<std::vector<StationTime>> stations;  // by item, by index
  // Solved slots. A register never gets fewer slots than the times need.
  std::map<RegisterFamily, int64_t> slots;
  const StationTime* Find(const Station& station) const;
};

// Returns the rhythm as stable text, for dumps.
std::string ToText(const JobRhythm& rhythm);

}  // namespace weir::compiler
