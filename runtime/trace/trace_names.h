// Names in a trace file that its writer and its report share, and the numbers of steps.
//
// Steps have two numbers. The code counts steps from 0, like acts and tokens: a step's *index* is
// the number of steps done before it. All that people and other programs see counts from 1, as
// metrics and checkpoints do: a step's *number* is the number of steps done when it ends. Trace
// files, the reports on them and the page hold numbers. IndexOfStep and NumberOfStep are the one
// place that converts: a number where it is read from a file or a command line, an index where it
// is written or printed. Thread rule: constants and pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace weir::trace {

// The sequences of the packets that describe the job, and of its failures. The sequence of a rank
// is its number plus 2.
inline constexpr uint32_t kTraceJobSequence = 1;
inline constexpr uint32_t kTraceFailureSequence = 0xffffffff;

// Categories of slices.
inline constexpr char kTraceAct[] = "act";
inline constexpr char kTraceWaitsForInput[] = "waits for input";
inline constexpr char kTraceWaitsForCredit[] = "waits for credit";
inline constexpr char kTraceWaitsForGroup[] = "waits for group";
inline constexpr char kTraceRest[] = "rest";
// The track of a device's waits and rests. A device with several queues has only its rests there.
inline constexpr char kTraceWaits[] = "waits";
// Annotations of a wait for another rank: the exchange of the token, and the flow of the token; for
// a wait for credit, those of the token that last lay in the slot.
inline constexpr char kTraceBoxing[] = "boxing";
inline constexpr char kTraceFlow[] = "flow";
// Annotation of an act: the number of its actor on the rank, where several actors have one name.
inline constexpr char kTraceActor[] = "actor";
// Annotation of acts and waits of a device with several queues: the queue.
inline constexpr char kTraceQueue[] = "queue";
// Instants that describe the job and each rank.
inline constexpr char kTraceJobEvent[] = "weir.job";
inline constexpr char kTraceRankEvent[] = "weir.rank";

// The category of an instant that marks a failure on the track of its rank, or of the job. The name
// of the instant is the failure in words.
inline constexpr char kTraceFailure[] = "failure";

// The number of the step whose index is 0.
inline constexpr int64_t kFirstStepNumber = 1;

// Each returns what the other was given, for all numbers: they wrap around, so a number from a
// damaged file or a command line needs no check before.
constexpr int64_t NumberOfStep(int64_t index) {
  return static_cast<int64_t>(static_cast<uint64_t>(index) + uint64_t{kFirstStepNumber});
}
constexpr int64_t IndexOfStep(int64_t number) {
  return static_cast<int64_t>(static_cast<uint64_t>(number) - uint64_t{kFirstStepNumber});
}

// Annotation of an act: the number of its step.
inline constexpr char kTraceStep[] = "step";
// Annotations of the job: the number of its first step, and kFirstStepNumber. Files of earlier
// versions lack the second; their steps count from 0.
inline constexpr char kTraceFirstStep[] = "first step";
inline constexpr char kTraceStepsCountFrom[] = "steps count from";

// Annotation of an act: the CPU time of the rank's own thread in the act, in microseconds.
inline constexpr char kTraceCpu[] = "cpu_us";

// Annotation of the job: its number of ranks.
inline constexpr char kTraceRanks[] = "ranks";
// Annotations of the job: its pipeline schedule, and the bubble that its compiler expects, in
// millionths.
inline constexpr char kTraceSchedule[] = "schedule";
inline constexpr char kTracePredictedBubble[] = "predicted bubble";
inline constexpr char kTraceVirtualStages[] = "virtual stages";  // absent: 1
inline constexpr char kTraceStagesInARow[] = "stages in a row";  // absent: all

// Returns whether acts of a phase belong to the passes of a micro-batch, of which a pipeline's
// schedule consists.
inline bool IsPassPhase(std::string_view phase) {
  return phase == "forward" || phase == "backward" || phase == "weight gradient";
}

}  // namespace weir::trace
