// A failure of a job as the policy of restarts compares it with others: equal ones are the same
// failure.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

namespace weir::launch {

// The reason of a failure lies here, as far as the failure shows it.
enum class FailureOrigin : uint8_t {
  kJob,  // the process ended by itself, or the job made no progress
  // Perhaps outside: somebody's signal, a process that is silent, a cut connection, surroundings
  // that refused what a process needs.
  kOutside,
};

// One failure of a job.
struct JobFailure {
  std::string who;      // "rank 2"
  std::string what;     // "killed by SIGKILL (9)"; without process numbers and times
  std::string where;    // "rank 2: actor 'forward layers.1'", or the moment; may be unknown
  int64_t step = 0;     // steps that the job had done
  int64_t time_ms = 0;  // monotonic, not before the failures noted earlier
  FailureOrigin origin = FailureOrigin::kJob;
};

}  // namespace weir::launch
