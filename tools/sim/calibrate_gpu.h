// Measures the kernels of this machine's GPU into a Cluster. The ranks of the job train on their
// GPUs, one act at a time, and the host waits for each kernel by itself. What launching and waiting
// take is the same for all kernels, and is taken from each time: it is what the quickest kernel
// takes, less kShortestKernelNs. Kernels are not joined (ops/kernels/kernel_chain.h), so a
// prediction of a step on a GPU is longer than the step by what joining saves.
//
// What a GPU's kernels do not show is that of the defaults for GPUs (job_costs.h): links, the cost
// of an act, and the memory of the driver. Nothing else should use the GPU meanwhile.
// Thread rule: one thread, which starts others.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/job.pb.h"
#include "tools/sim/calibrate.h"
#include "tools/sim/device_costs.h"

namespace weir::sim {

// What the shortest kernel of a GPU takes where kernels follow each other.
inline constexpr double kShortestKernelNs = 2'000;

// A kernel that was measured, with the mean of its times.
struct MeasuredKernel {
  KernelWork work;
  double ns = 0;
};
// Takes what launching and waiting take from the times, and describes the device `name` by them:
// peaks of products by type, bytes in a second of the memory, kernels. Where no kernel shows a
// peak, that of `device` stays.
void DescribeGpu(const std::string& name, std::vector<MeasuredKernel> kernels,
                 proto::DeviceModel* device);

// Precondition: the job is for devices of kind cuda or cuda-emulated, whose times are those of an
// emulation. Errors: those of the job and its data; of a machine without a GPU for each rank
// (W0550 to W0552, W0964).
absl::StatusOr<proto::Cluster> CalibrateGpu(const proto::Job& job, const CalibrateOptions& options);

}  // namespace weir::sim
