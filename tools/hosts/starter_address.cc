#include "tools/hosts/starter_address.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "tools/hosts/host_name.h"

namespace weir::hosts {
namespace {

constexpr int64_t kProbeMs = 2000;
constexpr char kLoopback[] = "127.0.0.1";

void AddOnce(const std::string& address, std::vector<std::string>* addresses) {
  if (!address.empty() &&
      std::find(addresses->begin(), addresses->end(), address) == addresses->end())
    addresses->push_back(address);
}

}  // namespace

std::vector<std::string> AddressesToTry(const IdVector<HostId, std::string>& hosts,
                                        const IdVector<HostId, HostFacts>& facts) {
  if (std::all_of(hosts.begin(), hosts.end(), IsHere)) return {kLoopback};
  std::vector<std::string> addresses;
  for (const HostId host : hosts.ids()) {
    if (IsHere(hosts[host])) continue;
    AddOnce(facts[host].starter_address, &addresses);
    AddOnce(AddressTowards(hosts[host]), &addresses);
  }
  for (const std::string& address : OwnAddresses()) AddOnce(address, &addresses);
  return addresses;
}

absl::StatusOr<StarterAddress> ChooseStarterAddress(HostsSupervisor* supervisor,
                                                    const IdVector<HostId, std::string>& hosts,
                                                    const std::string& wanted) {
  const std::vector<std::string> addresses = wanted.empty()
                                                 ? AddressesToTry(hosts, supervisor->facts())
                                                 : std::vector<std::string>{wanted};
  const ProbeTargets targets = OpenProbeTargets(addresses);
  if (targets.open.empty()) {
    return ErrorOf(absl::StatusCode::kUnavailable,
                   {"W0875", wanted.empty() ? "the starter" : "--addr",
                    "an address of this machine that the hosts reach",
                    targets.refused.empty() ? "none" : absl::StrJoin(targets.refused, "; "),
                    "--addr ADDRESS names one of this machine's (`ip address` lists them)"});
  }
  const std::vector<std::string> tried = targets.addresses();
  const IdVector<HostId, std::vector<AddressProbe>> probes = supervisor->Probe(tried, kProbeMs);
  for (size_t i = 0; i < tried.size(); ++i) {
    StarterAddress chosen;
    chosen.address = targets.open[i]->host();
    for (const HostId host : hosts.ids()) {
      const AddressProbe& probe = probes[host][i];
      if (!probe.error.empty() && supervisor->LostText(host).empty()) break;
      chosen.interfaces.push_back(probe.interface);
      chosen.addresses.push_back(probe.local_address);
    }
    if (chosen.interfaces.size() == hosts.size()) return chosen;
  }
  std::vector<Problem> problems;
  for (const HostId host : hosts.ids()) {
    std::vector<std::string> results;
    for (size_t i = 0; i < tried.size(); ++i) {
      results.push_back(absl::StrCat(
          tried[i], " ", probes[host][i].error.empty() ? "reached" : probes[host][i].error));
    }
    problems.push_back({"W0875", absl::StrCat("host '", hosts[host], "'"),
                        "a way to the starter that all hosts have", absl::StrJoin(results, "; "),
                        "open this machine's ports to the hosts (a firewall drops or refuses), or "
                        "--addr ADDRESS"});
  }
  return ErrorOfAll(absl::StatusCode::kUnavailable, problems);
}

}  // namespace weir::hosts
