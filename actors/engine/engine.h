// An Engine decides when ranks work; what they do is RankExecutor's. Two exist: CAF
// actors on threads (caf_engine.h) and a seeded simulator on one thread (sim_engine.h).
// The answer does not depend on which.
// Thread rule: one caller at a time; Stop may be called by any thread meanwhile.
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
  // with the state of every unfinished actor. Once it has returned an error, no rank works.
  virtual absl::Status RunSteps(int64_t steps) = 0;
  // Makes a run that goes on return `reason`, which is not ok, as soon as the acts that run
  // have ended, and all later ones. Does not wait. A fault that was before it stays.
  virtual void Stop(absl::Status reason) = 0;
};

}  // namespace weir
