// The engine on threads has one CAF actor per rank, each detached and so on a thread of its own. An
// actor runs its rank until no work is left, then goes back to its mailbox and sleeps. CAF carries
// only control: start, wake, stop, rest, fault. A token for a rank that sleeps costs one wake
// message; between ranks that are awake only the transport is used.
//
// The engine detects the end of a run in one of two ways. Balanced: a rank that parks leaves its
// counts of messages sent and received, and takes them back before it works again. When all ranks
// of the present run are parked and the counts agree, no message is under way: a message not yet
// received is counted only by its sender, and a rank that has left no counts is not parked. Then
// either all actors are done or the plan makes no progress. Local: a rank is at rest when its
// actors are done, every slot is free but those of initial tokens, and every credit is back. In
// that state as many tokens as are consumed have come in, and as many credits as tokens were sent,
// so no message of this run is still to come, and only the next run can move the rank again. A plan
// without progress is not noticed: to this process a rank that waits in vain looks like a rank that
// waits for long.
//
// A rank that waits for the other ranks of a meeting sleeps, too. The rank that comes last wakes
// it, and nothing counts as at rest while such a message is under way. Thread rule: as Engine.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/engine/engine.h"
#include "actors/engine/rank_executor.h"

namespace weir::actors {

struct CafEngineOptions {
  // The number of times that a rank looks for messages before it goes to sleep. A large number
  // shortens hops between threads where each rank has a core of its own (going to sleep and waking
  // takes some microseconds), and only burns time where ranks share cores.
  int polls_before_parking = kChoosePolls;
  static constexpr int kChoosePolls = -1;  // by the machine's cores
  // Threads of the job on this machine, including those of other processes; 0: the ranks here.
  int threads_on_machine = 0;
  enum class Rest : uint8_t {
    kBalanced,  // the ranks are those of the whole job
    kLocal,     // other ranks are elsewhere; they begin the next run after this one is over
  };
  Rest rest = Rest::kBalanced;
};

// The ranks must outlive the engine, and be connected before the first run.
std::unique_ptr<Engine> MakeCafEngine(std::vector<RankExecutor*> ranks,
                                      const CafEngineOptions& options);

}  // namespace weir::actors
