// Writes a trace as trace events in JSON, the format of chrome://tracing that many other tools
// read: an object with `traceEvents` and, in `otherData`, what the trace says of its job.
//
//   process, thread     a rank and a track of the rank, with their names and their order
//   complete event (X)  an act or a wait; `args` has its annotations (step, micro-batch, register)
//   flow (s, f)         an arrow from the act that sent a token to the act that took it
//   counter (C)         the slots of a register in use
//
// Events come in the order of the file. Times are microseconds with three digits behind the point,
// so none is rounded. A number that doubles cannot hold becomes a text. Not here: facts of plans,
// which the format has no place for. Thread rule: a pure function.
#pragma once

#include <ostream>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weir::trace {

// Writes while it reads, and keeps names and tracks but no events. `file` is the bytes, `name` is
// the name of the bytes in errors. kDataLoss (W0531) if they are no trace of Weir; part of the
// output is then written. Never crashes on other bytes.
absl::Status WriteChromeEvents(absl::string_view file, absl::string_view name, std::ostream& out);

}  // namespace weir::trace
