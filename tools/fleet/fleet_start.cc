#include "tools/fleet/fleet_start.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "tools/fleet/input_files.h"
#include "tools/fleet/input_watch.h"
#include "tools/fleet/rank_spread.h"
#include "tools/job/data_paths.h"

namespace weir::fleet {

namespace {

void SayWhoStandsBy(const FleetOptions& options, const std::set<HostId>& used) {
  constexpr size_t kNamesMax = 4;
  std::vector<std::string> names;
  for (const HostId host : options.listed_hosts.ids()) {
    if (used.count(host) == 0 && options.lost_hosts.count(host) == 0)
      names.push_back(options.listed_hosts[host].name);
  }
  if (names.empty()) return;
  const size_t more = names.size() - std::min(names.size(), kNamesMax);
  names.resize(names.size() - more);
  options.console->Say(absl::StrCat("in reserve, if a host is lost: ", absl::StrJoin(names, ", "),
                                    more > 0 ? absl::StrCat(" and ", more, " more") : ""));
}

}  // namespace

absl::Status LaunchFleet(const FleetOptions& options, int num_ranks,
                         const IdVector<RankId, int64_t>& bytes_of_rank,
                         std::unique_ptr<Fleet>* fleet) {
  WEIR_ASSIGN_OR_RETURN(RankSpread spread, SpreadRanks(options, num_ranks));
  if (!options.listed_hosts.empty()) {
    const std::set<HostId> used(spread.host_of.begin(), spread.host_of.end());
    const size_t idle = options.listed_hosts.size() - used.size();
    if (idle > 0 && (options.recovers || options.spares > 0)) {
      SayWhoStandsBy(options, used);
    } else if (idle > 0) {
      options.console->Say(absl::StrCat(
          idle, " of ", options.listed_hosts.size(), options.is_scheduled ? " tasks" : " hosts",
          " have nothing to do: the mesh has ", num_ranks, num_ranks == 1 ? " device" : " devices",
          " (--mesh gives more)"));
    }
  }
  FleetOptions fleet_options = options;
  fleet_options.processes = spread.ranks_of.next_id().value();
  fleet_options.host_of = std::move(spread.host_of);
  fleet_options.bytes_of_rank = bytes_of_rank;
  *fleet = std::make_unique<Fleet>(std::move(spread.ranks_of), fleet_options);
  return (*fleet)->Launch();
}

proto::OpenCommand OpenCommandFor(const Fleet& fleet, WorkerId worker, const FleetOptions& options,
                                  const proto::Job& job, int threads_per_device,
                                  const std::string& plan_id) {
  proto::OpenCommand open;
  *open.mutable_job() = job;
  SetPlace(fleet, worker, options, job, &open);
  for (const RankId rank : fleet.ranks_of(worker)) open.add_rank(rank.value());
  open.set_threads_per_device(threads_per_device);
  open.set_epoch(fleet.epoch());
  open.set_lanes(options.lanes);
  open.set_checksums(options.checksums == FleetOptions::Checksums::kOn);
  open.set_plan_id(plan_id);
  return open;
}

void SetPlace(const Fleet& fleet, WorkerId worker, const FleetOptions& options,
              const proto::Job& job, proto::OpenCommand* open) {
  open->set_devices_on_host(fleet.num_ranks_on_host_of(worker));
  NameInputs(fleet, worker, fleet.input_files(), open->mutable_input_file());
  if (!fleet.is_spread_over_hosts() || !options.ships_inputs) return;
  *open->mutable_data() = job.data();
  job::ReplaceDataPaths([&](const std::string& path) { return fleet.PathOn(worker, path); },
                        open->mutable_data());
}

void NameInputs(const Fleet& fleet, WorkerId worker, const std::vector<std::string>& files,
                google::protobuf::RepeatedPtrField<std::string>* names) {
  names->Clear();
  if (!fleet.is_spread_over_hosts()) return;
  for (const std::string& path : files) *names->Add() = fleet.PathOn(worker, path);
}

absl::Status CheckInputs(const Fleet& fleet, const InputWatch* inputs,
                         const std::vector<std::string>& input_files,
                         const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  if (!fleet.is_spread_over_hosts()) return absl::OkStatus();
  for (size_t i = 0; i < input_files.size(); ++i) {
    const std::string& path = input_files[i];
    std::vector<FileOnHost> files;
    for (const WorkerId worker : answers.ids()) {
      if (answers[worker].input_file().empty()) continue;
      FileFingerprint found;
      if (static_cast<int>(i) < answers[worker].input_file_size()) {
        const proto::FileFact& fact = answers[worker].input_file(static_cast<int>(i));
        found = {fact.size(), fact.sum()};
      }
      files.push_back({fleet.PathOn(worker, path), fleet.HostOf(worker), found});
    }
    std::optional<FileFingerprint> own;
    if (inputs != nullptr) own = inputs->PrintOf(path);
    WEIR_RETURN_IF_ERROR(own.has_value()
                             ? CheckSameFile(*own, OwnFile::kAsTheRunBegan, files)
                             : CheckSameFile(FingerprintOf(path), OwnFile::kNow, files));
  }
  return absl::OkStatus();
}

absl::Status CheckProcessors(const Fleet& fleet, const proto::Job& job,
                             const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  if (job.runtime().mixed_processors() || absl::StartsWith(job.runtime().device(), "cuda"))
    return absl::OkStatus();
  std::vector<ProcessorOfWorker> processors;
  for (const WorkerId worker : fleet.workers()) {
    if (fleet.ranks_of(worker).empty()) continue;
    processors.push_back({fleet.is_spread_over_hosts() ? absl::StrCat("host ", fleet.HostOf(worker))
                                                       : absl::StrCat("worker ", worker),
                          answers[worker].processor()});
  }
  return CheckSameProcessors(processors);
}

absl::Status CheckSameProcessors(const std::vector<ProcessorOfWorker>& processors) {
  for (const ProcessorOfWorker& processor : processors) {
    const ProcessorOfWorker& first = processors.front();
    if (processor.kernels == first.kernels) continue;
    return Rejected({"W0844", absl::StrCat("the processor of ", processor.where),
                     absl::StrCat("kernels as on ", first.where, " (", first.kernels, ")"),
                     processor.kernels,
                     "hosts of one kind; or --set runtime.mixed_processors=true, with which "
                     "replicas may differ in their last bits"});
  }
  return absl::OkStatus();
}

}  // namespace weir::fleet
