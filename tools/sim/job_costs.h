// Chooses the costs for which a job is planned and predicted. `weir plan`, `weir sim`, `weir check`
// and `weir train` all use this choice, so one command line gives the same costs and the same name
// of their source in all of them:
//
//   --cluster PATH       the costs of that file
//   --cluster defaults   the defaults, whatever is kept
//   no --cluster         the costs that `weir calibrate --keep` measured on this machine, if there
//                        are any; else the defaults
//
// The defaults are a core of a present-day server (compiler::DevicePeaks), with as many hosts of
// eight as the job needs. A job for GPUs (runtime.device: cuda, cuda-emulated) has other defaults:
// a roofline of an H100 from its data sheet, which nobody has measured; and the costs that are kept
// of this machine's cores do not count for it. A job of kind cuda takes those that `weir calibrate
// --device cuda --keep` measured on this machine's GPU, if there are any, on as many hosts of eight
// as it needs. The costs change the time of a training's
// step, and not the bits of its results. Thread rule: immutable once made, except for reading files
// and the environment.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/cost/cost_model.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "tools/train/peak_arithmetic.h"

namespace weir::sim {

inline constexpr char kDefaultCosts[] = "defaults";  // the value of --cluster

class JobCosts {
 public:
  enum class Source : uint8_t { kDefaults, kGpuDefaults, kFile, kKept };

  // Chooses by the value of --cluster; empty: no --cluster. Errors: those of the file (W0700 to
  // W0702).
  static absl::StatusOr<JobCosts> Choose(const std::string& cluster);
  // The same for a job that may be one for GPUs.
  static absl::StatusOr<JobCosts> Choose(const std::string& cluster, const proto::Job& job);
  // Returns the built-in defaults.
  static JobCosts Defaults();
  // Returns the costs of a cluster that was already read, called by its name. A cluster without
  // devices gives the defaults.
  static JobCosts Of(const proto::Cluster& cluster);

  Source source() const { return source_; }
  // Returns the cluster on which `ranks` ranks are simulated.
  proto::Cluster ClusterFor(int64_t ranks) const;
  // Returns the cluster as in its file. The cluster of the defaults has no devices.
  const proto::Cluster& cluster() const { return cluster_; }
  // Writes into the job where the hosts of a cluster that the user named end
  // (MeshSpec.devices_per_host), unless the job says so itself, or the hosts differ.
  void TellHosts(proto::Job* job) const;
  // Returns a sentence for people if the user has named a cluster with fewer devices than `ranks`;
  // else an empty text.
  std::string MissingDevicesText(int64_t ranks) const;
  // Returns the bytes that the driver and its libraries take of a device's memory if the job runs
  // on GPUs, by the first device of the cluster; 0 for other devices.
  int64_t DriverBytes(const proto::Job& job) const;
  // The costs with which the compiler plans. The costs live as long as any copy of this object.
  const compiler::CostModel& model() const { return *model_; }
  // Returns the peak arithmetic of the devices of `job`, for operands of its precision, as the
  // costs have it; not known from the defaults, which are not of this machine, nor from the costs
  // kept of this machine if the job runs on several. Devices that share cores have no more than the
  // cores.
  train::PeakArithmetic PeakFor(const proto::Job& job, const train::DevicesInUse& devices) const;
  // Returns "the costs of here.textproto", or "the default costs: those of a server's core, not of
  // this machine".
  std::string Text() const;

 private:
  Source source_ = Source::kDefaults;
  std::string path_;
  proto::Cluster cluster_;
  std::shared_ptr<const compiler::CostModel> model_ = std::make_shared<compiler::PeakCosts>();
};

// Returns the defaults for GPUs, with at least `ranks` devices.
proto::Cluster DefaultGpuCluster(int64_t ranks);

// Returns the path where `weir calibrate --device cuda --keep` writes the costs of this machine's
// GPU: weir/gpu.textproto beside the file below, or $WEIR_GPU_CLUSTER.
std::string KeptGpuClusterPath();

// Returns the path where `weir calibrate --keep` writes the costs of this machine and where the
// other verbs look for them: $WEIR_CLUSTER, else weir/here.textproto in $XDG_CONFIG_HOME or in
// ~/.config. Empty if none of these variables is set.
std::string KeptClusterPath();

}  // namespace weir::sim
