// A Session: the plans of all ranks of a job, loaded into this process and run. This is
// the whole of `actors` that a trainer needs.
//
//   Create -> { RunSteps | ReadState | WriteState | WriteTrace | ... }* -> destruct
//
// Between two RunSteps nothing moves: states may be read and written. Not here: what a
// step means (the plan), data and metrics (feed.h), files of weights.
// Thread rule: one thread at a time; feed, sink and initializer are called from the
// threads of the ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/engine/caf_engine.h"
#include "actors/engine/engine.h"
#include "actors/engine/rank_executor.h"
#include "actors/engine/sim_engine.h"
#include "actors/feed.h"
#include "actors/plan.h"
#include "proto/plan.pb.h"
#include "runtime/trace/tick_clock.h"

namespace weir {

struct SessionOptions {
  int threads_per_device = 1;
  DataFeed* feed = nullptr;        // must outlive the session
  MetricSink* sink = nullptr;      // must outlive the session
  StateInitializer state_init;     // null: SeededInitializer of the plan's seed
  enum class EngineKind : uint8_t { kCaf, kSim } engine = EngineKind::kCaf;
  int64_t trace_capacity = 1 << 16;  // acts kept per rank; the oldest go first
  int64_t first_step = 0;            // the number of the first step (resuming)

  CafEngineOptions caf;

  // The rest is for kSim.
  SimEngineOptions sim;
  RankExecutorOptions::Compute compute = RankExecutorOptions::Compute::kRun;
  SimNetwork::Mapping sim_mapping = SimNetwork::Mapping::kCopied;
  std::function<int64_t(const Plan& plan, const PlanActor& actor)> sim_cost_ns;
  std::function<int64_t(int64_t bytes, int from, int to)> sim_latency_ns;
};

// What crossed one remote edge.
struct EdgeReport {
  uint64_t edge = 0;
  std::string register_name;
  int from = 0;
  int to = 0;
  int64_t payload_bytes = 0;
  int64_t tokens = 0;
};

class LoopbackNetwork;

class Session {
 public:
  // Checks the plans (W0501-W0506), takes memory, makes kernels, initialises states.
  static absl::StatusOr<std::unique_ptr<Session>> Create(const std::vector<RankPlan>& plans, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs `steps` more steps on all ranks and returns when everything is at rest. After
  // an error the session is good for reading only.
  absl::Status RunSteps(int64_t steps);
  int64_t steps_done() const { return steps_done_; }  // first_step included

  int num_ranks() const { return static_cast<int>(plans_.size()); }
  const Plan& plan(int rank) const { return plans_[rank]; }

  // The bytes of a state of a rank, row-major of plan(rank).states[i].slice. kNotFound
  // if this rank has no such state; writing another size is kInvalidArgument.
  absl::StatusOr<std::string> ReadState(int rank, const std::string& name) const;
  absl::Status WriteState(int rank, const std::string& name, absl::Span<const char> bytes);
  // The same memory in place, valid between runs.
  absl::StatusOr<absl::Span<char>> StateMemory(int rank, const std::string& name) const;

  RankMemory Memory(int rank) const { return executors_[rank]->memory(); }
  std::vector<EdgeReport> Edges() const;  // by sender, then register
  // Ok if every register is as before the first step (the end of every run checks it).
  absl::Status CheckAtRest() const;

  // Writes a Perfetto trace of the acts that are still kept. kUnavailable (W0532) if
  // the file cannot be written.
  absl::Status WriteTrace(const std::string& path) const;

  const RankExecutor& executor(int rank) const { return *executors_[rank]; }
  // Null unless the engine is kSim.
  const SimEngine* simulator() const { return simulator_; }

 private:
  Session() = default;
  absl::Status Load(SessionOptions options);
  void MakeEngine(const SessionOptions& options);

  std::vector<Plan> plans_;
  ManualClock virtual_clock_;
  std::unique_ptr<SimNetwork> sim_network_;
  std::unique_ptr<LoopbackNetwork> loopback_network_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<RankExecutor>> executors_;
  std::unique_ptr<Engine> engine_;  // last made, first to go
  SimEngine* simulator_ = nullptr;
  TickScale tick_scale_;
  int64_t first_step_ = 0;
  int64_t steps_done_ = 0;
};

}  // namespace weir
