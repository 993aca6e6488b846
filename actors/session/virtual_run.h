// A VirtualRun puts the ranks of a job, or representatives of them, together to run in virtual
// time: executors without memory and kernels (or with both, where an act takes its real time),
// devices, network, engine.
//
//   Create -> { RunSteps | times | WriteTrace }* -> destruct
//
// Not here: the costs of acts and links (given), the meaning of the figures (tools/sim).
// Thread rule: one thread; any thread may call Stop of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "actors/engine/feed.h"
#include "actors/engine/time_engine.h"
#include "actors/plan/plan.h"
#include "runtime/base/ids.h"
#include "runtime/base/rank_ranges.h"
#include "runtime/collective/virtual_collective.h"
#include "runtime/trace/trace_file.h"

namespace weir::actors {

struct VirtualRunOptions {
  // Returns the time that an act takes; null: acts take no time. Devices that measure do not call
  // this function.
  std::function<int64_t(const Plan& plan, const PlanActor& actor)> cost_ns;
  // Returns the way between two ranks. Null: messages take no time.
  std::function<TimeNetwork::Way(RankId from, RankId to)> ways;
  TimeEngineOptions engine;
  // Maps each outgoing edge to an absent rank to the incoming edge that stands for it.
  std::map<EdgeId, EdgeId> images;
  // Edges whose other end has no representative here (TimeNetwork::SetLoose).
  std::vector<EdgeId> loose;
  // The class of ranks that each representative stands for, itself included. A trace tells these
  // classes. Empty: each rank stands for itself.
  std::map<RankId, RankRanges> stands_for;
  int64_t trace_capacity = 1;  // acts kept per rank, at least 1

  // Runs kernels on this machine, one act at a time, and takes their time for virtual time.
  struct Measured {
    int threads_per_device = 1;
    DataFeed* feed = nullptr;  // must outlive the run
    MetricSink* sink = nullptr;
    // Called after every act of a program with the time that each of its kernels took. May be null.
    std::function<void(const Plan& plan, const PlanActor& actor,
                       absl::Span<const int64_t> kernel_ns)>
        on_kernels;
  };
  TimeDevice::Work work = TimeDevice::Work::kCosted;
  Measured measured;  // for Work::kMeasured
};

class VirtualRun {
 public:
  // `plans` holds the plans of all ranks of a job, or of some ranks, with images of the edges to
  // the others. Errors: W0506, and those of CheckCertificate.
  static absl::StatusOr<std::unique_ptr<VirtualRun>> Create(std::vector<Plan> plans,
                                                            VirtualRunOptions options);

  absl::Status RunSteps(int64_t steps) { return engine_->RunSteps(steps); }

  const std::vector<Plan>& plans() const { return plans_; }
  const TimeEngine& engine() const { return *engine_; }
  const TimeNetwork& network() const { return *network_; }
  // Returns the acts that are kept of the i-th rank; times are virtual.
  const trace::ActRing& acts(int i) const { return executors_[i]->trace(); }
  int64_t now_ns() const { return clock_.NowNs(); }

  // Writes the acts that are kept, as Session::WriteTrace does. kUnavailable (W0532) if the file
  // cannot be written.
  absl::Status WriteTrace(const std::string& path) const;
  // The same to a stream. kDataLoss if the stream fails.
  absl::Status WriteTrace(std::ostream& out) const;

 private:
  VirtualRun() = default;
  // Tells a trace which ranks stand for which, and where their messages end.
  void TellClasses(trace::TracedJob* job) const;

  std::vector<Plan> plans_;
  std::map<EdgeId, EdgeId> images_;
  std::set<EdgeId> loose_;
  std::map<RankId, RankRanges> stands_for_;
  ManualClock clock_;
  std::unique_ptr<TimeNetwork> network_;
  std::vector<std::unique_ptr<TimeDevice>> devices_;
  std::vector<std::unique_ptr<RankExecutor>> executors_;
  std::vector<RankExecutor*> ranks_;
  std::unique_ptr<TimeEngine> engine_;
  std::unique_ptr<collective::VirtualCollectives> collectives_;
  CollectiveMeans means_;  // of the ranks
};

// Returns the payloads of the tokens of a step on an outgoing register: the bytes of each chunk
// that the register's packing kernel fills. Empty: each token fills the register.
std::vector<int64_t> PayloadsOf(const Plan& plan, const PlanRegister& r);

}  // namespace weir::actors
