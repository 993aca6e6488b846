#include "tools/hosts/hosts_supervisor.h"

#include <deque>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tools/hosts/agents_supervisor.h"
#include "tools/hosts/frame_channel.h"
#include "tools/hosts/host_name.h"
#include "tools/launch/wake_event.h"

namespace weir::hosts {

absl::StatusOr<std::unique_ptr<HostsSupervisor>> HostsSupervisor::Reach(
    const IdVector<HostId, HostAgent>& hosts, HostsSupervisorOptions options) {
  launch::KeepExits();
  WEIR_ASSIGN_OR_RETURN(launch::OwnedDescriptor wake, launch::WakeEvent::Open());
  auto supervisor = std::make_unique<AgentsSupervisor>(hosts, std::move(options), std::move(wake));
  WEIR_RETURN_IF_ERROR(supervisor->StartAgents());
  if (absl::Status status = supervisor->AwaitHellos(); !status.ok()) {
    supervisor->TellEnd(ExitCode(status));
    return status;
  }
  return supervisor;
}

IdVector<HostId, std::string> NamesOf(const IdVector<HostId, HostAgent>& agents) {
  IdVector<HostId, std::string> names;
  for (const HostAgent& agent : agents) names.push_back(agent.host);
  return names;
}

void ReachThroughOthers(int fan_out, IdVector<HostId, HostAgent>* agents) {
  std::vector<HostId> far;  // those on other hosts, in order
  for (const HostId host : agents->ids()) {
    HostAgent& agent = (*agents)[host];
    if (agent.arguments.empty() || IsHere(agent.host)) continue;
    const size_t place = far.size(), per_agent = static_cast<size_t>(fan_out);
    agent.through = place < per_agent ? HostId() : far[place / per_agent - 1];
    far.push_back(host);
  }
}

void EndAgents(const IdVector<HostId, HostAgent>& agents, int exit_code) {
  const int64_t end_ns = MonotonicClock().NowNs() + kCloseMs * 1'000'000;
  std::deque<FrameChannel> channels;
  for (const HostAgent& agent : agents) {
    if (agent.stream == nullptr || agent.stream->output() < 0) continue;
    channels.emplace_back(agent.stream, FrameChannel::Side::kStarter);
    channels.back().Send(EndOrderOf(exit_code).SerializeAsString());
    channels.back().CloseOutput();
  }
  for (FrameChannel& channel : channels) AwaitClose(&channel, end_ns);
}

}  // namespace weir::hosts
