#include "tools/hosts/host_ways.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/control/socket_address.h"

namespace weir::hosts {
namespace {

constexpr size_t kHostsShownMax = 4;
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

// Returns "a, b: lo, eth0; c: lo, ib0" for the used hosts: those that have the same interfaces
// together, and of many only some.
std::string InterfacesText(const IdVector<HostId, std::string>& hosts,
                           const IdVector<HostId, HostFacts>& facts, const std::set<HostId>& used) {
  std::map<std::string, std::vector<std::string>> hosts_with;  // by the names of interfaces
  for (const HostId host : hosts.ids()) {
    if (used.count(host) > 0) hosts_with[InterfaceNames(facts[host])].push_back(hosts[host]);
  }
  std::vector<std::string> texts;
  for (auto& [names, having] : hosts_with) {
    const size_t num_more = having.size() - std::min(having.size(), kHostsShownMax);
    having.resize(having.size() - num_more);
    texts.push_back(absl::StrCat(absl::StrJoin(having, ", "),
                                 num_more > 0 ? absl::StrCat(" and ", num_more, " more") : "", ": ",
                                 names));
  }
  if (texts.size() > kHostsShownMax) {
    const size_t num_more = texts.size() - kHostsShownMax;
    texts.resize(kHostsShownMax);
    texts.push_back(absl::StrCat(num_more, " other lists"));
  }
  return absl::StrJoin(texts, "; ");
}

}  // namespace

const NetworkInterface* InterfaceNamed(const HostFacts& facts, const std::string& name) {
  const auto found =
      std::find_if(facts.interfaces.begin(), facts.interfaces.end(),
                   [&name](const NetworkInterface& interface) { return interface.name == name; });
  return found == facts.interfaces.end() ? nullptr : &*found;
}

std::string InterfaceNames(const HostFacts& facts) {
  return facts.interfaces.empty()
             ? "none"
             : absl::StrJoin(facts.interfaces, ", ",
                             [](std::string* text, const NetworkInterface& interface) {
                               text->append(interface.name);
                             });
}

absl::StatusOr<IdVector<HostId, std::string>> AddressesOn(
    const std::string& interface, const IdVector<HostId, std::string>& hosts,
    const IdVector<HostId, HostFacts>& facts, const std::set<HostId>& used) {
  IdVector<HostId, std::string> addresses(hosts.size());
  for (const HostId host : hosts.ids()) {
    if (used.count(host) == 0) continue;
    const NetworkInterface* const found = InterfaceNamed(facts[host], interface);
    if (found == nullptr)
      return Rejected({"W0887", absl::StrCat("--iface ", interface),
                       "an interface of that name, which is up, on every host of the job",
                       InterfacesText(hosts, facts, used),
                       "the name of one that every host has (`ip -brief address` shows their "
                       "addresses), or no --iface: then the way to the starter decides"});
    const auto is_v4 = [](const std::string& address) {
      return address.find(':') == std::string::npos;
    };
    const auto best = std::find_if(found->addresses.begin(), found->addresses.end(), is_v4);
    if (best != found->addresses.end()) {
      addresses[host] = *best;
    } else if (!found->addresses.empty()) {
      addresses[host] = found->addresses.front();
    }
  }
  return addresses;
}

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
