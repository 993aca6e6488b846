// How far the ranks of a session are and what they are doing, for heartbeats and for
// whoever watches that a job moves.
// Thread rule: any thread, while the ranks run.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"
#include "runtime/trace/tick_clock.h"

namespace weir {

struct SessionProgress {
  int64_t acts = 0;     // done by all local ranks since the session was made
  bool asleep = false;  // all local ranks: they wait for others, or all is done
  // Of the rank that has been in one act the longest:
  //   "rank 3: actor 'forward layers.1', act 12, for 2.1 s"    act 12 counts from 0
  // If none is in an act, of the first that has acts left: "rank 1 waits".
  // Else "rank 1 has done all acts it was asked for".
  std::string activity;
};

// `scale` turns the ranks' ticks into time.
SessionProgress ReadProgress(absl::Span<RankExecutor* const> ranks, const TickScale& scale);

}  // namespace weir
