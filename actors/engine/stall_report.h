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

}  // namespace weir
