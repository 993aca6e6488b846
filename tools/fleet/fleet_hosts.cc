// The parts of Fleet that know hosts: how they are reached and examined, what is sent to them, and
// which host takes the place of a lost one.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/build_id.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/fleet/fleet.h"
#include "tools/fleet/heartbeat.h"
#include "tools/fleet/host_memory.h"
#include "tools/fleet/host_places.h"
#include "tools/fleet/input_files.h"
#include "tools/fleet/mesh_change.h"
#include "tools/hosts/host_ways.h"
#include "tools/launch/placement.h"

namespace weir::fleet {

// Reaches the hosts, finds the address at which they reach this machine, and starts the workers.
absl::StatusOr<std::unique_ptr<launch::Supervisor>> Fleet::StartOnHosts(
    const IdVector<WorkerId, launch::WorkerLaunch>& launches,
    const launch::SupervisorOptions& options) {
  hosts::HostsSupervisorOptions of_hosts;
  of_hosts.workers = options;
  of_hosts.build_id = BuildId();
  of_hosts.use_age_max_ms = UseAgeMaxMs({options_.heartbeat_ms, options_.dead_after_ms});
  of_hosts.may_lack = options_.lost_hosts;
  for (const HostId used : options_.host_of) of_hosts.may_lack.erase(used);
  std::error_code error;
  of_hosts.folder = std::filesystem::current_path(error).string();
  of_hosts.workers.log_directory = std::filesystem::absolute(options.log_directory, error).string();
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<hosts::HostsSupervisor> supervisor,
                        hosts::HostsSupervisor::Reach(options_.hosts, of_hosts));
  // Hosts that are parts of one machine and may use the same cores share the cores.
  std::map<std::pair<std::string, std::vector<int>>, HostId> machines;
  for (const hosts::HostFacts& facts : supervisor->facts())
    machine_of_.push_back(
        machines.emplace(std::pair(facts.machine, facts.cores), machine_of_.next_id())
            .first->second);
  const IdVector<HostId, std::string> names = hosts::NamesOf(options_.hosts);
  absl::StatusOr<hosts::StarterAddress> address =
      hosts::ChooseStarterAddress(supervisor.get(), names, options_.address);
  absl::Status started = CheckMemory(supervisor->facts());
  if (started.ok()) started = address.status();
  if (started.ok()) started = CheckWaysOf(supervisor.get(), *address, names);
  if (started.ok() && options_.ships_inputs) started = ShipInputs(supervisor.get());
  if (started.ok()) started = supervisor->StartWorkers(launches);
  if (!started.ok()) {
    RemoveShipped(supervisor.get());
    supervisor->TellEnd(ExitCode(started));
    return started;
  }
  starter_address_ = *std::move(address);
  on_hosts_ = supervisor.get();
  return supervisor;
}

absl::Status Fleet::CheckMemory(const IdVector<HostId, hosts::HostFacts>& facts) const {
  if (options_.bytes_of_rank.empty()) return absl::OkStatus();
  std::vector<HostShare> shares;
  for (const HostId host : facts.ids()) {
    HostShare share = {options_.hosts[host].host, facts[host].machine, facts[host].memory_bytes};
    for (const WorkerId worker : workers()) {
      if (options_.host_of[worker] != host) continue;
      for (const RankId rank : ranks_of_[worker]) {
        ++share.num_ranks;
        share.rank_bytes += options_.bytes_of_rank[rank];
      }
    }
    shares.push_back(std::move(share));
  }
  return CheckHostMemory(
      shares, *std::max_element(options_.bytes_of_rank.begin(), options_.bytes_of_rank.end()));
}

// Tries the ways between the hosts that have workers, or may get some.
absl::Status Fleet::CheckWaysOf(hosts::HostsSupervisor* supervisor,
                                const hosts::StarterAddress& address,
                                const IdVector<HostId, std::string>& names) const {
  std::set<HostId> used(options_.host_of.begin(), options_.host_of.end());
  for (const HostId host : names.ids()) {
    // Processes may start there later.
    if (options_.recovers && supervisor->LostText(host).empty()) used.insert(host);
  }
  IdVector<HostId, std::string> addresses = address.addresses;
  if (!options_.interface.empty()) {
    WEIR_ASSIGN_OR_RETURN(addresses,
                          hosts::AddressesOn(options_.interface, names, supervisor->facts(), used));
  }
  for (const HostId host : names.ids()) {
    if (used.count(host) == 0) addresses[host].clear();
  }
  return hosts::CheckWays(supervisor, names, addresses);
}

absl::Status Fleet::ShipInputs(hosts::HostsSupervisor* supervisor) {
  for (size_t i = 0; i < options_.input_files.size(); ++i)
    WEIR_RETURN_IF_ERROR(ShipInput(i, supervisor));
  return absl::OkStatus();
}

