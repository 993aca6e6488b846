// Reports the progress and the activity of the ranks of a session, for heartbeats and for watchers
// of the job.
// Thread rule: any thread, while the ranks run.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"
#include "runtime/base/tick_clock.h"

namespace weir::actors {

struct SessionProgress {
  int64_t acts = 0;     // done by all local ranks since the session was made
  bool asleep = false;  // true if all local ranks wait for others or are done
  bool done = false;    // true if all local ranks have done all acts they were asked for
  // Describes the rank that has been in one act the longest:
  //   "rank 3: actor 'forward layers.1', act 12, for 2.1 s"    act 12 counts from 0
  // If no rank is in an act, describes the first rank that has acts left: "rank 1 waits", or "rank
  // 1 is between two acts". Otherwise the text is "rank 1 has done all acts it was asked for".
  std::string activity;
  // The fault that the next run will return (Engine::fault).
  absl::Status fault;
};

// `scale` turns the ranks' ticks into time.
SessionProgress ReadProgress(absl::Span<RankExecutor* const> ranks, const TickScale& scale);

}  // namespace weir::actors
