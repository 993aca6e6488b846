// Says what every unfinished actor of a set of ranks is doing, which register it waits
// for and who holds it, and what that comes to: the text of a plan that makes no progress.
// Thread rule: the ranks must be at rest.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"

namespace weir {

constexpr int kStallLinesMax = 200;  // of a message
constexpr int kStallLogLinesMax =
    5000;  // of a log, from which the graph of a job in many processes is made

// One line per unfinished actor, at most `lines_max`, then how many were left out:
//   rank 1 actor 'grad': 3 of 8 acts, waits for input 'loss', held by actor 'loss' on rank 0
// Holders on ranks that are not among `ranks` are those that the plans tell of. Then why nothing
// moves, as wait_graph.h explains it, after "why: ". Each line begins with a line break.
std::string DescribeStall(absl::Span<RankExecutor* const> ranks, int lines_max = kStallLinesMax);

}  // namespace weir
