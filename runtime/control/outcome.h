// Converts statuses to and from their form in the messages of a job's processes
// (proto/outcome.proto). The one problem of a status stays a problem.
// Thread rule: pure functions.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "proto/outcome.pb.h"

namespace weir::control {

// A message is cut at this size. A problem that takes more is sent as its message.
inline constexpr size_t kOutcomeBytesMax = 8 << 10;

proto::Outcome ToOutcome(const absl::Status& status);
// A code that is not a status code becomes kUnknown.
absl::Status FromOutcome(const proto::Outcome& outcome);

}  // namespace weir::control
