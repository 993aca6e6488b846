// The even rhythm in which the solve places acts: the distance between the acts of each actor at a
// given period of a micro-batch, and the constraint that each wait then sets on the start times of
// two actors. Not here: the choice of period and slots (solve_registers.h). Thread rule: pure
// functions, plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/rates/start_times.h"
#include "compiler/rates/timed_graph.h"
#include "compiler/rates/waits.h"

namespace weir::compiler {

// The part of a rhythm that does not depend on the period.
struct Rhythm {
  int64_t micro_batches = 1;  // the most of any actor
  // Returns whether there is one micro-batch. Iterations then follow each other at the period, and
  // there is no second level.
  bool IsFlat() const { return micro_batches == 1; }
  int64_t granule_ns = 1;  // periods are multiples of this, so that every stride is whole
  int64_t least_ns = 1;    // below this period the acts of one actor overlap
  int64_t most_ns = 1;     // at this period one micro-batch goes through everything alone
  IdVector<ActorId, int64_t> chunk_stride_ns;
  IdVector<ActorId, int64_t> micro_batches_of;  // in an iteration

  int64_t Round(int64_t period_ns) const {
    return (period_ns + granule_ns - 1) / granule_ns * granule_ns;
  }
};

// Finds the rhythm of a graph. The chunks of an actor follow each other as closely as the actors
// allow that it exchanges chunks with. kInternal: times and counts are so large that their sums
// could overflow.
absl::StatusOr<Rhythm> FindRhythm(const TimedGraph& graph);

// A rhythm at a given period.
struct Pace {
  int64_t micro_batch_ns = 0;
  // 0: so long that no act waits for the iteration before.
  int64_t iteration_ns = 0;
  IdVector<ActorId, Timing> actors;  // start_ns is 0
};
Pace PaceAt(const TimedGraph& graph, const Rhythm& rhythm, int64_t micro_batch_ns,
            int64_t iteration_ns);
// The pace for the solve: iterations are far apart, or, in a flat rhythm, follow at the period.
Pace PaceAt(const TimedGraph& graph, const Rhythm& rhythm, int64_t micro_batch_ns);
// Moves a pace for the solve to another period, for the ends of `waits` alone.
void MovePace(const TimedGraph& graph, const Rhythm& rhythm, int64_t micro_batch_ns,
              const std::vector<Wait>& waits, Pace* pace);

// Returns the weight with start(waiter) >= start(other) + weight. kNoWeight: no constraint.
inline constexpr int64_t kNoWeight = std::numeric_limits<int64_t>::min();
int64_t WeightOf(const TimedGraph& graph, const Pace& pace, const Wait& wait);

// The weight as a function of the length of an iteration, which must be above 0: the largest of
// base_ns + iterations * iteration_ns.
struct WeightLine {
  int64_t base_ns = 0;
  int64_t iterations = 0;
};
void AppendWeightLines(const TimedGraph& graph, const Pace& pace, const Wait& wait,
                       std::vector<WeightLine>* lines);

}  // namespace weir::compiler
