// RankExecutorOptions are what a rank gets besides its plan; RankMemory is the memory that the rank
// takes. Thread rule: values.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "actors/engine/feed.h"
#include "actors/plan/plan.h"
#include "actors/plan/shared_states.h"
#include "runtime/base/clock.h"
#include "runtime/collective/local_collective.h"
#include "runtime/transport/exchange.h"

namespace weir::actors {

// CollectiveMeans do the collectives of ranks: either `polled`, at meetings of ranks on the host,
// or `library`, in the last queue of the device. That device is a CUDA device with a queue for
// collectives alone and room for NumCollectivesInFlight acts beside the plan's depth
// (stream_collectives.h). All means outlive the ranks.
struct CollectiveMeans {
  collective::PolledCollectives* polled = nullptr;
  collective::CollectiveLibrary* library = nullptr;  // null: `polled`
  transport::Exchange* exchange = nullptr;           // where ids of the library's groups travel
};

struct RankExecutorOptions {
  DataFeed* feed = nullptr;     // needed if the plan has SOURCE actors
  MetricSink* sink = nullptr;   // may be null: metrics are dropped
  StateInitializer state_init;  // null: states are zero
  enum class Compute : uint8_t {
    kRun,   // kernels, feeds and sinks
    kSkip,  // the protocol alone: no kernel is made, no memory is taken
  };
  Compute compute = Compute::kRun;
  const Clock* clock = nullptr;  // of the trace; null: TickClock
  int64_t trace_capacity = 1 << 14;
  int64_t first_step = 0;
  uint32_t epoch = 1;  // of the plan, and
  uint16_t role = 0;   // which of the job's networks: in every message, and checked
  // Returns the time that an act takes on a device with virtual time. Null: an act takes no time.
  std::function<int64_t(const Plan& plan, const PlanActor& actor)> cost_ns;
  // These means do the collectives, and outlive the executor. Null: an act of a collective takes
  // its time on the device, moves nothing, and waits for nobody.
  const CollectiveMeans* collectives = nullptr;
  // Where the weights lie that the plan does not hold itself, and the arena of the rank that has
  // them, which outlives the executor. The rank never runs while its owner runs. Null: the plan
  // holds all its states.
  const SharedStates* shared = nullptr;
  char* owner_arena = nullptr;
  // Is called after every act of a program with the time of each of its kernels. Null: nobody
  // measures.
  std::function<void(const PlanActor& actor, absl::Span<const int64_t> kernel_ns)> on_kernels;
};

// Bytes of a rank beside the code; `arena` is what the plan says.
struct RankMemory {
  int64_t arena_bytes = 0;      // of it pages that nothing lies in are never backed
  int64_t scratch_bytes = 0;    // part of the arena
  int64_t workspace_bytes = 0;  // of kernels
  int64_t staging_bytes = 0;    // for edges whose landing buffer cannot be mapped
  int64_t landing_bytes =
      0;  // of the transport, for inbound registers, instead of their place in the arena
};

}  // namespace weir::actors
