#include "tools/sim/cluster_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/status/statusor.h"
#include "actors/plan/plan.h"

namespace weir::sim {
namespace {

// This limit is above any sum of acts that a plan may have.
constexpr double kNsMax = 1e15;

int64_t ToNs(double ns) { return std::llround(std::clamp(ns, 0.0, kNsMax)); }

const proto::DeviceModel& FirstDevice(const proto::Cluster& cluster) {
  return *std::find_if(
      cluster.device().begin(), cluster.device().end(),
      [&](const proto::DeviceModel& device) { return device.name() == cluster.host(0).device(); });
}

std::vector<actors::PlanOperand> Operands(const std::vector<TensorSlice>& slices) {
  std::vector<actors::PlanOperand> operands;
  for (const TensorSlice& slice : slices) {
    actors::PlanOperand& operand = operands.emplace_back();
    const bool absent = slice.shape.size() == 1 && slice.shape[0] == 0;
    operand.place = absent ? actors::PlanOperand::Place::kNone : actors::PlanOperand::Place::kInput;
    operand.slice = slice;
  }
  return operands;
}

}  // namespace

ClusterCosts::ClusterCosts(proto::Cluster cluster)
    : cluster_(std::move(cluster)), costs_(FirstDevice(cluster_)) {}

int64_t ClusterCosts::KernelNs(const compiler::KernelUse& kernel) const {
  actors::PlanCall call;
  call.op = kernel.op;
  call.attrs = kernel.attrs;
  call.inputs = Operands(kernel.inputs);
  call.outputs = Operands(kernel.outputs);
  const absl::StatusOr<double> ns = costs_.KernelNs(WorkOf(call, /*chunks=*/1));
  return ns.ok() ? ToNs(*ns) : defaults_.KernelNs(kernel);
}

int64_t ClusterCosts::ActNs() const { return ToNs(costs_.model().act_ns()); }

int64_t ClusterCosts::LatencyNs(compiler::LinkLevel level, int64_t bytes) const {
  const proto::Link& link =
      level == compiler::LinkLevel::kWithinHost ? cluster_.within_host() : cluster_.between_hosts();
  const double bytes_ns =
      link.bytes_per_second() > 0 ? 1e9 * static_cast<double>(bytes) / link.bytes_per_second() : 0;
  return ToNs(link.message_ns() + bytes_ns + link.latency_ns());
}

compiler::LinkLevel ClusterCosts::LevelBetween(RankId rank, RankId other) const {
  return HostOf(rank) == HostOf(other) ? compiler::LinkLevel::kWithinHost
                                       : compiler::LinkLevel::kBetweenHosts;
}

compiler::LinkSharing ClusterCosts::SharingOf(compiler::LinkLevel level) const {
  const proto::Link& link =
      level == compiler::LinkLevel::kWithinHost ? cluster_.within_host() : cluster_.between_hosts();
  switch (link.shared()) {
    case proto::Link::DEVICE: return compiler::LinkSharing::kDevice;
    case proto::Link::HOST: return compiler::LinkSharing::kHost;
    default: return compiler::LinkSharing::kPair;
  }
}

// Returns the host of a rank. Beyond the last device, the file's last hosts are repeated.
int64_t ClusterCosts::HostOf(RankId rank) const {
  int64_t first_host = 0, place = rank.value();  // the place counts from the first host on
  for (int group = 0; group < cluster_.host_size(); ++group) {
    const proto::HostGroup& spec = cluster_.host(group);
    const int64_t count = std::max(1, spec.count()), devices = std::max(1, spec.devices());
    if (place < count * devices || group + 1 == cluster_.host_size())
      return first_host + place / devices;
    place -= count * devices;
    first_host += count;
  }
  return first_host;
}

}  // namespace weir::sim
