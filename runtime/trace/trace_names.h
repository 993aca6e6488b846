// The names in a trace file that its writer and its report agree on.
#pragma once

#include <cstdint>

namespace weir {

// The sequence of the packets that describe the job; that of a rank is its number and 2.
inline constexpr uint32_t kTraceJobSequence = 1;

// Categories of slices.
inline constexpr char kTraceAct[] = "act";
inline constexpr char kTraceWaitsForInput[] = "waits for input";
inline constexpr char kTraceWaitsForCredit[] = "waits for credit";
inline constexpr char kTraceRest[] = "rest";
// The track of a device's waits.
inline constexpr char kTraceWaits[] = "waits";
// Annotations of a wait for another rank: the exchange that a token is part of, and the flow
// of the token; of a wait for credit, of that which last lay in the slot.
inline constexpr char kTraceBoxing[] = "boxing";
inline constexpr char kTraceFlow[] = "flow";
// Annotation of an act: which of the rank's actors, where several have one name.
inline constexpr char kTraceActor[] = "actor";
// Instants that describe the job and each rank.
inline constexpr char kTraceJobEvent[] = "weir.job";
inline constexpr char kTraceRankEvent[] = "weir.rank";

// Of an act: CPU time of the rank's own thread in it, in microseconds.
inline constexpr char kTraceCpu[] = "cpu_us";

// Of the job: how many ranks it has,
inline constexpr char kTraceRanks[] = "ranks";
// its pipeline schedule, and the bubble that its compiler expects, in millionths.
inline constexpr char kTraceSchedule[] = "schedule";
inline constexpr char kTracePredictedBubble[] = "predicted bubble";

}  // namespace weir
