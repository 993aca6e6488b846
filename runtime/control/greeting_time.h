// How long the greetings of a job's workers may take, which all come to the coordinator at once.
// Thread rule: a pure function.
#pragma once

#include <cstdint>

namespace weir::control {

// Returns the time that a coordinator may need for the greetings of this many workers, in
// milliseconds: each proves its identity, which takes a few milliseconds of one thread. Limits of
// single greetings and of the first exchanges grow by it.
constexpr int64_t GreetingMs(int num_workers) { return int64_t{10} * num_workers; }

}  // namespace weir::control
