// Defines when a training step begins and ends: one rule for traces, their reports and replays. The
// simulator's figures run from one update of the weights to the next, which takes the same time.
//
//   A step ends when its last act on any rank ends that is no report. Reports are the acts that
//   compute or print metrics, and the acts whose results only reports read, such as a norm of
//   gradients that clips nothing and the transfers on its way: a device does reports when it has no
//   other work, which may be a whole step later. The last step of a run of the session ends when
//   every act of the run has ended. A step begins where the step before it ended; the first step of
//   a run begins with the run.
//
// The steps of a run therefore tile the run: their sum is the run's wall time, and rests between
// runs belong to no step. In a plan of reports alone, a step ends with its last act. Not here:
// finding the acts of a trace (step_times.h), and the numbers that people see
// (runtime/trace/trace_names.h). Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/base/id_vector.h"
#include "tools/trace/recorded_ids.h"

namespace weir::trace {

// A StepActor is an actor as the rule sees it. Registers are numbered over all ranks, so that both
// ends of a transfer have one number.
struct StepActor {
  enum class Kind : uint8_t {
    kWork,
    kTransfer,  // moves what another actor made
    kReport,    // computes or prints a metric
  };
  Kind kind = Kind::kWork;
  std::vector<RecordedRegisterId> reads;
  std::vector<RecordedRegisterId> writes;
};

// Returns the kind of an actor whose phase has this name (the names of phases in plans and traces).
StepActor::Kind StepKindOf(absl::string_view phase);

// Returns, by actor, whether the end of its act may be the end of the step. `num_registers` is more
// than every number in `actors`. A transfer whose token nobody reads here counts as a report,
// because it serves the reports of other ranks.
IdVector<RecordedActorId, char> ActorsThatEndSteps(
    const IdVector<RecordedActorId, StepActor>& actors, int32_t num_registers);

}  // namespace weir::trace
