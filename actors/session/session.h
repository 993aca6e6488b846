// A Session holds the plans of a job's ranks, loaded into this process, and runs them. A trainer
// needs only this header of `actors`.
//
//   Create -> { RunSteps | ReadState | WriteState | WriteTrace | ... }* -> destruct
//
// A session has all ranks of the job, or, with a network given, the ranks of this process; the
// other ranks live in sessions of other processes. In that case all processes run the same steps,
// and no process begins a run, or ends, before all have returned from the last run. Ranks are named
// by their number in the job. Between two RunSteps nothing moves: states may be read and written.
// Not here: what a step means (the plan), data and metrics (feed.h), files of weights, finding
// other processes (runtime/control).
// Thread rule: one thread at a time, but any thread may call Stop and Progress; feed, sink and
// initializer are called from the threads of the ranks, more than one at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/engine/caf_engine.h"
#include "actors/engine/engine.h"
#include "actors/engine/feed.h"
#include "actors/engine/rank_executor.h"
#include "actors/engine/sim_engine.h"
#include "actors/engine/step_account.h"
#include "actors/engine/wait_graph.h"
#include "actors/plan/plan.h"
#include "actors/plan/shared_states.h"
#include "actors/session/progress.h"
#include "proto/plan.pb.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "runtime/base/tick_clock.h"
#include "runtime/collective/local_collective.h"
#include "runtime/collective/virtual_collective.h"
#include "runtime/transport/exchange.h"
#include "runtime/transport/transport.h"

namespace weir::trace {
class KeptActs;
}  // namespace weir::trace

namespace weir::actors {

class Session;

struct SessionOptions {
  int threads_per_device = 1;
  DataFeed* feed = nullptr;     // must outlive the session
  MetricSink* sink = nullptr;   // must outlive the session
  StateInitializer state_init;  // null: SeededInitializer of the plan's seed
  enum class EngineKind : uint8_t { kCaf, kSim } engine = EngineKind::kCaf;
  int64_t trace_capacity = 1 << 16;  // acts kept per rank; the oldest go first
  int64_t first_step = 0;            // the number of the first step (resuming)

  // Connects the ranks of this process with those of others; must outlive the session, which closes
  // its endpoints. Null: all ranks of the job are in this process. For kCaf.
  transport::TransportNetwork* network = nullptr;
  // Identifies the incarnation of the plan and one of the job's networks. Every message carries the
  // epoch, and the receiver checks it. Must equal the network's own.
  uint32_t epoch = 1;
  uint16_t role = 0;
  // Devices of the job on this host, in all processes; rank r has the one with the number r modulo
  // this. 0: as many as the job has ranks.
  int devices_on_host = 0;

  // The library that does the collectives of the plans.
  enum class Collectives : uint8_t {
    kLocal,  // meetings of the ranks of this process, at the host
    // NCCL, on the streams of the GPUs: one rank for each process and GPU. Emulated GPUs have an
    // emulation of NCCL, for the ranks of one process.
    kNccl,
  } collectives = Collectives::kLocal;
  // Where the ids of NCCL's groups travel between processes; must outlive the session. Null: all
  // ranks of the job are in this process.
  transport::Exchange* exchange = nullptr;

  // The session of the same ranks whose weights this session reads where they lie
  // (plan/shared_states.h), on the same devices. That session outlives this one, and the two never
  // run at the same time. Null: this session has all its states itself.
  const Session* weights_of = nullptr;

  // Is called, by the thread of the rank, after every act of a program with the time of each of its
  // kernels, which the device then does one by one while the host waits. Null: nobody measures.
  std::function<void(const Plan& plan, const PlanActor& actor, absl::Span<const int64_t> kernel_ns)>
      on_kernels;

  CafEngineOptions caf;  // the session sets `rest`

