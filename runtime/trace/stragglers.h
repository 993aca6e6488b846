// Ranks that are slower than others at the same work: acts of one function (or of one layer after
// another: the same function again) for which the plan promises the same time are compared rank by
// rank, by the means of the steady steps.
//
// A rank may be slow because its device is, or because its thread has no core; which of the two,
// the CPU time of its long acts tells. Waiting for others does not count. Thread rule: pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/trace/recorded_run.h"

namespace weir {

struct SlowFunction {
  std::string name;             // a family of layers: "backward layers.*"
  double own_ns = 0;            // mean of an act, on the slow rank
  double others_ns = 0;         // the same on its peers, the median of their means
  double more_ns_per_step = 0;  // that the rank's acts of this name take more in a step
};

struct Straggler {
  int rank = 0;
  double factor = 1;            // of what the same acts take on its peers
  double more_ns_per_step = 0;  // than if it were as fast as they
  std::vector<int> peers;
  std::vector<SlowFunction> functions;  // most first
};

struct DeviceSpeed {
  int rank = 0;
  double factor = 1;  // time of its acts over that of the same acts on its peers; 1 without peers
  double busy_ns_per_step = 0;
  // Of the time in acts that were long enough to be measured, the share that the rank's thread had
  // a core; negative: unknown, or known of too few acts.
  double core_share = -1;
};

struct SpeedReport {
  std::vector<DeviceSpeed> devices;   // by rank, ascending
  std::vector<Straggler> stragglers;  // slowest first
};

// A rank is named from this factor on, if a step would be this share shorter without.
inline constexpr double kStragglerFactorMin = 1.3;
inline constexpr double kStragglerShareMin = 0.03;
// With less of a core than this, a thread is kept from its work by others.
inline constexpr double kHasACoreMin = 0.75;

SpeedReport CompareRanks(const RecordedRun& run);

}  // namespace weir
