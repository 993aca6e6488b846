// How many slots each register gets: the fewest bytes that reach the best period, or the best
// period that a memory cap allows.
//
// The period here is that of a micro-batch in steady state. No slot count can beat the bound: the
// load of the busiest device, or a cycle without registers (loop-carried variables, orders). At a
// given period the least memory is a linear program whose dual is a min-cost flow (Ning and Gao
// 1993; Govindarajan, Gao, Desai 2002); counts are rounded up, then trimmed one by one while the
// graph stays feasible. In general the exact minimum is NP-complete (Moreira et al. 2010): the
// result is a safe upper bound, and says how far from the LP's bound below it is. An iteration of m
// micro-batches takes (m - 1) periods and the way of one micro-batch through all. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/rates/start_times.h"
#include "compiler/rates/timed_graph.h"

namespace weir::compiler {

struct PeriodBound {
  int64_t micro_batch_ns = 0;
  std::vector<int> busiest;  // the actors of the device or cycle that sets it
  bool is_device = true;
};
PeriodBound BoundPeriod(const TimedGraph& graph);

struct SolveOptions {
  std::optional<int64_t> bytes_max;       // of all registers together
  std::optional<int64_t> micro_batch_ns;  // the period to reach; none: the bound
  std::string remedy;  // for W0494: what would leave slots that are given to be solved
};

struct RegisterSolution {
  std::vector<int64_t> slots;  // by register; given ones as given
  StartTimes times;            // a certificate for these slots
  int64_t micro_batch_ns = 0;  // the period reached
  int64_t bytes = 0;           // sum of slots x bytes
  double bytes_bound = 0;      // the LP's: nobody can use less at this period
};

// Slots that are given stay; slots_max is kept. kInvalidArgument: a deadlock with the given slots
// (W0494); kResourceExhausted (W0495): not even the slowest period fits under bytes_max, with the
// least that would do.
absl::StatusOr<RegisterSolution> SolveRegisters(const TimedGraph& graph,
                                                const SolveOptions& options);

// From the least memory that runs to the least that reaches the bound; strictly more memory and a
// shorter period with each point.
struct CurvePoint {
  int64_t bytes = 0;
  int64_t micro_batch_ns = 0;
  int64_t iteration_ns = 0;
};
absl::StatusOr<std::vector<CurvePoint>> MemoryCurve(const TimedGraph& graph, int points_max);

}  // namespace weir::compiler
