// From a job to a session of its ranks in this process.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/launch.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"

namespace weir {

struct JobSessionOptions {
  PlanMode mode = PlanMode::kTrain;
  int threads_per_device = 0;  // 0: as the job says; if it says 0, the cores shared evenly
  DataFeed* feed = nullptr;    // must outlive the session
  MetricSink* sink = nullptr;  // must outlive the session
  int64_t first_step = 0;
  std::vector<int> ranks;               // of this process; empty: all
  TransportNetwork* network = nullptr;  // to the others; must outlive the session
};

struct JobSession {
  std::unique_ptr<LogicalPlan> plan;
  std::unique_ptr<Session> session;
  int threads_per_device = 1;
};

absl::StatusOr<JobSession> OpenJobSession(const Job& job, const JobSessionOptions& options);

// Threads for each of `devices` devices: `asked`, else the job's, else cores / devices, at least 1.
int ThreadsPerDevice(const Job& job, int asked, int64_t devices);

}  // namespace weir
