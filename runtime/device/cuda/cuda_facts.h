// A CudaFacts says what this machine has of CUDA, as far as the program can use it.
// Thread rule: any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/device/cuda/cuda_api.h"

namespace weir::device {

struct CudaFacts {
  enum class Program : uint8_t { kWithoutCuda, kWithCuda } program = Program::kWithoutCuda;
  // As CudaApi::GetVersions.
  int driver_version = 0;
  int runtime_version = 0;
  std::vector<GpuFacts> gpus;  // in CUDA's order
  std::string problem;         // what CUDA said instead of counting the GPUs; empty: it counted
};

// Looks at the machine at the first call, which must not come from a sandbox that hides the GPUs;
// later calls return the same. A program without CUDA finds nothing.
CudaFacts FindGpus();
CudaFacts FindGpus(CudaApi* api);  // null: a program without CUDA

// Returns OK if every GPU can run this program's kernels. All errors are kUnavailable: W0552 for a
// program without CUDA, W0550 for a driver that is missing or too old, W0551 if there is no GPU, or
// one that is too old for the kernels.
absl::Status CheckGpus(const CudaFacts& facts);
// The first of these alone.
absl::Status CheckProgram(const CudaFacts& facts);

// Returns "13.0" for 13000.
std::string CudaVersionText(int version);

// Returns one line for a report: "NVIDIA H100 80GB HBM3, 79.2 GiB; driver for CUDA 13.0, runtime
// 13.0", or why there is none.
std::string CudaText(const CudaFacts& facts);

}  // namespace weir::device
