#include "tools/sim/calibrate_gpu.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "actors/session/session.h"
#include "compiler/compile.h"
#include "compiler/job/import_graph.h"
#include "runtime/base/mutex.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/device/cuda/cuda_facts.h"
#include "runtime/device/device_factory.h"
#include "tools/sim/device_costs.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/kernel_times.h"
#include "tools/sim/measured_feed.h"

namespace weir::sim {
namespace {

constexpr char kGpus[] = "cuda";
// Kernels of fewer bytes say nothing of the speed of the memory.
constexpr double kBytesOfLargeKernels = 4e6;

using RowKey = std::tuple<std::string, std::string, std::string>;  // op, dtype, shapes
struct Row {
  KernelWork work;
  double sum = 0;
  int64_t places = 0;
};

// The measurement takes one act at a time, and no collective, which would wait for other ranks.
proto::Job OneActAtATime(const proto::Job& job) {
  proto::Job measured = job;
  measured.mutable_runtime()->set_device_queues(1);
  measured.mutable_runtime()->set_device_depth(1);
  measured.mutable_runtime()->set_collectives(proto::Runtime::EXCHANGES);
  return measured;
}

// Ranks that share a GPU would measure each other.
absl::Status CheckOneGpuEach(const proto::Job& job, size_t ranks) {
  if (job.runtime().device() != kGpus) return absl::OkStatus();
  const size_t gpus = device::FindGpus().gpus.size();
  if (ranks <= gpus) return absl::OkStatus();
  return Rejected({"W0964", "weir calibrate", "a GPU for each rank of the mesh",
                   absl::StrCat(Plural(static_cast<int64_t>(ranks), "rank"), " on a machine with ",
                                Plural(static_cast<int64_t>(gpus), "GPU")),
                   "--mesh '' measures one GPU"});
}

absl::Status MeasureJob(const proto::Job& job, const CalibrateOptions& options,
                        std::map<RowKey, Row>* rows) {
  const proto::Job measured = OneActAtATime(job);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<compiler::LogicalPlan> logical,
                        compiler::CompileJob(measured, {.mode = compiler::ModeOf(measured)}));
  std::vector<proto::RankPlan> plans;
  for (const RankId rank : logical->places.all_ranks()) {
    WEIR_ASSIGN_OR_RETURN(plans.emplace_back(), compiler::LowerForRank(*logical, rank));
  }
  WEIR_RETURN_IF_ERROR(CheckOneGpuEach(measured, plans.size()));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<MeasuredFeed> data, MeasuredFeed::Open(measured));
  struct {
    Mutex mutex;
    KernelTimes times ABSL_GUARDED_BY(mutex);
  } measured_by_ranks;  // whose threads report
  actors::SessionOptions session_options;
  session_options.threads_per_device = options.threads_per_device;
  session_options.feed = data->feed();
  session_options.trace_capacity = 1;
  session_options.on_kernels = [&](const actors::Plan& plan, const actors::PlanActor& actor,
                                   absl::Span<const int64_t> ns) {
    MutexLock lock(&measured_by_ranks.mutex);
    measured_by_ranks.times.Add(plan, actor, ns);
  };
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<actors::Session> session,
                        actors::Session::Create(plans, session_options));
  if (options.say) {
    options.say(absl::StrFormat("kernels of %s, %d steps",
                                Plural(static_cast<int64_t>(plans.size()), "device"),
                                options.steps));
  }
  WEIR_RETURN_IF_ERROR(session->RunSteps(1));  // libraries choose, kernels are loaded
  {
    MutexLock lock(&measured_by_ranks.mutex);
    measured_by_ranks.times.Clear();
  }
  WEIR_RETURN_IF_ERROR(session->RunSteps(options.steps));
  MutexLock lock(&measured_by_ranks.mutex);
  measured_by_ranks.times.ForEachPlace(
      [rows](const actors::Plan& plan, const actors::PlanActor& actor, size_t kernel, int64_t ns) {
        const KernelWork work = WorkOf(plan.programs[actor.program].calls[kernel], actor.chunks);
        Row& row = (*rows)[{work.op, work.dtype, work.shapes}];
        row.work = work;
        row.sum += static_cast<double>(ns);
        ++row.places;
      });
  return absl::OkStatus();
}

