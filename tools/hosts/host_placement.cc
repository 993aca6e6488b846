#include "tools/hosts/host_placement.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace weir::hosts {
namespace {

int SlotsMax(const ListedHost& host) {
  return host.slots > 0 ? host.slots : std::numeric_limits<int>::max();
}

// Refuses more processes than there are slots, with the advice that fits whoever listed the hosts.
absl::Status NoSlots(const HostList& hosts, int num_processes, int num_slots) {
  const ListedBy by = hosts.empty() ? ListedBy::kFlag : hosts.front().by;
  const std::string count = absl::StrCat(num_processes);
  std::string where, hint;
  switch (by) {
    case ListedBy::kFlag:
      where = "--hosts";
      hint = "more hosts, more slots (host:N)";
      break;
    case ListedBy::kVariable:
      where = "WEIR_HOSTS";
      hint = "more hosts, more slots (host:N)";
      break;
    case ListedBy::kFile:
      where = "--hostfile";
      hint = "more hosts, more slots (`host slots=N`)";
      break;
    case ListedBy::kMpirun:
      where = "the tasks of mpirun";
      hint = absl::StrCat("a task for each process (mpirun -n ", count, ")");
      break;
    case ListedBy::kMpiexec:
      where = "the tasks of mpiexec";
      hint = absl::StrCat("a task for each process (mpiexec -n ", count, ")");
      break;
    case ListedBy::kSrun:
      where = "the tasks of srun";
      hint = absl::StrCat("a task for each process (srun -n ", count, ")");
      break;
    case ListedBy::kAllocation:
      where = "the nodes of the Slurm job";
      hint = absl::StrCat("a task for each process (sbatch -n ", count, ", salloc -n ", count, ")");
      break;
  }
  const bool is_task = by == ListedBy::kMpirun || by == ListedBy::kMpiexec || by == ListedBy::kSrun;
  return Rejected({"W0876", where, absl::StrCat("slots for ", count, " processes"),
                   is_task ? absl::StrCat(num_slots, num_slots == 1 ? " task" : " tasks")
                           : absl::StrCat(num_slots, " on ", hosts.size(),
                                          hosts.size() == 1 ? " host" : " hosts"),
                   absl::StrCat(hint, ", or a smaller --processes")});
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
    if (!has_room) return NoSlots(hosts, num_processes, num_processes - left);
  }
  IdVector<WorkerId, HostId> host_of;
  for (const HostId host : hosts.ids())
    host_of.resize(host_of.size() + static_cast<size_t>(counts[host]), host);
  return host_of;
}

}  // namespace weir::hosts
