// Says what every unfinished actor of a set of ranks is doing, which register it waits
// for and who holds it: the text of a plan that makes no progress.
// Thread rule: the ranks must be at rest.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"

namespace weir {

// One line per unfinished actor, at most `lines_max`, then how many were left out:
//   rank 1 actor 'grad': 3 of 8 acts, waits for input 'loss', held by actor 'loss' on rank 0
std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max);

// The holders of a register: who must act before a token (or a free slot) comes,
// as "actor 'x' on rank 0". Several consumers are joined by " and ".
enum class HeldBack : uint8_t { kToken, kSlot };
std::string DescribeHolder(absl::Span<const Plan* const> plans, int rank, int register_id, HeldBack what);

}  // namespace weir
