// A RecordedRun is a recorded run as a graph: the actors and registers of all ranks as the trace
// describes them, and every act with its time and its wait. A register between ranks, of which each
// rank knows one end, is one register here. In a simulation by symmetry, a rank of the trace stands
// for its class, and both ends of a register may be on that rank: the tokens that the rank sends to
// another rank of its class arrive as those that this other rank sends back. A register whose other
// end nobody stands for is left out.
//
// A queue of a device does one act at a time; a device that takes acts ahead may have several. A
// device with a depth of one act counts as one queue.
//
// Tokens and acts are numbered from step 0 of the job, even if a trace begins later: a plan is the
// same after each step, so the numbers follow from the step. Not here: reading files
// (trace_reader.h), causes (critical_path.h), other runs (replay.h).
// Thread rule: a value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/rank_ranges.h"
#include "runtime/base/rate.h"
#include "runtime/base/transfer/transfer_note.h"
#include "tools/trace/rank_classes.h"
#include "tools/trace/recorded_ids.h"
#include "tools/trace/step_times.h"
#include "tools/trace/trace_reader.h"

namespace weir::trace {

struct RecordedPort : Span {
  RecordedRegisterId register_index;
};

struct RecordedActor : Rate {
  RecordedRankId rank_index;
  RecordedQueueId queue;
  std::string name;
  std::string function;  // the user's name of the actor's function; else the actor's own
  std::string phase;
  int32_t priority = 0;    // the larger goes first
  Precedence precedence;   // of equal ones, the least actor goes first
  int64_t planned_ns = 0;  // of an act; 0: unknown
  bool ends_step = true;   // its acts may end a step (step_rule.h)
  std::vector<RecordedPort> inputs;
  std::vector<RecordedPort> outputs;
  // The acts kept, by number: places in the acts of the rank, -1 if an act is missing.
  int64_t first_act = 0;
  std::vector<int32_t> acts;
};

struct RecordedPortRef {
  RecordedActorId actor;
  int32_t port = -1;
};

struct RecordedRegister {
  std::string name;
  // The name without ranks that all registers of one exchange share; otherwise the name.
  std::string family;
  int64_t bytes = 0;  // of a slot
  int64_t slots = 1;
  int64_t initial_tokens = 0;
  int64_t arena_offset = -1;   // of slot 0, on the rank of the readers; negative: unknown
  int64_t planned_way_ns = 0;  // of a token between ranks, as the plan expects it; 0: unknown
  bool crosses_ranks = false;
  // Of a register that crosses ranks, the rank at the other end: as the reader knows it, or the
  // writer if the trace lacks the reader. None: unknown. A rank that the trace holds may stand for
  // it.
  RankId other_rank;
  std::shared_ptr<const TransferNote> note;  // what its transfer changes; null: unknown, or none
  RecordedPortRef producer;
  std::vector<RecordedPortRef> consumers;
};

struct RecordedAct {
  enum class Wait : uint8_t { kNone, kInput, kCredit };
  RecordedActorId actor;
  Wait wait = Wait::kNone;  // of the queue, before this act
  // The queue waited for the other ranks of the group of a collective. `wait` is then kNone.
  bool waited_for_group = false;
  RecordedRegisterId waited_register;
  int32_t previous = -1;  // on the same queue: a place in the acts of the rank; -1: none is kept
  int64_t number = 0;
  int64_t step = 0;
  // When it had what it waited for. On a device that takes acts ahead it may then wait for room; on
  // others this is the start.
  int64_t ready = 0;
  int64_t start = 0;
  int64_t end = 0;
  int64_t cpu_ns = -1;  // of the rank's thread; negative: not measured
};

struct RecordedState {
  std::string name;
  std::string state_class;  // "weights", "optimiser"
  int64_t bytes = 0;
  int64_t arena_offset = 0;
};

struct RecordedRank {
  RankId rank;
  RankRanges stands_for;  // the class of the rank, itself included
  std::string name;       // "rank 0 · stage 0"
  int32_t num_queues = 1;
  int32_t first_queue = 0;        // its queues have RecordedQueueIds from this one on
  int64_t depth = 1;              // acts that the device may have been given and not have done
  int64_t acts_dropped = 0;       // older than what the trace could keep
  std::vector<RecordedAct> acts;  // in the order of their ends
  // A RunBegin is an act before which the session rested and waited for its next call.
  struct RunBegin {
    int32_t act = 0;  // the first after the rest, a place in `acts`
    int64_t at = 0;   // the end of the rest
  };
  std::vector<RunBegin> runs;  // ascending
  int64_t arena_bytes = 0;     // 0: the trace does not say
  int64_t scratch_bytes = 0;   // of the arena
  std::vector<RecordedState> states;

