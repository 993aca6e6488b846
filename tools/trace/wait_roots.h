// Finds the roots of waits: what really held a device up while it waited.
//
// A device that waits for an act waits for everything that the act waited for in turn. So the time
// of a wait is divided by what the other device did meanwhile:
//
//   it worked, on the awaited act or on acts before it      -> these acts
//   the awaited token or slot had been sent                 -> the way of the register
//   it waited itself                                        -> the roots of that wait
//   none of these                                           -> between acts, of the other device
//
// The roots of all waits add up to the time of all waits. The work that stands first is the one
// that most device time waits for; it need not be on the critical path. Thread rule: pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "tools/trace/recorded_run.h"

namespace weir::trace {

struct WaitRoot {
  enum class Kind : uint8_t { kWork, kWay, kBetweenActs } kind = Kind::kWork;
  std::string name;           // of work: the function; of a way: the exchange; in all layers
  std::vector<RankId> ranks;  // that did the work, or sent; ascending
  double share = 0;           // of all waits
  double ns_per_step = 0;     // mean over the queues of all devices
};

// Returns "work", "on the way" or "between acts".
std::string Name(WaitRoot::Kind kind);

// Returns the roots of the waits in the steady steps (StepTimes::FirstSteady), most first.
std::vector<WaitRoot> FindWaitRoots(const RecordedRun& run);

}  // namespace weir::trace
