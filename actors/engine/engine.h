// An Engine decides when ranks work; RankExecutor does the work. Two engines exist: CAF actors on
// threads (caf_engine.h) and a seeded simulator on one thread (sim_engine.h). Results do not depend
// on the engine.
// Thread rule: one caller at a time; any thread may call Stop meanwhile.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace weir::actors {

class Engine {
 public:
  virtual ~Engine() = default;
  // Lets every actor do the acts of `steps` more steps and waits until all are done and every
  // message has arrived. A fault of any rank stops all ranks and is returned, by this call and all
  // later calls. kAborted (W0516) if the plan can make no progress, with the state of every
  // unfinished actor. After an error no rank works.
  virtual absl::Status RunSteps(int64_t steps) = 0;
  // Makes the present run, and all later runs, return `reason`, which must not be ok, as soon as
  // the acts that run have ended. Does not wait. An earlier fault stays.
  virtual void Stop(absl::Status reason) = 0;
  // Returns the fault that all later runs will return; OK: none so far. A rank that waits between
  // two runs may meet one, such as a connection that breaks. Any thread.
  virtual absl::Status fault() const { return absl::OkStatus(); }
};

}  // namespace weir::actors
