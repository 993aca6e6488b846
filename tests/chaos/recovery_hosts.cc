#include "tests/chaos/recovery_hosts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/fleet/host_places.h"

namespace weir::chaos {

void RecoveryHosts::Begin(const hosts::HostList& listed, const IdVector<WorkerId, HostId>& host_of,
                          const std::set<HostId>& lost) {
  listed_ = listed;
  host_of_ = host_of;
  lost_ = lost;
  came_from_ = IdVector<WorkerId, HostId>(host_of.size());
  fullest_ = 0;
  for (const HostId host : listed_.ids()) {
    const auto count = std::count(host_of_.begin(), host_of_.end(), host);
    fullest_ = std::max(fullest_, static_cast<size_t>(count));
  }
}

std::string RecoveryHosts::NameOf(WorkerId worker) const {
  return are_used() ? listed_[host_of_[worker]].name : "";
}

std::optional<IdVector<WorkerId, HostId>> RecoveryHosts::PlacesFromNowOn(
    const std::vector<WorkerId>& workers) const {
  return fleet::ReplaceHostsOf(workers, listed_, lost_, host_of_);
}

size_t RecoveryHosts::CountOn(HostId host, const std::vector<WorkerId>& workers) const {
  return static_cast<size_t>(std::count_if(
      workers.begin(), workers.end(), [&](WorkerId worker) { return host_of_[worker] == host; }));
}

std::string RecoveryHosts::Move(WorkerId worker, HostId to, const std::vector<WorkerId>& workers) {
  const std::string& name = listed_[to].name;
  if (lost_.count(to) > 0)
    return absl::StrCat("worker ", worker, " is to start on host ", name, ", which is lost");
  const HostId from = host_of_[worker];
  if (from == to) return "";
  if (lost_.count(from) == 0) {
    return absl::StrCat("worker ", worker, " moves to host ", name, " though its own, ",
                        listed_[from].name, ", is not lost");
  }
  const size_t count = CountOn(to, workers) + 1;
  const auto slots = static_cast<size_t>(listed_[to].slots);
  if (count > (slots > 0 ? slots : fullest_))
    return absl::StrCat("host ", name, " gets ", count, " workers, and has no room for them");
  for (const WorkerId other : workers) {
    if (slots == 0 && other != worker && host_of_[other] == to && came_from_[other] != from)
      return absl::StrCat("host ", name, " takes the place of two hosts");
  }
  host_of_[worker] = to;
  came_from_[worker] = from;
  return "";
}

bool RecoveryHosts::HasRoom(const std::vector<WorkerId>& workers) const {
  // A host without slots takes the place of one host, and one with slots takes workers. Either all
  // hosts are listed with slots, or none is.
  const bool has_slots = are_used() && listed_.front().slots > 0;
  size_t moving = 0, room = 0;
  for (const HostId host : listed_.ids()) {
    const size_t count = CountOn(host, workers);
    const auto slots = static_cast<size_t>(listed_[host].slots);
    if (lost_.count(host) > 0) {
      moving += has_slots || count == 0 ? count : 1;
    } else {
      room += has_slots ? slots - std::min(slots, count) : count == 0 ? 1 : 0;
    }
  }
  return moving <= room;
}

}  // namespace weir::chaos
