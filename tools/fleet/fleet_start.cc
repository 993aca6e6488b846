#include "tools/fleet/fleet_start.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "tools/fleet/input_files.h"
#include "tools/fleet/rank_spread.h"

namespace weir::fleet {

absl::Status LaunchFleet(const FleetOptions& options, int num_ranks,
                         const IdVector<RankId, int64_t>& bytes_of_rank,
                         std::unique_ptr<Fleet>* fleet) {
  WEIR_ASSIGN_OR_RETURN(RankSpread spread, SpreadRanks(options, num_ranks));
  if (!options.listed_hosts.empty()) {
    const std::set<HostId> used(spread.host_of.begin(), spread.host_of.end());
    if (const size_t idle = options.listed_hosts.size() - used.size(); idle > 0) {
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
  if (fleet.is_spread_over_hosts()) {
    for (const std::string& path : fleet.input_files())
      open.add_input_file(fleet.PathOn(worker, path));
  }
  for (const RankId rank : fleet.ranks_of(worker)) open.add_rank(rank.value());
  open.set_threads_per_device(threads_per_device);
  open.set_devices_on_host(fleet.num_ranks_on_host_of(worker));
  open.set_epoch(fleet.epoch());
  open.set_lanes(options.lanes);
  open.set_checksums(options.checksums == FleetOptions::Checksums::kOn);
  open.set_plan_id(plan_id);
  return open;
}

absl::Status CheckInputs(const Fleet& fleet,
                         const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  if (!fleet.is_spread_over_hosts()) return absl::OkStatus();
  for (size_t i = 0; i < fleet.input_files().size(); ++i) {
    const std::string& path = fleet.input_files()[i];
    std::vector<FileOnHost> files;
    for (const WorkerId worker : answers.ids()) {
      FileFingerprint found;
      if (static_cast<int>(i) < answers[worker].input_file_size()) {
        const proto::FileFact& fact = answers[worker].input_file(static_cast<int>(i));
        found = {fact.size(), fact.crc()};
      }
      files.push_back({fleet.PathOn(worker, path), fleet.HostOf(worker), found});
    }
    WEIR_RETURN_IF_ERROR(CheckSameFile(FingerprintOf(path), files));
  }
  return absl::OkStatus();
}

absl::Status CheckProcessors(const Fleet& fleet, const proto::Job& job,
                             const IdVector<WorkerId, proto::WorkerAnswer>& answers) {
  if (job.runtime().mixed_processors() || absl::StartsWith(job.runtime().device(), "cuda"))
    return absl::OkStatus();
  std::vector<ProcessorOfWorker> processors;
  for (const WorkerId worker : answers.ids()) {
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