  // The fields below are for kSim.
  SimEngineOptions sim;
  RankExecutorOptions::Compute compute = RankExecutorOptions::Compute::kRun;
  transport::SimNetwork::Mapping sim_mapping = transport::SimNetwork::Mapping::kCopied;
  std::function<int64_t(const Plan& plan, const PlanActor& actor)> sim_cost_ns;
  std::function<int64_t(int64_t bytes, RankId from, RankId to)> sim_latency_ns;
};

// An EdgeReport counts the traffic of one remote edge.
struct EdgeReport {
  EdgeId edge;
  std::string register_name;
  RankId from;
  RankId to;
  int64_t payload_bytes = 0;
  int64_t tokens = 0;
};

// RankWorkReport gives the work of a rank since the session began (RankWork), in ns.
struct RankWorkReport {
  RankId rank;
  int stage = 0;
  int64_t busy_ns = 0;
  int64_t planned_ns = 0;
  int64_t measured_ns = 0;
  int64_t cpu_ns = 0;
  // The time of the runs of the session by cause, mean of the queues of the rank's device. The
  // parts together are the time of the runs, without the time after the last act of each.
  TimeParts part_ns = {};
};

}  // namespace weir::actors
namespace weir::transport {
class LoopbackNetwork;
}
namespace weir::actors {

class Session {
 public:
  // Checks the plans (W0501-W0509) and that they cannot come to a standstill (W0541), takes memory,
  // makes kernels, initialises states. The plans are those of all ranks in order, or with a network
  // those of any ranks. With a network, Create may wait for the other processes, each rank on a
  // thread.
  static absl::StatusOr<std::unique_ptr<Session>> Create(const std::vector<proto::RankPlan>& plans,
                                                         SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs `steps` more steps on all ranks and returns when everything is at rest, as far as the
  // ranks of this process are concerned. After an error the session is good for reading only.
  absl::Status RunSteps(int64_t steps);
  int64_t steps_done() const { return steps_done_; }  // first_step included

  // Runs one more step under a watch (actors/engine/finite_watch.h): the step repeats step
  // `as_step`, with its data and its random numbers, on the present states. Returns, for each local
  // rank that has values that are not finite, where they were first.
  absl::StatusOr<std::vector<NonfiniteFinding>> InspectStep(int64_t as_step);

  // Makes RunSteps return `reason`, which must not be ok, once the acts that run have ended; so do
  // all later calls. Any thread may call Stop, also while RunSteps runs.
  void Stop(absl::Status reason) { engine_->Stop(std::move(reason)); }
  // Any thread may call Progress, also while RunSteps runs (not with kSim). The call costs the
  // ranks nothing.
  SessionProgress Progress() const;
  // After RunSteps has returned an error: returns the register that each unfinished actor of the
  // local ranks waits for and the holders of the register (actors/engine/stall_report.h); empty if
  // there is none.
  std::string DescribeStall() const;
  // Returns the same as values: one for each unfinished actor of the local ranks.
  std::vector<Wait> ListWaits() const;

  int num_ranks() const { return static_cast<int>(place_of_rank_.size()); }  // of the job
  // Returns the ranks of this process, ascending.
  const std::vector<RankId>& local_ranks() const { return local_ranks_; }
  // Precondition, here and below unless a status is returned: the rank is local.
  const Plan& plan(RankId rank) const { return plans_[place_of_rank_[rank]]; }

  // Returns the bytes of a state of a rank, row-major of plan(rank).states[i].slice; valid until
  // the next run or change of the state. Here and below: kNotFound (W0507) if the rank is not local
  // or has no such state.
  absl::StatusOr<device::HostView> ReadState(RankId rank, const std::string& name) const;
  // kInvalidArgument (W0507) for another size.
  absl::Status WriteState(RankId rank, const std::string& name, absl::Span<const char> bytes);
  // Lets `fill` write the bytes of a state. If `fill` fails, the state is undefined.
  absl::Status FillState(RankId rank, const std::string& name,
                         absl::FunctionRef<absl::Status(char* host)> fill);

  // Returns whether the rank is local and the state lies in the session of options.weights_of.
  bool IsShared(RankId rank, const std::string& name) const;

  RankMemory Memory(RankId rank) const { return executor(rank).memory(); }
  std::vector<RankWorkReport> Work() const;  // of the local ranks, at rest
  std::vector<EdgeReport> Edges() const;     // on which local ranks send: by sender, then register
  // Returns ok if every register of the local ranks is as before the first step. The end of every
  // run checks this condition.
  absl::Status CheckAtRest() const;

  // Writes a Perfetto trace of the acts that are still kept. kUnavailable (W0532) if the file
  // cannot be written.
  absl::Status WriteTrace(const std::string& path) const;
  // Writes the same trace as a part of the job's trace. The job's trace is the parts of all its
  // sessions, one after another in any order. All parts must have the same begin_ns: best the
  // latest TraceBeginNs() of those that have dropped acts, or the earliest of all if none has,
  // each less its offset. kDataLoss if the stream fails.
  struct TraceClock {
    int64_t offset_ns = 0;  // this process's CLOCK_MONOTONIC less the job's clock
    // The begin of the trace in the job's clock; acts that began before are left out. Absent: the
    // begin of the local ranks' acts.
    std::optional<int64_t> begin_ns;
    RankId describing_rank{0};  // the rank whose part describes the job
    std::string host;           // of this process, told with its ranks; empty: not told
  };
  absl::Status WriteTrace(std::ostream& out, const TraceClock& clock) const;
  int64_t TraceBeginNs() const;  // by CLOCK_MONOTONIC of this process; 0 before the first run
  // Lets the records of the local ranks' acts lie in `kept` from now on, so that they outlive this
  // process. The memory of `kept` must outlive the session. `host` as in TraceClock. At rest.
  // Errors are those of KeptActs::Keep; the records then stay where they are.
  absl::Status KeepActs(const std::string& host, trace::KeptActs* kept) const;
  // Returns whether a local rank no longer keeps its first acts.
  bool HasDroppedActs() const;

  const RankExecutor& executor(RankId rank) const { return *executors_[place_of_rank_[rank]]; }
  // Null unless the engine is kSim.
  const SimEngine* simulator() const { return simulator_; }

 private:
  Session() = default;
  absl::StatusOr<StateId> FindState(RankId rank, const std::string& name) const;
  absl::Status Verify(const SessionOptions& options);
  absl::Status Load(SessionOptions options);
  absl::Status MakeExecutors(const SessionOptions& options);
  absl::Status OpenCollectives(const SessionOptions& options);
  absl::Status Connect();
  TickScale ClosedScale() const;
  void MakeCafEngine(CafEngineOptions options);
  void MakeSimEngine(const SimEngineOptions& options);

  transport::TransportNetwork* given_network_ = nullptr;
  std::vector<Plan> plans_;           // of the local ranks, ascending, as devices_ and executors_
  std::vector<SharedStates> shared_;  // likewise; empty: nothing is shared
  std::vector<RankId> local_ranks_;
  IdVector<RankId, int> place_of_rank_;  // in plans_; -1: not local
  ManualClock virtual_clock_;
  std::unique_ptr<transport::SimNetwork> sim_network_;
  std::unique_ptr<transport::LoopbackNetwork> loopback_network_;
  collective::LocalCollectives collectives_;  // of all ranks
  std::vector<std::unique_ptr<device::Device>> devices_;
  std::vector<std::unique_ptr<RankExecutor>> executors_;
  std::vector<RankExecutor*> ranks_;  // the same
  std::unique_ptr<Engine> engine_;    // last made, first to go
  SimEngine* simulator_ = nullptr;
  TickScale tick_scale_;
  int64_t first_step_ = 0;
  int64_t steps_done_ = 0;
  // Executors use these.
  std::unique_ptr<collective::VirtualCollectives>
      virtual_collectives_;                              // of ranks that do not compute
  std::unique_ptr<collective::CollectiveLibrary> nccl_;  // null: not asked for
  std::unique_ptr<transport::LocalExchange> exchange_;   // of the ids of groups in one process
  CollectiveMeans means_;
};

}  // namespace weir::actors
