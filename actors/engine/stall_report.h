// Says what every unfinished actor of a set of ranks is doing, which register it waits
// for and who holds it: the text of a plan that makes no progress.
// Thread rule: the ranks must be at rest.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"

namespace weir {

constexpr int kStallLinesMax = 200;

// One line per unfinished actor, at most `lines_max`, then how many were left out:
//   rank 1 actor 'grad': 3 of 8 acts, waits for input 'loss', held by actor 'loss' on rank 0
// Of a holder on a rank that is not among `ranks`, only the rank is named. Each line begins
// with a line break.
std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max = kStallLinesMax);

}  // namespace weir
