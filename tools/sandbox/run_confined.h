// Runs a function in the sandbox, on a separate thread, while the rest of the process stays free.
//
// A process that trains compiles its job in this way, because the job may have any author. The
// thread shares its memory with the process, so RunConfined only keeps a job from making the
// compiler open, send or start anything. It is no protection against an attacker who controls the
// compiler itself, and with it the memory. `weir check` is such a protection, because its whole
// process is confined. Thread rule: any thread; RunConfined waits.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace weir::sandbox {

// Returns the result of `work`, and throws what `work` throws. `work` may open no file.
// kUnavailable (W0815): no thread could be started.
absl::Status RunConfined(const std::function<absl::Status()>& work);

}  // namespace weir::sandbox
