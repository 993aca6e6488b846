// A Plan: what one rank runs, as checked value types. Converted once from the
// RankPlan message at the edge; nothing behind this header sees a protobuf.
//
// A Plan that exists is sound by itself: ids are dense, every port names a register,
// every register has one producer, spans divide an iteration evenly and rates agree,
// every step can end without the next, every operand lies inside the memory it names,
// every register and state lies inside the arena.
// actors/plan/verify_plans.h checks that the plans of several ranks fit together, and
// actors/plan/certificate.h checks that they cannot come to a standstill.
// Thread rule: values; read by any number of threads once built.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "runtime/base/alignment.h"
#include "runtime/base/attributes.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/rate.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/base/transfer/transfer.h"
#include "runtime/base/transfer/transfer_note.h"

namespace weir::actors {

struct PlanOperand {
  enum class Place : uint8_t { kInput, kOutput, kScratch, kState, kNone };
  Place place = Place::kNone;
  int32_t index = 0;  // port of the actor, or k-th entry of the actor's states
  int64_t byte_offset = 0;
  TensorSlice slice;
  int32_t token = 0;  // kInput, kOutput: which of those that the port holds
};

struct PlanCall {
  std::string op;
  std::string name;
  Attributes attrs;
  std::vector<PlanOperand> inputs;
  std::vector<PlanOperand> outputs;
  uint64_t rng_key = 0;
  Transfer transfer;  // without a flaw
};

struct PlanProgram {
  std::string name;
  std::vector<PlanCall> calls;
  int64_t scratch_bytes = 0;
};

struct PlanPort : Span {
  RegisterId register_id;
};

// The start times of an actor's acts. `time_ns` is at least 1.
struct PlanTiming : Timing {
  std::vector<int64_t> act_start_ns;  // of each act of an iteration; empty: by the formula
};

// The rhythm of the job; iteration i begins with step i * steps_per_iteration.
struct PlanRhythm {
  int32_t steps_per_iteration = 1;
  int64_t iteration_ns = 0;
  int64_t step_ns = 0;
  int64_t micro_batch_ns = 0;
};

enum class ActorKind : uint8_t { kCompute, kSource, kSink, kSend, kCollective };
enum class ActorPhase : uint8_t {
  kNone,
  kForward,
  kBackward,
  kUpdate,
  kBoxing,
  kData,
  kMetric,
  kWeightGradient
};
const char* Name(ActorKind kind);
const char* Name(ActorPhase phase);

struct PlanActor : Rate {
  ActorId id;
  std::string name;
  ActorKind kind = ActorKind::kCompute;
  ProgramId program;  // none: it runs no program; that of a kCollective has collectives alone
  std::vector<PlanPort> inputs;
  std::vector<PlanPort> outputs;
  std::vector<StateId> states;
  int32_t priority = 0;
  Precedence precedence;
  PlanTiming timing;
  uint64_t instance = 0;
  std::string feed;
  TensorSlice feed_slice;
  int64_t feed_below = 0;   // values of an integer feed are from 0 to below this; 0: any
  std::string feed_reader;  // why, for people: "an index along dimension vocab of …"
  std::optional<int64_t> feed_ignored;  // a value that an integer feed may have besides
  std::string function;
  ActorPhase phase = ActorPhase::kNone;
  QueueId queue{0};  // of the device
  // The note says what the transfer of this actor changes. Null: the actor serves no transfer, or
  // the plan has no note.
  std::shared_ptr<const TransferNote> note;
};

struct PortRef {
  ActorId actor;
  int32_t port = -1;
};

// The actor at the other end of a remote register, as this rank is told of it.
struct PlanFarActor : Rate {
  std::string name;
  PlanPort port;  // of no register here
  PlanTiming timing;
};

enum class RegisterSide : uint8_t { kLocal, kInbound, kOutbound };
const char* Name(RegisterSide side);

struct PlanRegister {
  RegisterId id;
  std::string name;
  int64_t bytes = 0;
  int32_t slots = 1;
  int32_t initial_tokens = 0;
  RegisterSide side = RegisterSide::kLocal;
  RankId peer;
  EdgeId edge;
  int64_t arena_offset = 0;
  int64_t stride = 0;
  int64_t tokens_per_step = 1;  // in `every` steps together
  int32_t every = 1;
  int64_t latency_ns = 0;
  std::vector<PlanFarActor> far;  // kOutbound: consumers; kInbound: the producer, if they are given
  // Derived. No producer for kInbound, no consumers for kOutbound.
  PortRef producer;
  std::vector<PortRef> consumers;
};

struct PlanInitializer {
  enum class Kind : uint8_t { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  double a = 0;  // kNormal: standard deviation; kUniform: low
  double b = 0;  // kNormal: mean; kUniform: high
};

// A StateClass says what a state is for (StateSpec::Class).
enum class StateClass : uint8_t { kWeight, kOptimizerSlot, kDelayedGradient, kFetched };
// Convert between the value and its form in a message; nullopt: a class of another version.
std::optional<StateClass> FromProto(proto::StateSpec::Class state_class);
proto::StateSpec::Class ToProto(StateClass state_class);

struct PlanState {
  std::string name;
  StateClass state_class = StateClass::kWeight;
  std::string weight;  // kOptimizerSlot, kDelayedGradient: whose
  TensorSlice slice;
  std::string layout;
  int64_t arena_offset = 0;
  PlanInitializer init;
  bool owner = false;
  // Given: the state lies in the slot that token `token` of this register has between steps.
  RegisterId register_id;
  int32_t token = 0;
};

// Round r of a step is act r + ahead of each entry that has it, in this order.
struct PlanStream {
  struct Entry {
    ActorId actor;
    int32_t ahead = 0;
  };
  std::string name;
  std::vector<Entry> entries;
};

// The acts of a rank whose kernels the device may keep as a graph. kAuto: those that the plan
// expects to take less time than the launches of their kernels.
enum class GraphUse : uint8_t { kOff, kAuto, kOn };

// Returns whether an act of so many kernels, which takes `time_ns` by the costs of the plan,
// becomes a graph. A launch takes the host 4 to 5 us, and as long again where the driver is slow:
// kernels that take longer hide their launches.
inline bool IsGraph(GraphUse use, int64_t num_kernels, int64_t time_ns) {
  constexpr int64_t kShortKernelNs = 10'000;
  if (use == GraphUse::kOff || num_kernels < 2) return false;
  return use == GraphUse::kOn || time_ns < num_kernels * kShortKernelNs;
}

struct Plan {
  RankId rank{0};
  int32_t num_ranks = 1;
  std::string plan_id;
  uint64_t seed = 0;
  int64_t micro_batches = 1;
  IdVector<ProgramId, PlanProgram> programs;
  IdVector<ActorId, PlanActor> actors;
  IdVector<RegisterId, PlanRegister> registers;
  IdVector<StateId, PlanState> states;
  int64_t arena_bytes = 0;
  int64_t scratch_bytes = 0;  // at the arena's start
  // Where the scratch of each queue begins. Its size is that of the largest program of the queue.
  IdVector<QueueId, int64_t> scratch_offsets;
  int32_t num_queues = 1;  // of the device
  int32_t depth = 1;       // acts that the device may have been given and not have done
  GraphUse graphs = GraphUse::kOff;
  std::string device;       // where it stands in the mesh, for people
  std::string device_kind;  // runtime/device/device_factory.h
  int32_t stage = 0;
  int32_t num_stages = 1;
  std::string schedule;         // of the pipeline, for people
  double predicted_bubble = 0;  // 0: unknown
  int32_t virtual_stages = 1;   // parts on each stage
  int32_t stages_in_a_row = 1;  // on the longest way of a micro-batch; all stages in a chain
  PlanRhythm rhythm;
  IdVector<StreamId, PlanStream> streams;
};

// Converts and checks. Every error is kInvalidArgument with a code:
//   W0501 the plan as a whole   W0502 a program or operand   W0503 an actor
//   W0504 a register            W0505 a state             W0508 start times
// Safe on any message whatever: no size is trusted before it is bounded.
absl::StatusOr<Plan> PlanFromProto(const proto::RankPlan& proto);

}  // namespace weir::actors