std::string NameOf(const proto::Job& job) {
  if (job.runtime().device() != kGpus) return "emulated GPU";
  const device::CudaFacts facts = device::FindGpus();
  return facts.gpus.empty() ? "GPU" : facts.gpus[0].name;
}

}  // namespace

void DescribeGpu(const std::string& name, std::vector<MeasuredKernel> kernels,
                 proto::DeviceModel* device) {
  device->set_name(name);
  device->set_kernel_ns(kShortestKernelNs);
  device->clear_kernel();
  double quickest = 0;
  for (const MeasuredKernel& kernel : kernels)
    quickest = quickest == 0 ? kernel.ns : std::min(quickest, kernel.ns);
  const double waiting = std::max(0.0, quickest - kShortestKernelNs);
  std::map<std::string, double> flops_of;  // by type
  double bytes_per_second = 0;
  for (const MeasuredKernel& measured : kernels) {
    const double ns = std::max(1.0, std::round(measured.ns - waiting));
    proto::KernelCost* kernel = device->add_kernel();
    kernel->set_op(measured.work.op);
    kernel->set_dtype(measured.work.dtype);
    kernel->set_shapes(measured.work.shapes);
    kernel->set_flops(measured.work.flops);
    kernel->set_bytes(measured.work.bytes);
    kernel->set_ns(ns);
    if (measured.work.op == "matmul") {
      double& most = flops_of[measured.work.dtype];
      most = std::max(most, measured.work.flops / ns * 1e9);
    } else if (measured.work.bytes >= kBytesOfLargeKernels) {
      bytes_per_second = std::max(bytes_per_second, measured.work.bytes / ns * 1e9);
    }
  }
  if (bytes_per_second > 0) device->set_bytes_per_second(std::round(bytes_per_second));
  for (const auto& [dtype, flops] : flops_of) {
    const auto known =
        std::find_if(device->mutable_peak()->begin(), device->mutable_peak()->end(),
                     [&name = dtype](const proto::Peak& peak) { return peak.dtype() == name; });
    proto::Peak* peak = known != device->mutable_peak()->end() ? &*known : device->add_peak();
    peak->Clear();
    peak->set_dtype(dtype);
    peak->set_flops_per_second(std::round(flops));
  }
}

absl::StatusOr<proto::Cluster> CalibrateGpu(const proto::Job& job,
                                            const CalibrateOptions& options) {
  WEIR_RETURN_IF_ERROR(At("runtime.device", device::CheckDeviceIsHere(job.runtime().device())));
  if (options.in_processes || !options.trace.empty()) {
    return Rejected({"W0964", "weir calibrate", "kernels alone, which is what is measured of a GPU",
                     options.in_processes ? "--between-processes" : "--trace",
                     "leave it out, or --device cpu"});
  }
  std::vector<proto::Job> jobs{job};
  jobs.insert(jobs.end(), options.layouts.begin(), options.layouts.end());
  std::map<RowKey, Row> rows;
  for (const proto::Job& measured : jobs)
    WEIR_RETURN_IF_ERROR(MeasureJob(measured, options, &rows));
  std::vector<MeasuredKernel> kernels;
  for (const auto& [key, row] : rows)
    kernels.push_back({row.work, row.sum / static_cast<double>(row.places)});
  proto::Cluster cluster = DefaultGpuCluster(/*ranks=*/1);
  DescribeGpu(NameOf(job), std::move(kernels), cluster.mutable_device(0));
  cluster.set_name(absl::StrCat("this machine's ", cluster.device(0).name()));
  proto::HostGroup* host = cluster.mutable_host(0);
  host->set_device(cluster.device(0).name());
  host->set_name("this machine");
  const auto gpus = static_cast<int32_t>(device::FindGpus().gpus.size());
  if (job.runtime().device() == kGpus) {
    host->set_devices(gpus);
    cluster.mutable_device(0)->set_memory_bytes(
        static_cast<double>(device::FindGpus().gpus[0].memory_bytes));
  }
  return cluster;
}

}  // namespace weir::sim