  // Returns since when the queue of `act`, one of `acts`, had done everything before `act`: since
  // the act before it, or since a rest of the session. `begin` if neither is kept.
  int64_t FreeSince(const RecordedAct& act, int64_t begin) const;
  // A device that takes acts ahead passes tokens between actors of its rank when acts are issued.
  bool takes_ahead() const { return depth > 1; }
};

struct RecordedRun {
  IdVector<RecordedRankId, RecordedRank> ranks;  // ascending
  IdVector<RecordedActorId, RecordedActor> actors;
  IdVector<RecordedRegisterId, RecordedRegister> registers;
  // The steps of which every act of every rank is kept, with no step missing between them:
  // times.steps from first to last.
  int64_t first_step = 0;
  int64_t last_step = 0;
  StepTimes times;
  // The ranks of the job that the trace lacks and that no rank stands for, ascending.
  std::vector<RankId> missing;
  std::vector<MarkedFailure> failures;  // as the trace marks them, in order of time

  const StepTime& TimeOf(int64_t step) const { return times.steps[step - first_step]; }

  // Returns the act of that number; null if the act is not kept.
  const RecordedAct* Act(RecordedActorId actor, int64_t number) const {
    const RecordedActor& a = actors[actor];
    const int64_t at = number - a.first_act;
    if (at < 0 || at >= static_cast<int64_t>(a.acts.size()) || a.acts[at] < 0) return nullptr;
    return &ranks[a.rank_index].acts[a.acts[at]];
  }
  // Returns the act that published token `token` of a register; null if the token is initial or the
  // act is not kept.
  const RecordedAct* Publisher(RecordedRegisterId register_index, int64_t token) const;
  // Returns the act, among those of all consumers, that gave up the token last; null if one of them
  // is not kept.
  const RecordedAct* LastReader(RecordedRegisterId register_index, int64_t token) const;
  // TokenTaken returns the last token that an act takes from the register of `port`. The next
  // function returns the token that must have been given up before an act has its slots. Negative
  // if none.
  static int64_t TokenTaken(const RecordedPort& port, int64_t act) {
    return (port.SpanOf(act) + 1) * port.tokens - 1;
  }
  int64_t TokenInTheWay(const RecordedPort& port, int64_t act) const {
    const RecordedRegister& r = registers[port.register_index];
    return r.initial_tokens + (port.SpanOf(act) + 1) * port.tokens - 1 - r.slots;
  }
  // Return the ranks between which the tokens of a register go, as the reader knows them: the rank
  // of the producer may stand for the sender. Precondition: it crosses ranks and has both ends.
  RankId SenderOf(const RecordedRegister& r) const;
  RankId ReceiverOf(const RecordedRegister& r) const {
    return ranks[actors[r.consumers[0].actor].rank_index].rank;
  }
  // Returns the ranks of the trace with their classes.
  std::vector<RankClass> Classes() const;
  // Returns the tokens of a register in a step, mean over an update. Precondition: it has a
  // producer.
  double TokensPerStep(const RecordedRegister& r) const;
  // Returns the act whose end this act waited for, as the record says: the publisher of the token
  // or the last reader of the slot. Null if the act waited for nothing, or the cause is not kept.
  const RecordedAct* Cause(const RecordedAct& act) const;
};

// kFailedPrecondition if the trace does not hold the facts that a replay needs: it was written
// without facts of the plans, a rank is missing, or no step is complete; the message says which.
absl::StatusOr<RecordedRun> ReadRecordedRun(const TraceReader& trace);

// Reads a run of which the trace may lack ranks and whole steps, such as that of a job that failed.
// A register may then lack its producer or its consumers, and `times` may be empty; the acts of an
// actor that Act() knows then begin with those of first_step, whole or not, and include those after
// the last whole step. Such a run can be shown; only a run of ReadRecordedRun can be replayed.
absl::StatusOr<RecordedRun> ReadRunWithGaps(const TraceReader& trace);

}  // namespace weir::trace
