// Where ranks must be so that NCCL can do their collectives. NCCL has one communicator for each GPU
// of a group, and its authors recommend one process for each GPU: several in one process can block
// each other in calls of CUDA. Thread rule: pure functions, but for ShareGpu.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "runtime/base/ids.h"

namespace weir::collective {

struct NcclPlacement {
  std::string device_kind;  // of all ranks: "cuda", or "cuda-emulated", whose NCCL is emulated
  int num_ranks = 1;        // of the job
  int ranks_here = 1;       // in this process, or the most of a process
  int devices_on_host = 1;  // of the job
  static constexpr int kGpusUnknown = -1;
  int num_gpus = kGpusUnknown;  // of this host
};

// Returns OK if NCCL can do the collectives of the job: W0957 if the devices are no GPUs, W0958 if
// a process has several ranks, W0959 if two ranks of a host have the same GPU and SharesGpus is
// false.
absl::Status CheckNcclPlacement(const NcclPlacement& placement);

// Returns whether the environment says that ranks may share a GPU (WEIR_NCCL_SHARE_GPU=1), for
// tests on a machine with one GPU. NCCL then takes each process for a host of its own, and connects
// the processes by sockets.
bool SharesGpus();
// Tells NCCL so, if SharesGpus: before the library is opened, in the process of the rank.
void ShareGpu(RankId rank);

}  // namespace weir::collective
