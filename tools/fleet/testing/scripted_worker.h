// A worker process for tests of the fleet. The worker holds no ranks and answers commands by a
// script: the number of steps of a RunCommand says what the worker does.
// Thread rule: one worker per process.
#pragma once

#include <cstdint>

#include "proto/worker.pb.h"

namespace weir::fleet {

enum class Script : uint8_t {
  kAnswers,          // plan_id "worker <number>"
  kRefuses,          // answers with an error, W0001
  kExits,            // with code 3
  kIsKilled,         // by a signal
  kStops,            // the process is stopped and beats no more
  kWaits,            // beats, but makes no progress and gives no answer
  kTells,            // reports a failure that it did not cause (W0522), and waits
  kAnswersNonsense,  // with bytes that are no WorkerAnswer
  kForges,           // publishes the card of rank 0, and answers with the result
};

// Reads a WorkerBundle from standard input and serves until the job ends. Returns the exit code of
// the process.
int RunScriptedWorker();

// Returns the command that makes a scripted worker follow the script.
inline proto::WorkerCommand CommandFor(Script script) {
  proto::WorkerCommand command;
  command.mutable_run()->set_steps(static_cast<int64_t>(script));
  return command;
}

}  // namespace weir::fleet
