// Opens a session for the ranks of a job in this process.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"
#include "runtime/base/ids.h"
#include "runtime/transport/exchange.h"
#include "runtime/transport/transport.h"
#include "tools/live/live_run.h"
#include "tools/train/on_nonfinite.h"

namespace weir::train {

// Makes the network between the ranks of this process and those of others.
using NetworkFactory = std::function<absl::StatusOr<std::unique_ptr<transport::TransportNetwork>>(
    int num_ranks, const std::vector<RankId>& local_ranks)>;

struct JobSessionOptions {
  compiler::PlanMode mode = compiler::PlanMode::kTrain;
  int threads_per_device = 0;          // 0: as the job says; if it says 0, the cores shared evenly
  actors::DataFeed* feed = nullptr;    // must outlive the session
  actors::MetricSink* sink = nullptr;  // must outlive the session
  int64_t first_step = 0;
  std::vector<RankId> ranks;                // the ranks in this process; empty: all
  NetworkFactory network;                   // to other processes; null if all ranks are here
  transport::Exchange* exchange = nullptr;  // likewise; outlives the session
  int64_t devices_here = 0;  // of the job, on this machine in all processes; 0: all of the job
  uint32_t epoch = 1;        // of the plan, and
  uint16_t role = 0;         // of the session in its job: messages carry both
  std::string plan_id;       // required result of compiling; empty: any plan
  // The plan from an earlier compilation whose memory was already checked. Null: OpenJobSession
  // does both.
  std::shared_ptr<const compiler::LogicalPlan> plan;
  // The acts that WriteTrace of the session reports: none, or those of the last steps
  // (kTracedSteps).
  enum class Trace : uint8_t { kNone, kLastSteps } trace = Trace::kLastSteps;
  // Solved by another process for the same job; null: OpenJobSession solves it.
  std::shared_ptr<const compiler::JobRhythm> rhythm;
  const actors::Session* weights_of = nullptr;  // as in SessionOptions
  actors::StateInitializer state_init;          // null: as the plan says
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  live::TellDoing tell;  // of passes and ranks; null: nobody is told
};

struct JobSession {
  std::shared_ptr<const compiler::LogicalPlan> plan;
  std::unique_ptr<transport::TransportNetwork> network;  // null: all ranks are in this process
  std::unique_ptr<actors::Session> session;              // depends on its network
  int threads_per_device = 1;
};

// Returns what tells of the passes that compile a plan. `tell` must outlive it.
std::function<void(const compiler::PassProgress&)> TellsPasses(const live::TellDoing& tell,
                                                               compiler::PlanMode mode);

// Runs CompileJob on a thread that may open no file and start nothing
// (tools/sandbox/run_confined.h).
absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> CompileConfined(
    const proto::Job& job, const compiler::CompileOptions& options);

absl::StatusOr<JobSession> OpenJobSession(const proto::Job& job, const JobSessionOptions& options);

// Checks whether one process can hold the devices of `plan` and their threads. kInvalidArgument:
// W0080, W0081.
absl::Status CheckMachine(const compiler::LogicalPlan& plan, int threads_per_device,
                          int64_t devices_here = 0);

// Returns the threads for each of `devices` devices: `asked`, else the job's, else cores / devices,
// at least 1.
int ThreadsPerDevice(const proto::Job& job, int asked, int64_t devices);

}  // namespace weir::train
