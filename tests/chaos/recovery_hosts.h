// The hosts of a simulated job: which of them live, whose loss the starter knows, and which host
// runs which worker. Where workers go is decided by the product (host_places.h); this class only
// checks that nobody starts on a lost host, and that no host takes more than it has room for.
// Thread rule: one thread.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/id_vector.h"
#include "runtime/base/ids.h"
#include "tools/fleet/host_places.h"
#include "tools/hosts/host_list.h"

namespace weir::chaos {

class RecoveryHosts {
 public:
  // A start of a job whose workers are on `host_of`; `lost` are the hosts known to be lost. An
  // empty list: the job has one machine and no hosts.
  void Begin(const hosts::HostList& listed, const IdVector<WorkerId, HostId>& host_of,
             const std::set<HostId>& lost);

  bool are_used() const { return !listed_.empty(); }
  size_t size() const { return listed_.size(); }
  // Returns the name of the worker's host; empty: the job has one machine.
  std::string NameOf(WorkerId worker) const;
  HostId HostOf(WorkerId worker) const { return host_of_[worker]; }

  bool IsDead(HostId host) const { return dead_.count(host) > 0; }
  void Die(HostId host) { dead_.insert(host); }
  // A host that was lost is there again, and the starter knows.
  void Return(HostId host) {
    dead_.erase(host);
    lost_.erase(host);
  }
  const std::set<HostId>& dead() const { return dead_; }
  void NoteLost(HostId host) { lost_.insert(host); }
  const std::set<HostId>& lost() const { return lost_; }

  // Returns the hosts of all workers from now on; nullopt: no hosts have room for those that must
  // move. `workers` are those of the job; `starting` of them have no process.
  std::optional<IdVector<WorkerId, HostId>> PlacesFromNowOn(
      const std::vector<WorkerId>& workers, const std::vector<WorkerId>& starting) const;
  // Moves the starting workers. Returns what is wrong with that; "" if nothing is.
  std::string Move(const std::vector<WorkerId>& starting, const IdVector<WorkerId, HostId>& places,
                   const std::vector<WorkerId>& workers);
  // Returns whether hosts have room for all workers that must move: counts the rooms.
  bool HasRoom(const std::vector<WorkerId>& workers, const std::vector<WorkerId>& starting) const;

 private:
  size_t CountOn(HostId host, const std::vector<WorkerId>& workers) const;
  size_t MostOn(HostId host) const;

  hosts::HostList listed_;
  IdVector<WorkerId, HostId> host_at_start_, host_of_;
  IdVector<WorkerId, HostId> came_from_;  // the last host of each worker; none: it has not moved
  std::set<HostId> dead_, lost_;
  size_t fullest_ = 0;  // the most workers of a host at the start
};

}  // namespace weir::chaos
