// Describes a plan that makes no progress: the activity of every unfinished actor of a set of
// ranks, the register that the actor waits for, the holders of the register, and the cause of the
// stall.
// Thread rule: the ranks must be at rest.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"

namespace weir::actors {

constexpr int kStallLinesMax = 200;      // of a message
constexpr int kStallLogLinesMax = 5000;  // of a log

// Returns one line per unfinished actor, at most `lines_max`, then the number of lines left out:
//   rank 1 actor 'grad': 3 of 8 acts, waits for input 'loss', held by actor 'loss' on rank 0
// Holders on ranks that are not among `ranks` are taken from the plans. The last part, "why: ...",
// is the reason for the stall as wait_graph.h explains it. Each line begins with a line break.
std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max = kStallLinesMax);

}  // namespace weir::actors
