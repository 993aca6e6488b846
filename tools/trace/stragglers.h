// Finds ranks that are slower than others at the same work. Acts of one function (or of the same
// function in one layer after another) for which the plan promises the same time are compared rank
// by rank, by the means of the steady steps.
//
// A rank may be slow because its device is slow, or because its thread has no core; the CPU time of
// its long acts tells which. Waiting for other ranks does not count. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

struct SlowFunction {
  std::string name;      // a family of layers: "backward layers.*"
  double own_ns = 0;     // mean of an act, on the slow rank
  double others_ns = 0;  // the same on its peers, the median of their means
  // The time that the rank's acts of this name take more in a step.
  double more_ns_per_step = 0;
};

struct Straggler {
  RankId rank;
  double factor = 1;            // time of the acts over the time of the same acts on peers
  double more_ns_per_step = 0;  // more than at the speed of the peers
  std::vector<RankId> peers;
  std::vector<SlowFunction> functions;  // most first
};

struct DeviceSpeed {
  RankId rank;
  // The time of the rank's acts over that of the same acts on its peers; 1 without peers.
  double factor = 1;
  double busy_ns_per_step = 0;
  // The share of the time in measured acts for which the rank's thread had a core. Acts that are
  // long enough are measured. Negative: unknown, or known of too few acts.
  double core_share = -1;
};

struct SpeedReport {
  std::vector<DeviceSpeed> devices;   // by rank, ascending
  std::vector<Straggler> stragglers;  // slowest first
};

// A rank is named a straggler from this factor on, if a step would be shorter by this share without
// it.
inline constexpr double kStragglerFactorMin = 1.3;
inline constexpr double kStragglerShareMin = 0.03;
// Below this share of a core, other threads keep a thread from its work.
inline constexpr double kHasACoreMin = 0.75;

SpeedReport CompareRanks(const RecordedRun& run);

}  // namespace weir::trace
