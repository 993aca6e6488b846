// Runs a function in the sandbox, on a thread of its own, while the rest of the process stays free.
//
// For the compiling part of a process that then trains: what it compiles may come from anybody. The
// thread shares its memory with the process, so this keeps a job from making the compiler open,
// send or start anything; it is no wall against somebody who has taken over the compiler itself and
// with it the memory. `weir check`, whose whole process is confined, is. Thread rule: any thread;
// it waits.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace weir {

// What `work` returns; what it throws is thrown here. `work` may open no file. kUnavailable
// (W0815): no thread could be started.
absl::Status RunConfined(const std::function<absl::Status()>& work);

}  // namespace weir
