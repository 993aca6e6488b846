// An Engine decides when ranks work; what they do is RankExecutor's. Two exist: CAF
// actors on threads (caf_engine.h) and a seeded simulator on one thread (sim_engine.h).
// The answer does not depend on which.
// Thread rule: one caller at a time.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace weir {

class Engine {
 public:
  virtual ~Engine() = default;
  // Lets every actor do the acts of `steps` more steps and waits until all are done
  // and every message has arrived. A fault of any rank stops all and is returned, by
  // this call and all later ones. kAborted (W0516) if the plan can make no progress,
  // with the state of every unfinished actor.
  virtual absl::Status RunSteps(int64_t steps) = 0;
};

}  // namespace weir
