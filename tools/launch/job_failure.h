// What makes a failure of a job the same one as another, for the policy of restarts.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

namespace weir::launch {

// Where the reason of a failure lies, as far as the failure shows it.
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
