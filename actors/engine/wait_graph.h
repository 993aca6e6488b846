// The wait graph lists, for every actor that is not done, the register that the actor waits for and
// the actors, on any rank, that must act before it can go on. One line says one wait, so that lines
// of several processes together are the graph of the job. From the graph comes the reason why the
// job is stuck: a ring of actors that wait for each other, or the actor for which all others wait
// in the end. Thread rule: pure functions; for ListWaits the ranks must be at rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"

namespace weir {

struct WaitNode {
  int rank = -1;
  std::string actor;  // empty: some actor of the rank
  bool operator<(const WaitNode& o) const {
    return rank != o.rank ? rank < o.rank : actor < o.actor;
  }
  bool operator==(const WaitNode& o) const { return rank == o.rank && actor == o.actor; }
};

struct Wait {
  WaitNode who;
  std::string doing;              // "3 of 8 acts, waits for input 'loss'", "3 of 8 acts, running"
  std::vector<WaitNode> holders;  // all must act; none: the actor waits for nobody
};

std::vector<Wait> ListWaits(absl::Span<RankExecutor* const> ranks);

// Converts a wait to a line, "rank 1 actor 'grad': 3 of 8 acts, waits for input 'loss', held by
// actor 'loss' on rank 0", and back. The result is empty if the line is not of this form.
std::string ToLine(const Wait& wait);
std::optional<Wait> ParseWait(absl::string_view line);

// Returns a few lines: the ring, or the actor to which most waits lead in the end; empty if there
// are no waits. Waits of the same actor may come twice.
std::vector<std::string> ExplainWaits(const std::vector<Wait>& waits);

}  // namespace weir