absl::Status Fleet::ShipInput(size_t index, hosts::HostsSupervisor* supervisor) {
  const std::string& path = options_.input_files[index];
  double bytes = 0;
  int num_hosts = 0;
  for (const ShippedFile& file : FilesToShip(path)) {
    IdVector<HostId, std::string> to(options_.hosts.size());
    num_hosts = 0;
    for (const HostId host : to.ids()) {
      if (!supervisor->LostText(host).empty()) continue;
      to[host] = PathOfCopy(
          file, ShippedPath(AbsoluteLogDirectory(), options_.hosts[host].host, index, path));
      ++num_hosts;
    }
    WEIR_RETURN_IF_ERROR(supervisor->ShipFile(file.from, to));
    std::error_code error;
    bytes += static_cast<double>(std::filesystem::file_size(file.from, error));
  }
  options_.console->Say(absl::StrCat(path, " sent to ", num_hosts,
                                     num_hosts == 1 ? " host" : " hosts", " (", BytesText(bytes),
                                     " each)"));
  return absl::OkStatus();
}

absl::Status Fleet::BringInput(const std::string& path) {
  const std::vector<std::string>& files = options_.input_files;
  if (!options_.ships_inputs || std::count(files.begin(), files.end(), path) > 0)
    return absl::OkStatus();
  absl::Status shipped;
  LetWatcherDo([&] {
    options_.input_files.push_back(path);
    shipped = ShipInput(options_.input_files.size() - 1, on_hosts_);
  });
  return shipped;
}

void Fleet::RemoveShipped(hosts::HostsSupervisor* supervisor) {
  if (supervisor == nullptr || !options_.ships_inputs) return;
  IdVector<HostId, std::vector<std::string>> copies(options_.hosts.size());
  for (const HostId host : options_.hosts.ids()) {
    for (size_t i = 0; i < options_.input_files.size(); ++i) {
      const std::string& path = options_.input_files[i];
      const std::string copy =
          ShippedPath(AbsoluteLogDirectory(), options_.hosts[host].host, i, path);
      for (const ShippedFile& file : FilesToShip(path))
        copies[host].push_back(PathOfCopy(file, copy));
    }
  }
  supervisor->RemoveFiles(copies);
}

std::string Fleet::PathOn(WorkerId worker, const std::string& path) const {
  const auto input = std::find(options_.input_files.begin(), options_.input_files.end(), path);
  if (!options_.ships_inputs || input == options_.input_files.end()) return path;
  return ShippedPath(AbsoluteLogDirectory(), HostOf(worker),
                     static_cast<size_t>(input - options_.input_files.begin()), path);
}

std::string Fleet::AbsoluteLogDirectory() const {
  std::error_code error;
  return std::filesystem::absolute(log_directory_, error).string();
}

int Fleet::num_ranks_on_host_of(WorkerId worker) const {
  size_t count = 0;
  for (const WorkerId other : workers()) {
    if (options_.hosts.empty() || machine_of_[HostIdOf(other)] == machine_of_[HostIdOf(worker)])
      count += ranks_of_[other].size();
  }
  return static_cast<int>(count);
}

std::string Fleet::HostOf(WorkerId worker) const {
  return options_.hosts.empty() || !worker.has_value() ? "" : options_.hosts[HostIdOf(worker)].host;
}

HostId Fleet::HostIdOf(WorkerId worker) const {
  MutexLock lock(&mutex_);
  return host_of_[worker];
}

std::set<HostId> Fleet::LostHosts() const {
  if (on_hosts_ == nullptr) return options_.lost_hosts;
  std::set<HostId> lost;
  for (const HostId host : options_.hosts.ids()) {
    if (!on_hosts_->LostText(host).empty()) lost.insert(host);
  }
  return lost;
}

int Fleet::num_ranks_at_start() const {
  size_t count = 0;
  for (const size_t room : room_of_) count += room;
  return static_cast<int>(count);
}

int Fleet::num_ranks_left() const {
  const std::set<HostId> lost = LostHosts();
  std::vector<WorkerId> on_lost_hosts;
  for (const WorkerId worker : workers()) {
    if (!options_.hosts.empty() && lost.count(HostIdOf(worker)) > 0)
      on_lost_hosts.push_back(worker);
  }
  return NumRanksLeft(workers(), on_lost_hosts, room_of_);
}

// Returns where the workers of the job are from now on.
absl::StatusOr<IdVector<WorkerId, HostId>> Fleet::PlacesFromNowOn() const {
  return PlacesOf(workers(), {});
}

