// Writes a Perfetto file from the act records of all ranks. The file has a process per rank, a
// track per phase with a slice per act, a track of the waits of the device with the name and the
// holder of the awaited register, arrows from a send to the act that takes its token, and the fill
// of the larger registers. A device with several queues has a track of acts and a track of waits
// per queue instead. A field that viewers skip has the facts of the plan for a replay: actors with
// priorities and ports, registers with slots.
//
// Several processes may write a job's ranks: their files, one after another in any order, are one
// trace. Ids of tracks, flows and sequences come from ranks, edges and tokens, so the files fit
// together; one of them describes the job. Not here: recording (act_record.h), reading the file
// back (trace_report.h). The input is described without plans or engines, which lie above this
// folder.
// Thread rule: pure functions of values; the ranks must be at rest.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/rank_ranges.h"
#include "runtime/base/rate.h"
#include "runtime/base/tick_clock.h"
#include "runtime/base/transfer/transfer_note.h"
#include "runtime/trace/act_record.h"

namespace weir::trace {

// A TracedPort is a port of an actor as the trace needs it.
struct TracedPort {
  RegisterId register_id;
  Span span;
};

struct TracedActor : Rate {
  std::string name;
  std::string function;  // the user's name of what it does; may be empty
  std::string phase;     // names its track
  std::vector<TracedPort> inputs;
  std::vector<TracedPort> outputs;
  int32_t priority = 0;
  Precedence precedence;
  int64_t planned_ns = 0;  // of an act, by the costs that the plan was made with; 0: unknown
  QueueId queue{0};        // of the device
};

struct TracedRegister {
  std::string name;
  int64_t bytes = 0;  // of a slot
  int32_t slots = 1;
  int32_t initial_tokens = 0;
  // Of a register that crosses ranks: the same at both ends. Where ranks stand for others, the
  // sender's register has the edge of the reader that stands for its own reader.
  EdgeId edge;
  bool crosses_ranks = false;
  std::string boxing;  // of crossing registers: the exchange to which the register belongs
  // The actors that must act before a token comes, and before a slot is free: "actor 'x' on rank
  // 1", or "rank 1" if another process knows more.
  std::string token_holder;
  std::string slot_holder;
  RankId other_rank;          // at the other end of a register that crosses ranks
  int64_t arena_offset = -1;  // of slot 0; negative: unknown, or on the other rank
  // From the end of the sender's act until the token is there, by the costs that the plan was made
  // with; 0: unknown.
  int64_t planned_way_ns = 0;
  // The note of a crossing register says what the register's transfer changes. Null: it is unknown,
  // or the register does not cross. Registers of equal transfers share a note.
  std::shared_ptr<const TransferNote> note = nullptr;
  // No rank stands for the other end, and messages count as being on time.
  bool on_time = false;
};

// A TracedState is memory with a fixed place: a weight, or what the optimiser keeps.
struct TracedState {
  std::string name;
  std::string state_class;  // "weights", "optimiser"
  int64_t bytes = 0;
  int64_t arena_offset = 0;
};

struct TracedRank {
  RankId rank{0};
  std::string device;  // "stage 0, dp=0"
  IdVector<ActorId, TracedActor> actors;
  IdVector<RegisterId, TracedRegister> registers;
  const ActRing* acts = nullptr;
  TickScale scale;
  // Queues that work beside each other: 1 on a device that does one act at a time.
  int32_t num_queues = 1;
  int32_t depth = 1;          // acts that the device may have been given and not have done
  int64_t arena_bytes = 0;    // 0: unknown
  int64_t scratch_bytes = 0;  // of the arena
  std::vector<TracedState> states;
  RankRanges stands_for;  // the rank's class, itself included; empty: itself alone
};

struct TracedJob {
  std::string plan_id;
  int32_t num_ranks = 0;  // of the whole job, in all processes; 0: the ranks here
  int32_t num_stages = 1;
  int64_t micro_batches = 1;
  std::string schedule;         // of the pipeline; empty with one stage
  double predicted_bubble = 0;  // what the compiler expects of it; 0: unknown
  int32_t virtual_stages = 1;   // parts on each stage
  int32_t stages_in_a_row = 0;  // on the longest way of a micro-batch; 0: all, as in a chain
  int64_t first_step = 0;
  RankId describing_rank{0};  // the process that writes this rank describes the job
  std::vector<TracedRank> ranks;
};

// A TraceFailure is a failure that ended a job, as the trace of the job marks it.
struct TraceFailure {
  int64_t ns = 0;             // when it was noticed, by the clock of the trace
  std::vector<RankId> ranks;  // of the process that failed; empty: the job as a whole
  std::string text;           // "killed by SIGKILL (9)"
};

// Returns the time when the trace of these ranks begins: before the first act of any rank, or, if
// old records have been dropped, when all ranks have records. In time of the ranks' scales; 0
// without acts.
int64_t TraceBeginNs(const TracedJob& job);

// Writes the acts that began at `begin_ns` or later to `out`. kDataLoss if the stream fails.
absl::Status WriteTrace(const TracedJob& job, int64_t begin_ns, std::ostream& out);

// Writes the marks of failures. They belong behind the parts of all ranks. kDataLoss if the stream
// fails.
absl::Status WriteFailures(const std::vector<TraceFailure>& failures, std::ostream& out);

}  // namespace weir::trace
