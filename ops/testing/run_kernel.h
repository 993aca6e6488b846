// Runs one kernel of any kind of device on tensors in memory, and checks that the kernel touches no
// byte beyond its outputs. There is no plan. Thread rule: one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/testing/kernel_trial.h"
#include "ops/testing/host_tensor.h"
#include "runtime/base/attributes.h"
#include "runtime/base/transfer/transfer.h"

namespace weir::ops {

struct KernelRun {
  std::string op;
  Attributes attrs;
  int64_t step = 0;
  int64_t micro_batch = 0;  // also the act of its span
  uint64_t random_key = 0;
  int num_threads = 1;
  Transfer transfer = {};
  std::string device = "cpu";  // a kind of device
  // The order of the threads on "cuda-emulated" (ops/kernels/cuda/emulation/thread_order.h).
  uint64_t thread_order = 2;
  kernels::KernelTrial::Launches launches = kernels::KernelTrial::Launches::kOneByOne;
};

// `outputs` hold the initial contents (of outputs that are read and written) and receive the
// results. The result is an error if there is no such kernel (kUnimplemented), the kernel refuses
// the operands, or the kernel writes out of bounds.
absl::Status RunKernel(const KernelRun& run, const std::vector<HostTensor>& inputs,
                       std::vector<HostTensor>* outputs);

}  // namespace weir::ops
