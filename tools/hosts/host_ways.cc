#include "tools/hosts/host_ways.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/socket_address.h"

namespace weir::hosts {
namespace {

constexpr int64_t kProbeMs = 2000;  // the system repeats a lost packet after 1 s

// The places where some of the hosts listen for the tries of the others.
struct Targets {
  std::vector<HostId> hosts;
  std::vector<std::string> addresses;  // with ports
};

Targets TargetsOf(const IdVector<HostId, std::vector<std::string>>& listening,
                  const IdVector<HostId, std::string>& addresses) {
  std::vector<HostId> used;
  for (const HostId host : addresses.ids()) {
    if (!addresses[host].empty()) used.push_back(host);
  }
  Targets targets;
  const size_t count = std::min(used.size(), kHostsTriedMax);
  for (size_t i = 0; i < count; ++i) {
    const HostId host = used[i * used.size() / count];
    for (const std::string& address : listening[host]) {
      const auto parsed = control::SocketAddress::ParseWithPort(address);
      if (!parsed.has_value() || parsed->host() != addresses[host]) continue;
      targets.hosts.push_back(host);
      targets.addresses.push_back(address);
      break;
    }
  }
  return targets;
}

}  // namespace

absl::Status CheckWays(HostsSupervisor* supervisor, const IdVector<HostId, std::string>& hosts,
                       const IdVector<HostId, std::string>& addresses) {
  const auto is_used = [](const std::string& address) { return !address.empty(); };
  if (std::count_if(addresses.begin(), addresses.end(), is_used) < 2) return absl::OkStatus();
  const Targets targets = TargetsOf(supervisor->ListenForProbes(), addresses);
  if (targets.hosts.empty()) return absl::OkStatus();
  const IdVector<HostId, std::vector<AddressProbe>> probes =
      supervisor->Probe(targets.addresses, kProbeMs);
  std::vector<Problem> problems;
  for (const HostId from : hosts.ids()) {
    std::vector<std::string> errors;
    for (size_t i = 0; i < targets.hosts.size(); ++i) {
      const HostId to = targets.hosts[i];
      const AddressProbe& probe = probes[from][i];
      if (addresses[from].empty() || addresses[from] == addresses[to] || probe.error.empty())
        continue;
      errors.push_back(absl::StrCat(hosts[to], " (", targets.addresses[i], ") ", probe.error));
    }
    if (errors.empty()) continue;
    problems.push_back({"W0886", absl::StrCat("host '", hosts[from], "'"),
                        "a way to every other host of the job", absl::StrJoin(errors, "; "),
                        "open all ports between the hosts (a firewall drops or refuses), or "
                        "--iface NAME, if another network connects them; `weir doctor` shows "
                        "every way"});
  }
  if (problems.empty()) return absl::OkStatus();
  return ErrorOfAll(absl::StatusCode::kUnavailable, problems);
}

}  // namespace weir::hosts
