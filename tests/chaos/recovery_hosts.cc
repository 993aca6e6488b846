#include "tests/chaos/recovery_hosts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir::chaos {

void RecoveryHosts::Begin(const hosts::HostList& listed, const IdVector<WorkerId, HostId>& host_of,
                          const std::set<HostId>& lost) {
  listed_ = listed;
  host_at_start_ = host_of_ = host_of;
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
    const std::vector<WorkerId>& workers, const std::vector<WorkerId>& starting) const {
  return fleet::PlacesFromNowOn(workers, starting, listed_, lost_, {host_at_start_, host_of_});
}

size_t RecoveryHosts::CountOn(HostId host, const std::vector<WorkerId>& workers) const {
  return static_cast<size_t>(std::count_if(
      workers.begin(), workers.end(), [&](WorkerId worker) { return host_of_[worker] == host; }));
}

// Returns for how many workers a host has room.
size_t RecoveryHosts::MostOn(HostId host) const {
  const auto slots = static_cast<size_t>(listed_[host].slots);
  return slots > 0 ? slots : fullest_;
}

std::string RecoveryHosts::Move(const std::vector<WorkerId>& starting,
                                const IdVector<WorkerId, HostId>& places,
                                const std::vector<WorkerId>& workers) {
  const IdVector<WorkerId, HostId> before = host_of_;
  for (const WorkerId worker : starting) {
    host_of_[worker] = places[worker];
    if (before[worker] != places[worker]) came_from_[worker] = before[worker];
  }
  for (const WorkerId worker : starting) {
    const HostId to = host_of_[worker], from = before[worker];
    const std::string& name = listed_[to].name;
    if (lost_.count(to) > 0)
      return absl::StrCat("worker ", worker, " is to start on host ", name, ", which is lost");
    if (const size_t count = CountOn(to, workers); count > MostOn(to)) {
      return absl::StrCat("host ", name, " gets ", count, " workers, and has room for ",
                          MostOn(to));
    }
    if (from == to) continue;
    if (lost_.count(from) == 0 && CountOn(from, workers) < MostOn(from)) {
      return absl::StrCat("worker ", worker, " moves to host ", name, " though its own, ",
                          listed_[from].name, ", has room");
    }
    for (const WorkerId other : workers) {
      if (listed_[to].slots == 0 && other != worker && host_of_[other] == to &&
          came_from_[other] != from)
        return absl::StrCat("host ", name, " takes the place of two hosts");
    }
  }
  return "";
}

bool RecoveryHosts::HasRoom(const std::vector<WorkerId>& workers,
                            const std::vector<WorkerId>& starting) const {
  if (!are_used()) return true;
  // A host without slots takes the place of one host, and one with slots takes workers. Either all
  // hosts are listed with slots, or none is.
  const bool has_slots = listed_.front().slots > 0;
  IdVector<HostId, size_t> stay(listed_.size(), 0), move(listed_.size(), 0);
  for (const WorkerId worker : workers) {
    if (std::count(starting.begin(), starting.end(), worker) == 0)
      ++(lost_.count(host_of_[worker]) > 0 ? move : stay)[host_of_[worker]];
  }
  for (const WorkerId worker : starting) {
    const HostId host = host_of_[worker];
    ++(lost_.count(host) > 0 || stay[host] >= MostOn(host) ? move : stay)[host];
  }
  size_t moving = 0, room = 0;
  for (const HostId host : listed_.ids()) {
    moving += has_slots || move[host] == 0 ? move[host] : 1;
    if (lost_.count(host) > 0) continue;
    room += has_slots ? MostOn(host) - std::min(MostOn(host), stay[host]) : stay[host] == 0 ? 1 : 0;
  }
  return moving <= room;
}

}  // namespace weir::chaos
