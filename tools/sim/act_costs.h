// The times of acts of plans on the devices of a cluster, and the sources of these times: rows of
// exactly these kernels, or estimates. Each kernel is computed once, because ranks of a stage have
// the same kernels.
//
// Not here: the time of a kernel on one device (device_costs.h).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "actors/plan/plan.h"
#include "tools/sim/cluster_map.h"
#include "tools/sim/device_costs.h"

namespace weir::sim {

class ActCosts {
 public:
  struct Cost {
    int64_t ns = 0;  // alone on its host
    // Speed with all cores of the host busy, relative to alone; 0: not known.
    double busy_speed = 0;
  };
  // Sums over the kernels of all acts so far.
  struct Sources {
    int64_t kernels = 0;      // different kernels
    int64_t estimated = 0;    // those of them without a row of their own
    double step_ns = 0;       // all kernels of a step
    double estimated_ns = 0;  // the part of step_ns that is estimated
  };

  // `map` must outlive the costs.
  explicit ActCosts(const ClusterMap* map) : map_(map) {}

  // kInvalidArgument (W0703): an op has neither rows nor a peak.
  absl::StatusOr<Cost> CostOf(const actors::Plan& plan, const actors::PlanActor& actor);
  const Sources& sources() const { return sources_; }

 private:
  struct Kernel {
    double ns = 0;
    double busy_ratio = 0;
    bool estimated = false;
  };
  absl::StatusOr<Kernel> Find(const DeviceCosts& costs, uint64_t key, const KernelWork& work);

  const ClusterMap* const map_;
  std::unordered_map<uint64_t, Kernel> known_;
  Sources sources_;
};

}  // namespace weir::sim
