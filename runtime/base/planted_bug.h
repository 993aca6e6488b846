// Bugs that are planted on purpose, one at a time, to see whether the tests of chaos find
// them. Each stands in the code as `Planted(PlantedBug::kX)`, which is the constant false
// unless the source is compiled with WEIR_PLANTED_BUGS. Only //tests/chaos:mutants is, from
// sources of its own, so nothing that users run can have one.
//
// To plant another: an enumerator here, its line in tests/chaos/bug_catalogue.cc, one
// Planted() where it belongs.
// Thread rule: set before anything runs.
#pragma once

#include <cstdint>

namespace weir {

enum class PlantedBug : uint8_t {
  kNone,
  // ActorMachine
  kInitialTokenForgotten,
  kCreditTooManyAtStart,
  kLimitOffByOne,
  kLostWakeUp,
  kCreditLostWhileRunning,
  kSecondCreditLost,
  kSlotsDoNotGoRound,
  kSpanTooLong,
  kSpanTooShort,
  kPhaseForgotten,
  kSpanInOneSlot,
  kWritesWithoutCredit,
  // SlotLedger and RankExecutor
  kFreedByFirstReader,
  kCreditBeforeReadDone,
  kTokenBeforeActEnds,
  kTokenToldTwice,
  kCreditTwice,
  kCreditNeverSent,
  kCreditToWrongEdge,
  kArrivalOrder,
  kBindsFirstSlot,
  kChunkForgotten,
  kErrorDropped,
  kQueueNotAwaited,
  kLeavesWhenIssued,
  kWorkspaceShared,
  kWaitRememberedTooFar,
  // MessageLedger
  kStaleEpochAccepted,
  kForeignAccepted,
  kOrderUnchecked,
  kTwiceAccepted,
  kTruncatedAccepted,
  kPayloadNotAwaited,
  kLeavingIgnored,
};
inline constexpr int kNumPlantedBugs = static_cast<int>(PlantedBug::kLeavingIgnored);  // but kNone

#ifdef WEIR_PLANTED_BUGS
inline constexpr bool kPlantsBugs = true;
inline PlantedBug planted_bug = PlantedBug::kNone;
inline bool Planted(PlantedBug bug) { return planted_bug == bug; }
#else
inline constexpr bool kPlantsBugs = false;
constexpr bool Planted(PlantedBug) { return false; }
#endif

}  // namespace weir
