// The wait graph lists, for every actor that is not done, the register that the actor waits for and
// the actors, on any rank, that must act before it can go on. A wait is a value, so the waits that
// several processes list are together the graph of the job. From the graph comes the reason why the
// job is stuck: a ring of actors that wait for each other, or the actor for which all others wait
// in the end. Thread rule: pure functions; for ListWaits the ranks must be at rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "actors/engine/rank_executor.h"
#include "actors/protocol/actor_machine.h"

namespace weir::actors {

struct WaitNode {
  RankId rank;
  std::string actor;  // empty: some actor of the rank
  bool operator<(const WaitNode& o) const {
    return rank != o.rank ? rank < o.rank : actor < o.actor;
  }
  bool operator==(const WaitNode& o) const { return rank == o.rank && actor == o.actor; }
};

// A Wait says what an actor that is not done waits for, or that the actor runs.
struct Wait {
  WaitNode who;
  int64_t acts_done = 0;
  int64_t acts_wanted = 0;
  ActorState state = ActorState::kRunning;  // not kDone
  std::string register_name;                // kWaitsForInput, kWaitsForCredit
  // All of these must act before the actor can; none: the actor waits for nobody. In other states
  // than those two, the holders have their turn on the device first.
  std::vector<WaitNode> holders;
};

std::vector<Wait> ListWaits(absl::Span<RankExecutor* const> ranks);

// Returns "rank 1 actor 'grad': 3 of 8 acts, waits for input 'loss', held by actor 'loss' on rank
// 0".
std::string ToLine(const Wait& wait);

// Returns a few lines: the ring, or the actor to which most waits lead in the end; empty if there
// are no waits. Waits of the same actor may come twice.
std::vector<std::string> ExplainWaits(const std::vector<Wait>& waits);

}  // namespace weir::actors
