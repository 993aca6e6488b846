#include "tools/sim/cluster_map.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/sim/cluster_file.h"

namespace weir::sim {
namespace {

// The kinds of links. A pair of numbers distinguishes the links of one kind.
enum LinkKind : int64_t { kPairLink, kDeviceOut, kDeviceIn, kHostOut, kHostIn };

}  // namespace

absl::StatusOr<ClusterMap> ClusterMap::Create(const proto::Cluster& cluster, int64_t num_ranks,
                                              HostLinks host_links) {
  ClusterMap map;
  map.cluster_ = cluster;
  map.host_links_ = host_links;
  for (const proto::DeviceModel& model : cluster.device()) map.costs_.emplace_back(model);
  for (int group = 0; group < cluster.host_size(); ++group) {
    const proto::HostGroup& spec = cluster.host(group);
    int model = 0;
    while (cluster.device(model).name() != spec.device()) ++model;
    const int64_t count = std::max(1, spec.count());
    for (int64_t i = 0; i < count && static_cast<int64_t>(map.host_of_rank_.size()) < num_ranks;
         ++i) {
      map.hosts_.push_back({group, model, static_cast<int64_t>(map.host_of_rank_.size())});
      for (int d = 0;
           d < spec.devices() && static_cast<int64_t>(map.host_of_rank_.size()) < num_ranks; ++d) {
        map.host_of_rank_.push_back(static_cast<int32_t>(map.hosts_.size()) - 1);
      }
    }
  }
  const int64_t devices = NumDevices(cluster);
  if (devices >= num_ranks) return map;
  return Rejected(
      {"W0704",
       absl::StrCat("cluster ", cluster.name().empty() ? "without a name" : cluster.name()),
       absl::StrCat("a device for each of ", num_ranks, " ranks"),
       absl::StrCat(devices, " devices"),
       "a smaller --mesh, or the file of a larger cluster (host.count is a count of machines: "
       "raise it only if there are more)"});
}

const proto::Link& ClusterMap::LinkBetween(RankId from, RankId to) const {
  return SameHost(from, to) ? cluster_.within_host() : cluster_.between_hosts();
}

int32_t ClusterMap::NameOf(int64_t kind, int64_t from, int64_t to) {
  return names_.try_emplace({kind, from, to}, static_cast<int32_t>(names_.size())).first->second;
}

actors::TimeNetwork::Way ClusterMap::WayBetween(RankId from, RankId to) {
  const proto::Link& link = LinkBetween(from, to);
  actors::TimeNetwork::Way way;
  way.latency_ns = std::llround(link.latency_ns());
  way.message_ns = std::llround(link.message_ns());
  way.receive_ns = std::llround(link.receive_ns());
  way.receive_ns_per_byte =
      link.receive_bytes_per_second() > 0 ? 1e9 / link.receive_bytes_per_second() : 0;
  way.ns_per_byte = link.bytes_per_second() > 0 ? 1e9 / link.bytes_per_second() : 0;
  if (link.bytes_per_second() == 0 && link.message_ns() == 0) return way;  // no cost to wait for
  const int64_t level = SameHost(from, to) ? 0 : 1;  // the two levels are separate networks
  // A credit to another host is bytes of the same connections and network cards as payloads.
  way.queues_credits = !SameHost(from, to);
  if (link.shared() == proto::Link::PAIR) {
    way.out = NameOf(kPairLink, from.value(), to.value());
  } else if (link.shared() == proto::Link::DEVICE || host_links_ == HostLinks::kDivided) {
    way.out = NameOf(kDeviceOut, from.value(), level);
    way.in = NameOf(kDeviceIn, to.value(), level);
    if (link.shared() == proto::Link::HOST) {
      way.ns_per_byte *= cluster_.host(host(from).group).devices();
      way.message_ns *= cluster_.host(host(from).group).devices();
    }
  } else {
    way.out = NameOf(kHostOut, HostOf(from), level);
    way.in = NameOf(kHostIn, HostOf(to), level);
  }
  return way;
}

actors::TimeEngineOptions::Device ClusterMap::EngineDevice(RankId rank) const {
  const proto::DeviceModel& model = costs(rank).model();
  actors::TimeEngineOptions::Device device;
  device.host = host_of_rank_[rank];
  device.cores = std::max(1, model.cores());
  device.wake_ns = std::llround(model.wake_ns());
  device.jitter = model.jitter();
  return device;
}

std::vector<actors::TimeEngineOptions::Host> ClusterMap::EngineHosts() const {
  std::vector<actors::TimeEngineOptions::Host> hosts;
  for (const Host& host : hosts_) {
    const proto::HostGroup& spec = cluster_.host(host.group);
    hosts.push_back({spec.cores(), {spec.core_speed().begin(), spec.core_speed().end()}});
  }
  return hosts;
}

}  // namespace weir::sim
