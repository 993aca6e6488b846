#include "tests/chaos/bug_catalogue.h"

namespace weir::chaos {

const std::vector<CatalogueEntry>& BugCatalogue() {
  using B = PlantedBug;
  static const auto* entries = new std::vector<CatalogueEntry>{
      {B::kInitialTokenForgotten, "initial token forgotten",
       "a reader does not know of tokens that are there at first"},
      {B::kCreditTooManyAtStart, "credit off by one",
       "a producer begins with one slot more than there is"},
      {B::kLimitOffByOne, "limit off by one", "an actor does one act more than the steps have"},
      {B::kLostWakeUp, "lost wake-up",
       "an actor whose last missing thing is a credit is not made ready"},
      {B::kCreditLostWhileRunning, "credit lost while running",
       "a credit that comes during an act is not counted"},
      {B::kSecondCreditLost, "second credit lost",
       "a credit is not counted while another is unused"},
      {B::kSlotsDoNotGoRound, "slots do not go round", "every span uses the same slot"},
      {B::kSpanTooLong, "accumulates over m + 1", "a span of several acts ends one act late"},
      {B::kSpanTooShort, "accumulates over m - 1", "a span of several acts ends one act early"},
      {B::kPhaseForgotten, "phase forgotten", "the first span of a port is as long as the others"},
      {B::kSpanInOneSlot, "span in one slot",
       "all tokens of a span are looked for in its first slot"},
      {B::kWritesWithoutCredit, "writes without credit", "an act begins though no slot is free"},
      {B::kFreedByFirstReader, "slot reused too early",
       "the first of several readers frees the slot"},
      {B::kCreditBeforeReadDone, "ack before the read is done",
       "credits go back when the act begins"},
      {B::kTokenBeforeActEnds, "token before the act ends",
       "tokens are published when the act begins"},
      {B::kTokenToldTwice, "token told twice", "the first consumer hears of each token twice"},
      {B::kCreditTwice, "ack twice", "a local producer gets each credit twice"},
      {B::kCreditNeverSent, "credit never sent", "the last of several slots never comes back"},
      {B::kCreditToWrongEdge, "credit to the wrong edge",
       "credits go to the next edge of the rank"},
      {B::kArrivalOrder, "arrival-order operands",
       "an act takes its operands in the order in which they came"},
      {B::kBindsFirstSlot, "always writes slot 0",
       "a kernel is bound to the first slot whatever the span holds"},
      {B::kChunkForgotten, "chunk forgotten", "every chunk counts as a micro-batch"},
      {B::kErrorDropped, "error dropped", "a rank goes on after an error of the transport"},
      {B::kQueueNotAwaited, "queue not awaited",
       "an act reads and writes without a wait for what other queues do to its slots"},
      {B::kLeavesWhenIssued, "leaves when issued",
       "messages and credits leave a rank before the device has done the act"},
      {B::kWorkspaceShared, "workspace shared", "the kernels of all queues have one workspace"},
      {B::kWaitRememberedTooFar, "wait remembered too far",
       "a queue that waited for one act counts as having waited for the next"},
      {B::kStaleEpochAccepted, "stale epoch accepted", "a message of the epoch before is let in"},
      {B::kForeignAccepted, "another job accepted", "a message of another job is let in"},
      {B::kOrderUnchecked, "sequence not checked", "messages of an edge are taken as they come"},
      {B::kTwiceAccepted, "duplicate accepted", "a message that came already is let in again"},
      {B::kTruncatedAccepted, "short payload accepted", "the length of a payload is not compared"},
      {B::kPayloadNotAwaited, "payload not awaited",
       "a token is handed over before its bytes are there"},
      {B::kLeavingIgnored, "slot left too early",
       "a slot is used again before its last message has left"},
  };
  return *entries;
}

}  // namespace weir::chaos
