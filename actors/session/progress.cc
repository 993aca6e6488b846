#include "actors/session/progress.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace weir::actors {

SessionProgress ReadProgress(absl::Span<RankExecutor* const> ranks, const TickScale& scale) {
  using Sleep = RankExecutor::Sleep;
  SessionProgress all;
  all.asleep = true;
  const RankExecutor* longest = nullptr;
  const RankExecutor* unfinished = nullptr;
  bool unfinished_waits = false;
  std::vector<RankId> done;
  RankExecutor::Progress act;  // of `longest`
  for (const RankExecutor* rank : ranks) {
    const RankExecutor::Progress progress = rank->progress();
    all.acts += progress.acts;
    all.asleep &= progress.sleep != Sleep::kAwake;
    if (progress.actor.has_value() && (longest == nullptr || progress.since < act.since)) {
      longest = rank;
      act = progress;
    }
    if (progress.sleep == Sleep::kDone) {
      done.push_back(rank->plan().rank);
    } else if (unfinished == nullptr) {
      unfinished = rank;
      unfinished_waits = progress.sleep == Sleep::kWaiting;
    }
  }
  all.done = done.size() == ranks.size();
  if (longest != nullptr) {
    const int64_t ns = scale.ToNs(TickClock::Now()) - scale.ToNs(act.since);
    all.activity =
        absl::StrFormat("rank %d: actor '%s', act %d, for %.1f s", longest->plan().rank.value(),
                        longest->plan().actors[act.actor].name, act.act,
                        1e-9 * static_cast<double>(std::max<int64_t>(0, ns)));
  } else if (unfinished != nullptr) {
    all.activity = absl::StrFormat("rank %d %s", unfinished->plan().rank.value(),
                                   unfinished_waits ? "waits" : "is between two acts");
  } else if (done.size() == 1) {
    all.activity =
        absl::StrFormat("rank %d has done all acts it was asked for", done.front().value());
  } else {
    all.activity = absl::StrFormat("ranks %s have done all acts they were asked for",
                                   absl::StrJoin(done, ", "));
  }
  return all;
}

}  // namespace weir::actors