// Returns where these workers are from now on; those that are `starting` have no process.
// kFailedPrecondition: a host is lost, and no other takes its place.
absl::StatusOr<IdVector<WorkerId, HostId>> Fleet::PlacesOf(
    const std::vector<WorkerId>& workers, const std::vector<WorkerId>& starting) const {
  IdVector<WorkerId, HostId> host_of;
  {
    MutexLock lock(&mutex_);
    host_of = host_of_;
  }
  const std::set<HostId> lost = LostHosts();
  std::optional<IdVector<WorkerId, HostId>> places = fleet::PlacesFromNowOn(
      workers, starting, options_.listed_hosts, lost, {options_.host_of, host_of});
  if (places.has_value()) return *std::move(places);
  std::set<std::string> names;
  for (const WorkerId worker : workers) {
    if (lost.count(host_of[worker]) > 0)
      names.insert(absl::StrCat("'", options_.hosts[host_of[worker]].host, "'"));
  }
  return ErrorOf(
      absl::StatusCode::kFailedPrecondition,
      {"W0727", absl::StrCat(names.size() == 1 ? "host " : "hosts ", absl::StrJoin(names, " and ")),
       "a host in reserve, or free slots on another host",
       names.size() == 1 ? "the host is lost, and no host has room for its processes"
                         : "the hosts are lost, and no hosts have room for their processes",
       "--resume with other hosts, if the job ends; next time one host more in --hosts, and "
       "--spares "
       "1"});
}

Fleet::Replacement Fleet::ForeseeReplacement() {
  Replacement replacement;
  LetWatcherDo([&] { replacement = Foresee(); });
  return replacement;
}

Fleet::Replacement Fleet::Foresee() const {
  const std::vector<WorkerId> lost = WorkersToStart();
  const auto processes = [](const std::vector<std::string>& names) {
    return absl::StrCat(names.size() == 1 ? "the process of " : "the processes of ",
                        absl::StrJoin(names, " and "));
  };
  Replacement replacement;
  std::vector<std::string> names_of_lost;
  for (const WorkerId worker : workers()) {
    if (std::count(lost.begin(), lost.end(), worker) == 0) continue;
    replacement.workers.push_back(worker);
    names_of_lost.push_back(LabelOf(worker));
  }
  replacement.ranks_left = NumRanksLeft(workers(), lost, room_of_);
  replacement.lost = processes(names_of_lost);
  replacement.num_lost = static_cast<int>(names_of_lost.size());
  replacement.num_others = static_cast<int>(workers().size()) - replacement.num_lost;
  replacement.lost_hosts = LostHosts();
  std::vector<std::string> stay;
  std::map<std::pair<HostId, HostId>, std::vector<std::string>> moves;  // by the old and new host
  absl::StatusOr<IdVector<WorkerId, HostId>> places = IdVector<WorkerId, HostId>();
  if (on_hosts_ != nullptr) {
    places = PlacesFromNowOn();
    replacement.status = places.status();
    if (!places.ok()) return replacement;
  }
  for (const WorkerId worker : lost) {
    const std::string name = LabelOf(worker);
    if (on_hosts_ == nullptr || (*places)[worker] == HostIdOf(worker)) {
      stay.push_back(name);
    } else {
      moves[{HostIdOf(worker), (*places)[worker]}].push_back(name);
    }
  }
  std::vector<std::string> texts;
  if (!stay.empty())
    texts.push_back(
        absl::StrCat(processes(stay), stay.size() == 1 ? " starts anew" : " start anew"));
  for (const auto& [way, names] : moves) {
    texts.push_back(absl::StrCat("host '", options_.hosts[way.first].host, "' is lost, and ",
                                 processes(names), names.size() == 1 ? " starts" : " start",
                                 " anew on host '", options_.hosts[way.second].host, "'"));
  }
  replacement.text = absl::StrJoin(texts, "; ");
  return replacement;
}

// Takes places for these workers where their hosts are lost, for all at once: a host without slots
// has no room beside the processes that have come before.
absl::Status Fleet::TakePlaces(const std::vector<WorkerId>& starting) {
  WEIR_ASSIGN_OR_RETURN(const auto places, PlacesOf(workers(), starting));
  MutexLock lock(&mutex_);
  for (const WorkerId worker : starting) host_of_[worker] = places[worker];
  return absl::OkStatus();
}

// Starts the process of a worker anew in its place. If its host is lost, too, all that are
// `starting` take other places. The watching thread calls this.
absl::Status Fleet::StartOneAnew(WorkerId worker, const std::vector<WorkerId>& starting) {
  if (on_hosts_ == nullptr) return supervisor_->StartAgain(worker);
  while (true) {
    const HostId host = HostIdOf(worker);
    const absl::Status started = on_hosts_->StartAgainOn(worker, host);
    // A host that gives no answer is lost now, and another one may take its place.
    if (started.ok() || on_hosts_->LostText(host).empty()) return started;
    options_.console->Say(absl::StrCat("WARNING: host '", options_.hosts[host].host,
                                       "' counts as lost: ", started.message()));
    WEIR_RETURN_IF_ERROR(TakePlaces(starting));
  }
}

}  // namespace weir::fleet
