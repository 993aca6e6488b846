// What the acts of plans take on the devices of a cluster, and where that comes from: rows of just
// these kernels, or estimates. Each kernel is worked out once: ranks of a stage have the same ones.
//
// Not here: what a kernel takes on one device (device_costs.h).
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "actors/plan.h"
#include "tools/sim/cluster_map.h"
#include "tools/sim/device_costs.h"

namespace weir {

class ActCosts {
 public:
  struct Cost {
    int64_t ns = 0;         // alone on its host
    double busy_speed = 0;  // with all cores of the host busy, beside alone; 0: not said
  };
  // Of the kernels of all acts asked for.
  struct Sources {
    int64_t kernels = 0;      // that differ
    int64_t estimated = 0;    // of those, without a row of their own
    double step_ns = 0;       // of all kernels of a step
    double estimated_ns = 0;  // of that, by estimates
  };

  // `map` must outlive the costs.
  explicit ActCosts(const ClusterMap* map) : map_(map) {}

  // kInvalidArgument (W0703) if an op has neither rows nor a peak.
  absl::StatusOr<Cost> CostOf(const Plan& plan, const PlanActor& actor);
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

}  // namespace weir
