// Runs many seeded trials, each of which may crash, hang or fail, and counts the outcomes. Trials
// run in child processes, some hundred in each, so that a crash costs one trial and names its seed.
// Thread rule: one thread; forks, so call it before threads start.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::fuzz {

struct SeriesOptions {
  uint64_t first_seed = 1;
  int64_t count = 100;
  double seconds_max = 20;  // of one trial, in time of a core
  int64_t say_every = 0;    // trials between two lines of progress; 0: none
};

struct SeriesResult {
  int64_t sound = 0;
  std::map<std::string, int64_t> refused;  // by code
  struct Failure {
    uint64_t seed = 0;
    std::string what;  // "signal 11", "more than 20 s", or the error
  };
  std::vector<Failure> failures;
  double slowest_seconds = 0;
  uint64_t slowest_seed = 0;
};

// A trial returns "" if its seed is sound, the code of a refusal, or an error.
using Trial = std::function<absl::StatusOr<std::string>(uint64_t seed)>;

SeriesResult RunSeries(const Trial& trial, const SeriesOptions& options);

// Returns "20000 trials: 15000 sound, 5000 refused (W0426 120, …), 0 failed; the slowest took 1.2 s
// (seed 17)".
std::string ToText(const SeriesResult& result);

}  // namespace weir::fuzz
