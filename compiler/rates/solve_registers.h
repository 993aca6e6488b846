// Solves how many slots each register gets: the fewest bytes that reach the best period, or the
// best period that a memory cap allows.
//
// The period is the period of a micro-batch in steady state. No slot count can beat the bound,
// which is the load of the busiest device or a cycle without registers (loop-carried variables,
// orders). At a given period the least memory is a linear program, and the dual of the program is a
// min-cost flow (Ning and Gao 1993; Govindarajan, Gao, Desai 2002). The counts are rounded up and
// then trimmed one by one while the graph stays feasible. In general the exact minimum is
// NP-complete (Moreira et al. 2010). The result is therefore a safe upper bound, and the solution
// also gives the lower bound of the linear program. An iteration of m micro-batches takes (m - 1)
// periods and the time of one micro-batch through all actors. Thread rule: pure functions.
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
  std::vector<ActorId> busiest;  // the actors of the device or cycle that sets the bound
  bool is_device = true;
};
PeriodBound BoundPeriod(const TimedGraph& graph);

struct SolveOptions {
  std::optional<int64_t> bytes_max;       // of all registers together
  std::optional<int64_t> micro_batch_ns;  // the period to reach; none: the bound
  // The error W0494 names this setting, which would leave given slots to the solve.
  std::string remedy;
};

struct RegisterSolution {
  IdVector<RegisterId, int64_t> slots;  // given ones as given
  StartTimes times;                     // a certificate for these slots
  int64_t micro_batch_ns = 0;           // the period reached
  int64_t bytes = 0;                    // sum of slots x bytes
  // The lower bound of the linear program: no slot counts use less at this period.
  double bytes_bound = 0;
};

// Solves the slots that are not given, up to slots_max. kInvalidArgument (W0494): the given slots
// deadlock. kResourceExhausted (W0495): not even the slowest period fits under bytes_max; the error
// names the least memory that would do.
absl::StatusOr<RegisterSolution> SolveRegisters(const TimedGraph& graph,
                                                const SolveOptions& options);

// Returns points from the least memory that runs to the least memory that reaches the bound. Each
// point has strictly more memory and a shorter period than the point before.
struct CurvePoint {
  int64_t bytes = 0;
  int64_t micro_batch_ns = 0;
  int64_t iteration_ns = 0;
};
absl::StatusOr<std::vector<CurvePoint>> MemoryCurve(const TimedGraph& graph, int points_max);

}  // namespace weir::compiler
