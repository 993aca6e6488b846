#include "tools/hosts/host_placement.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::hosts {
namespace {

int SlotsMax(const ListedHost& host) {
  return host.slots > 0 ? host.slots : std::numeric_limits<int>::max();
}

}  // namespace

int NumProcesses(const HostList& hosts, int num_ranks) {
  int64_t slots = 0;
  for (const ListedHost& host : hosts) slots += std::max(host.slots, 1);
  return static_cast<int>(std::min<int64_t>(slots, num_ranks));
}

absl::StatusOr<IdVector<WorkerId, HostId>> PlaceOnHosts(const HostList& hosts, int num_processes) {
  IdVector<HostId, int> counts(hosts.size(), 0);
  int left = num_processes;
  while (left > 0) {
    bool has_room = false;
    for (const HostId host : hosts.ids()) {
      if (left == 0) break;
      if (counts[host] == SlotsMax(hosts[host])) continue;
      ++counts[host];
      --left;
      has_room = true;
    }
    if (!has_room) {
      return Rejected({"W0876", "--hosts", absl::StrCat("slots for ", num_processes, " processes"),
                       absl::StrCat(num_processes - left, " on ", hosts.size(),
                                    hosts.size() == 1 ? " host" : " hosts"),
                       "more hosts, more slots (host:N), or a smaller --processes"});
    }
  }
  IdVector<WorkerId, HostId> host_of;
  for (const HostId host : hosts.ids())
    host_of.resize(host_of.size() + static_cast<size_t>(counts[host]), host);
  return host_of;
}

}  // namespace weir::hosts
