// All implementations of Communicator check operations, and speak of them, with these functions.
// Thread rule: pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/base/status.h"
#include "runtime/collective/collective.h"

namespace weir::collective {

// Returns W0951 if the operation breaks the contract of collective.h, as far as one rank can see.
absl::Status CheckOperation(const CommunicatorSpec& spec, const Operation& operation);
absl::Status CheckMoves(const CommunicatorSpec& spec, const Moves& moves);
// Returns W0952 if no communicator can have this ranks, epoch or limits.
absl::Status CheckSpec(const CommunicatorSpec& spec);

// Returns what an operation must have in common on all ranks: "all-reduce (sum) of 12 f32".
std::string Text(const Operation& operation);
std::string Text(const Moves& moves);  // "send-receive of f32"
// The bytes that the rank gives and gets.
int64_t BytesOf(const Operation& operation, int size);
int64_t BytesOf(const Moves& moves);

// "group dp, epoch 2, place 1 (rank 6) of 4", where every error is.
std::string Place(const CommunicatorSpec& spec);
// "place 1 (rank 6)", where the rank is that of the job.
std::string Member(const CommunicatorSpec& spec, int place);
// W0953: the operation, the `number`th of the communicator from 0, has not ended.
absl::Status Overdue(const CommunicatorSpec& spec, int64_t number, const std::string& text,
                     int64_t bytes, int64_t waited_ms);

}  // namespace weir::collective
