// Maps each rank of a job to a device of a cluster, and each pair of ranks to the link between
// them. Ranks are devices in the order of the file. Thread rule: one thread (the map names links at
// their first use).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/engine/time_engine.h"
#include "proto/cluster.pb.h"
#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/sim/device_costs.h"

namespace weir::sim {

class ClusterMap {
 public:
  enum class HostLinks : uint8_t {
    kShared,  // a link of a host is one link for all its devices
    // Each device of a host has its share of the host's link. Simulations in which one rank stands
    // for many use this value.
    kDivided,
  };
  // kInvalidArgument (W0704): the cluster has fewer devices than the job has ranks.
  static absl::StatusOr<ClusterMap> Create(const proto::Cluster& cluster, int64_t num_ranks,
                                           HostLinks host_links);

  const DeviceCosts& costs(RankId rank) const { return costs_[host(rank).model]; }
  int64_t HostOf(RankId rank) const { return host_of_rank_[rank]; }
  bool SameHost(RankId a, RankId b) const { return host_of_rank_[a] == host_of_rank_[b]; }
  int64_t num_hosts_used() const { return host_of_rank_.empty() ? 0 : host_of_rank_.back() + 1; }
  const proto::Link& LinkBetween(RankId from, RankId to) const;
  // Returns the way of a message between ranks. Its send_ns belongs to the sending act.
  actors::TimeNetwork::Way WayBetween(RankId from, RankId to);

  actors::TimeEngineOptions::Device EngineDevice(RankId rank) const;
  std::vector<actors::TimeEngineOptions::Host> EngineHosts() const;

 private:
  struct Host {
    int group = 0;  // in the file
    int model = 0;  // in costs_
    int64_t first_rank = 0;
  };
  const Host& host(RankId rank) const { return hosts_[host_of_rank_[rank]]; }
  int32_t NameOf(int64_t kind, int64_t from, int64_t to);

  proto::Cluster cluster_;
  HostLinks host_links_ = HostLinks::kShared;
  std::vector<DeviceCosts> costs_;
  std::vector<Host> hosts_;
  IdVector<RankId, int32_t> host_of_rank_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, int32_t> names_;
};

}  // namespace weir::sim
