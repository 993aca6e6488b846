// Names in a trace file that its writer and its report share.
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
