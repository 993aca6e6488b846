#include "tools/train/job_session.h"

#include <algorithm>
#include <thread>

#include "runtime/base/status.h"

namespace weir {

int ThreadsPerDevice(const Job& job, int asked, int64_t devices) {
  if (asked > 0) return asked;
  if (job.runtime().threads_per_device() > 0) return job.runtime().threads_per_device();
  int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  return static_cast<int>(std::max<int64_t>(1, cores / std::max<int64_t>(1, devices)));
}

absl::StatusOr<JobSession> OpenJobSession(const Job& job, const JobSessionOptions& options) {
  CompileOptions compile;
  compile.mode = options.mode;
  JobSession opened;
  WEIR_ASSIGN_OR_RETURN(opened.plan, CompileJob(job, compile));
  int64_t devices = opened.plan->mesh.num_ranks();
  std::vector<RankPlan> plans;
  for (int64_t rank = 0; rank < devices; ++rank) {
    WEIR_ASSIGN_OR_RETURN(RankPlan plan, LowerForRank(*opened.plan, rank));
    plans.push_back(std::move(plan));
  }
  opened.threads_per_device = ThreadsPerDevice(job, options.threads_per_device, devices);
  SessionOptions session;
  session.threads_per_device = opened.threads_per_device;
  session.feed = options.feed;
  session.sink = options.sink;
  session.first_step = options.first_step;
  WEIR_ASSIGN_OR_RETURN(opened.session, Session::Create(plans, std::move(session)));
  return opened;
}

}  // namespace weir
