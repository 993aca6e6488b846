// The account that a worker gives of its ranks when the job is stuck: what each actor that is not
// done waits for. The account crosses the control plane as a message of bounded size
// (proto/worker.proto), and the starter puts the accounts of all workers together
// (actors/engine/wait_graph.h). Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "actors/engine/wait_graph.h"
#include "proto/worker.pb.h"
#include "runtime/base/ids.h"

namespace weir::fleet {

inline constexpr size_t kAccountBytesMax = 240 << 10;

// Returns the first of `waits` that have room in a message of `bytes_max` bytes, and counts the
// rest.
proto::WaitAccount AccountOf(const std::vector<actors::Wait>& waits,
                             size_t bytes_max = kAccountBytesMax);

// Returns the waits of an account; nullopt if the account contradicts itself.
std::optional<std::vector<actors::Wait>> WaitsOf(const proto::WaitAccount& account);

// Returns a line for each of the waits of a worker that are for ranks of other workers: at most 6
// lines, and then how many more there are. `ranks` are the worker's.
std::vector<std::string> WaitsForOthers(const std::vector<actors::Wait>& waits,
                                        const std::vector<RankId>& ranks);

}  // namespace weir::fleet
