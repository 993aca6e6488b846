// The names in a trace file that its writer and its report agree on.
#pragma once

namespace weir {

// Categories of slices.
inline constexpr char kTraceAct[] = "act";
inline constexpr char kTraceWaitsForInput[] = "waits for input";
inline constexpr char kTraceWaitsForCredit[] = "waits for credit";
inline constexpr char kTraceRest[] = "rest";
// The track of a device's waits.
inline constexpr char kTraceWaits[] = "waits";
// Instants that describe the job and each rank.
inline constexpr char kTraceJobEvent[] = "weir.job";
inline constexpr char kTraceRankEvent[] = "weir.rank";

}  // namespace weir
