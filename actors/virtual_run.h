// The ranks of a job, or representatives of them, put together to run in virtual time: executors
// without memory and kernels (or with both, where an act is to take what it really takes), devices,
// network, engine.
//
//   Create -> { RunSteps | times | WriteTrace }* -> destruct
//
// Not here: what acts and links cost (given), what the figures mean (tools/sim).
// Thread rule: one thread; Stop of the engine from any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/engine/time_engine.h"
#include "actors/feed.h"
#include "actors/plan.h"

namespace weir {

struct VirtualRunOptions {
  // What an act takes; null: nothing. Not asked of devices that measure.
  std::function<int64_t(const Plan& plan, const PlanActor& actor)> cost_ns;
  // Null: messages take no time.
  std::function<TimeNetwork::Way(int from, int to)> ways;
  TimeEngineOptions engine;
  // By outgoing edge to a rank that is not here, the incoming edge that stands for it.
  std::map<uint64_t, uint64_t> images;
  std::vector<uint64_t> loose;  // edges whose other end nobody stands for (TimeNetwork::SetLoose)
  int64_t trace_capacity = 1;   // acts kept per rank, at least 1

  // Runs kernels on this machine, one act at a time, and takes their time for virtual time.
  struct Measured {
    int threads_per_device = 1;
    DataFeed* feed = nullptr;  // must outlive the run
    MetricSink* sink = nullptr;
    // Told after every act of a program what each of its kernels took. May be null.
    std::function<void(const Plan& plan, const PlanActor& actor,
                       absl::Span<const int64_t> kernel_ns)>
        on_kernels;
  };
  TimeDevice::Work work = TimeDevice::Work::kCosted;
  Measured measured;  // if so
};

class VirtualRun {
 public:
  // Plans of all ranks of a job, or of some, with images of the edges to the others. Errors: W0506,
  // and those of CheckCertificate.
  static absl::StatusOr<std::unique_ptr<VirtualRun>> Create(std::vector<Plan> plans,
                                                            VirtualRunOptions options);

  absl::Status RunSteps(int64_t steps) { return engine_->RunSteps(steps); }

  const std::vector<Plan>& plans() const { return plans_; }
  const TimeEngine& engine() const { return *engine_; }
  const TimeNetwork& network() const { return *network_; }
  // The acts that are kept of the i-th rank; times are virtual.
  const ActRing& acts(int i) const { return executors_[i]->trace(); }
  int64_t now_ns() const { return clock_.NowNs(); }

  // The acts that are kept, as Session::WriteTrace. kUnavailable (W0532) if the file cannot be
  // written.
  absl::Status WriteTrace(const std::string& path) const;

 private:
  VirtualRun() = default;

  std::vector<Plan> plans_;
  ManualClock clock_;
  std::unique_ptr<TimeNetwork> network_;
  std::vector<std::unique_ptr<TimeDevice>> devices_;
  std::vector<std::unique_ptr<RankExecutor>> executors_;
  std::vector<RankExecutor*> ranks_;
  std::unique_ptr<TimeEngine> engine_;
};

// Payloads of the tokens of a step on an outgoing register: what its packing kernel fills of each
// chunk. Empty: each token fills the register.
std::vector<int64_t> PayloadsOf(const Plan& plan, const PlanRegister& r);

}  // namespace weir
