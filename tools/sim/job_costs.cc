#include "tools/sim/job_costs.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/job/import_settings.h"
#include "compiler/job/stage_meshes.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/sim/cluster_costs.h"
#include "tools/sim/cluster_file.h"
#include "tools/sim/device_costs.h"

namespace weir::sim {
namespace {

void SetLink(const compiler::DevicePeaks::Link& from, proto::Link* to) {
  to->set_latency_ns(static_cast<double>(from.latency_ns));
  to->set_bytes_per_second(from.bytes_per_second);
}

// Returns the costs of compiler::PeakCosts as a cluster.
proto::Cluster DefaultCluster(int64_t ranks) {
  const compiler::DevicePeaks peaks;
  proto::Cluster cluster;
  cluster.set_name("the defaults");
  proto::DeviceModel* device = cluster.add_device();
  device->set_name("a core of a server");
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    proto::Peak* peak = device->add_peak();
    peak->set_dtype(dtype);
    peak->set_flops_per_second(peaks.flops_per_second);
  }
  device->set_bytes_per_second(peaks.memory_bytes_per_second);
  device->set_act_ns(static_cast<double>(peaks.act_ns));
  device->set_kernel_ns(static_cast<double>(peaks.kernel_ns));
  proto::HostGroup* host = cluster.add_host();
  host->set_device(device->name());
  host->set_devices(static_cast<int32_t>(peaks.devices_per_host));
  host->set_count(
      static_cast<int32_t>((ranks + peaks.devices_per_host - 1) / peaks.devices_per_host));
  SetLink(peaks.within_host, cluster.mutable_within_host());
  SetLink(peaks.between_hosts, cluster.mutable_between_hosts());
  return cluster;
}

bool IsForGpus(const proto::Job& job) {
  return job.runtime().device() == "cuda" || job.runtime().device() == "cuda-emulated";
}

constexpr char kHowToMeasure[] = "weir calibrate JOB --keep";

// Returns the flops in a second of `ranks` devices of a host, which have no more cores than the
// host. 0: the device has no peak for such operands.
double PeakOfHost(const proto::HostGroup& host, const proto::DeviceModel& device,
                  const std::string& dtype, int64_t ranks, int threads_per_device) {
  const double peak = DeviceCosts(device).PeakFlops(dtype);
  if (device.cores() <= 0) return peak * static_cast<double>(ranks);
  int64_t cores = ranks * threads_per_device;
  if (host.cores() > 0) cores = std::min<int64_t>(cores, host.cores());
  return peak * static_cast<double>(cores) / device.cores();
}

std::string Environment(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

// In the folder of the user's settings, unless the variable names a file.
std::string KeptPath(const char* variable, const char* name) {
  if (std::string path = Environment(variable); !path.empty()) return path;
  std::string folder = Environment("XDG_CONFIG_HOME");
  if (folder.empty()) {
    const std::string home = Environment("HOME");
    if (home.empty()) return "";
    folder = home + "/.config";
  }
  return absl::StrCat(folder, "/weir/", name);
}

}  // namespace

// An H100 SXM by its data sheet, with the shares of it that large kernels reach; tensors pass
// through pinned memory of the host.
proto::Cluster DefaultGpuCluster(int64_t ranks) {
  constexpr int kDevicesPerHost = 8;
  // Measured on an H100: 0.94 to 1.0 GB, whatever the job (docs/how_to/measure.md).
  constexpr double kDriverBytes = 0.97e9;
  proto::Cluster cluster;
  cluster.set_name("an H100");
  proto::DeviceModel* device = cluster.add_device();
  device->set_name("H100");
  for (const char* dtype : {"bf16", "f16"}) {
    proto::Peak* half = device->add_peak();
    half->set_dtype(dtype);
    half->set_flops_per_second(989e12);
    half->set_efficiency(0.65);
  }
  proto::Peak* f32 = device->add_peak();
  f32->set_dtype("f32");
  f32->set_flops_per_second(67e12);
  device->set_bytes_per_second(0.85 * 3.35e12);
  device->set_act_ns(5'000);
  device->set_kernel_ns(5'000);
  device->set_driver_bytes(kDriverBytes);
  proto::HostGroup* host = cluster.add_host();
  host->set_device(device->name());
  host->set_devices(kDevicesPerHost);
  host->set_count(static_cast<int32_t>((ranks + kDevicesPerHost - 1) / kDevicesPerHost));
  SetLink({20'000, 25e9}, cluster.mutable_within_host());
  SetLink({40'000, 10e9}, cluster.mutable_between_hosts());
  return cluster;
}

std::string KeptClusterPath() { return KeptPath("WEIR_CLUSTER", "here.textproto"); }
std::string KeptGpuClusterPath() { return KeptPath("WEIR_GPU_CLUSTER", "gpu.textproto"); }

absl::StatusOr<JobCosts> JobCosts::Choose(const std::string& cluster) {
  if (cluster == kDefaultCosts) return Defaults();
  const std::string path = cluster.empty() ? KeptClusterPath() : cluster;
  if (cluster.empty() && (path.empty() || ::access(path.c_str(), F_OK) != 0)) return Defaults();
  WEIR_ASSIGN_OR_RETURN(const proto::Cluster read, ReadClusterFile(path));
  JobCosts costs = Of(read);
  costs.source_ = cluster.empty() ? Source::kKept : Source::kFile;
  costs.path_ = path;
  return costs;
}

absl::StatusOr<JobCosts> JobCosts::Choose(const std::string& cluster, const proto::Job& job) {
  if (!IsForGpus(job) || (!cluster.empty() && cluster != kDefaultCosts)) return Choose(cluster);
  // Jobs with a mesh that no machine holds are refused later.
  constexpr int64_t kRanksMax = 1 << 20;
  proto::Cluster described = DefaultGpuCluster(compiler::NumDevices(job, kRanksMax));
  const std::string kept = KeptGpuClusterPath();
  const bool is_kept = cluster.empty() && job.runtime().device() == "cuda" && !kept.empty() &&
                       ::access(kept.c_str(), F_OK) == 0;
  if (is_kept) {
    WEIR_ASSIGN_OR_RETURN(const proto::Cluster read, ReadClusterFile(kept));
    if (read.device_size() > 0) *described.mutable_device(0) = read.device(0);
    described.mutable_host(0)->set_device(described.device(0).name());
  }
  JobCosts costs = Of(described);
  costs.source_ = is_kept ? Source::kKept : Source::kGpuDefaults;
  if (is_kept) costs.path_ = kept;
  return costs;
}

JobCosts JobCosts::Defaults() { return JobCosts(); }

JobCosts JobCosts::Of(const proto::Cluster& cluster) {
  if (cluster.device_size() == 0) return Defaults();
  JobCosts costs;
  costs.source_ = Source::kFile;
  costs.path_ = cluster.name();
  costs.cluster_ = cluster;
  costs.model_ = std::make_shared<ClusterCosts>(cluster);
  return costs;
}

proto::Cluster JobCosts::ClusterFor(int64_t ranks) const {
  if (source_ == Source::kGpuDefaults) return DefaultGpuCluster(ranks);
  return source_ == Source::kDefaults ? DefaultCluster(ranks) : cluster_;
}

int64_t JobCosts::DriverBytes(const proto::Job& job) const {
  if (job.runtime().device() != "cuda" || cluster_.device_size() == 0) return 0;
  return static_cast<int64_t>(cluster_.device(0).driver_bytes());
}

void JobCosts::TellHosts(proto::Job* job) const {
  if (source_ != Source::kFile || job->mesh().devices_per_host() != 0 || cluster_.host_size() == 0)
    return;
  const int32_t devices = cluster_.host(0).devices();
  for (const proto::HostGroup& group : cluster_.host()) {
    if (group.devices() != devices) return;
  }
  job->mutable_mesh()->set_devices_per_host(devices);
}

train::PeakArithmetic JobCosts::PeakFor(const proto::Job& job,
                                        const train::DevicesInUse& devices) const {
  if (source_ == Source::kDefaults) return {0, kHowToMeasure};
  if (source_ == Source::kKept && devices.hosts > 1)
    return {0, "--cluster FILE of the hosts; the costs that are kept are of one"};
  const std::string dtype = Name(compiler::DTypeOf(job.training().precision()));
  std::map<std::string, const proto::DeviceModel*> models;
  for (const proto::DeviceModel& model : cluster_.device()) models[model.name()] = &model;
  double peak = 0;
  int64_t left = devices.ranks;
  for (const proto::HostGroup& group : cluster_.host()) {
    for (int32_t k = 0; k < std::max(1, group.count()) && left > 0; ++k) {
      const auto model = models.find(group.device());
      if (model == models.end()) break;
      // A job may have more devices than the machine whose costs are kept: they share its cores.
      const int64_t here =
          source_ == Source::kKept ? left : std::min<int64_t>(left, group.devices());
      const double of_host =
          PeakOfHost(group, *model->second, dtype, here, devices.threads_per_device);
      if (of_host <= 0)
        return {0, absl::StrCat(kHowToMeasure, ": ", Text(), " have no peak of ", dtype)};
      peak += of_host;
      left -= here;
    }
  }
  if (left > 0) return {0, "--cluster FILE of as many devices as the mesh has"};
  return {peak, Text()};
}

// The costs that were kept are those of a machine, not of the cluster that the job will have.
std::string JobCosts::MissingDevicesText(int64_t ranks) const {
  if (source_ != Source::kFile || NumDevices(cluster_) >= ranks) return "";
  return absl::StrCat("the cluster has ", Plural(NumDevices(cluster_), "device"),
                      ", fewer than the ", ranks,
                      " of the mesh: the job does not run there (--mesh)");
}

std::string JobCosts::Text() const {
  switch (source_) {
    case Source::kKept: return absl::StrCat("the costs measured on this machine (", path_, ")");
    case Source::kFile: return absl::StrCat("the costs of ", path_);
    case Source::kGpuDefaults:
      return "a roofline of an H100 by its data sheet, not measured: 989 TFLOP/s bf16 and f16 at "
             "65 %, 67 TFLOP/s f32, 3.35 TB/s at 85 %, 5 us per launch";
    case Source::kDefaults: break;
  }
  return "the default costs, those of a server's core, not of this machine";
}

}  // namespace weir::sim
