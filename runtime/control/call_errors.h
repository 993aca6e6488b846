// The errors of calls over the control plane that several of its parts return.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/problem.h"

namespace weir::control {

// kInvalidArgument (W0613): `what`, such as "a command", has more bytes than a message may have.
absl::Status TooLarge(const std::string& what, int64_t bytes_max, size_t bytes);

// kDeadlineExceeded (W0611): `silent` names the workers that have not answered.
absl::Status NoAnswerFrom(const std::string& silent, int64_t limit_ms);

// kDeadlineExceeded (W0601): `absent` names the workers that have not come: the first
// kAbsentNamedMax, and then "others". A caller that waits in short parts makes the names each time.
inline constexpr size_t kAbsentNamedMax = 16;
absl::Status NotAllCame(const std::string& job_id, int num_workers, int64_t limit_ms,
                        const std::string& absent);

// kPermissionDenied (W0810): the worker publishes under a key that is not its own.
absl::Status NotItsKey(const std::string& worker, const std::string& key);

// W0602: a worker is silent. The caller adds where.
Problem NoHeartbeat(int64_t dead_after_ms, int64_t silent_ms);

}  // namespace weir::control
