// A described cluster as the compiler's cost model. Kernels and acts have the costs of the first
// device in the file, links have the costs of their level, and ranks are devices in the order of
// the file.
//
// If the file has neither a row nor a peak for a kernel, the compiler's default applies. The
// simulator refuses such a file (W0703), but a plan needs only a guess. Not here: contention for
// links and cores, jitter and waking, which belong to the simulator. Thread rule: immutable once
// made.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/cost/cost_model.h"
#include "proto/cluster.pb.h"
#include "tools/sim/device_costs.h"

namespace weir::sim {

class ClusterCosts final : public compiler::CostModel {
 public:
  // Precondition: the cluster is sound (ReadClusterFile).
  explicit ClusterCosts(proto::Cluster cluster);

  int64_t KernelNs(const compiler::KernelUse& kernel) const override;
  int64_t ActNs() const override;
  int64_t LatencyNs(compiler::LinkLevel level, int64_t bytes) const override;
  compiler::LinkLevel LevelBetween(RankId rank, RankId other) const override;
  compiler::LinkSharing SharingOf(compiler::LinkLevel level) const override;

 private:
  int64_t HostOf(RankId rank) const;

  const proto::Cluster cluster_;
  const DeviceCosts costs_;
  const compiler::PeakCosts defaults_;
};

}  // namespace weir::sim
