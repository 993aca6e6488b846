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

int NumProcesses(const std::vector<ListedHost>& hosts, int num_ranks) {
  int64_t slots = 0;
  for (const ListedHost& host : hosts) slots += std::max(host.slots, 1);
  return static_cast<int>(std::min<int64_t>(slots, num_ranks));
}

absl::StatusOr<std::vector<int>> PlaceOnHosts(const std::vector<ListedHost>& hosts,
                                              int num_processes) {
  std::vector<int> counts(hosts.size(), 0);
  int left = num_processes;
  while (left > 0) {
    bool has_room = false;
    for (size_t host = 0; host < hosts.size() && left > 0; ++host) {
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
  std::vector<int> host_of;
  for (size_t host = 0; host < hosts.size(); ++host)
    host_of.insert(host_of.end(), static_cast<size_t>(counts[host]), static_cast<int>(host));
  return host_of;
}

}  // namespace weir::hosts
