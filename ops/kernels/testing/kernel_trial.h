// Runs a kernel of any kind of device for tests. The operands are in memory of the host. On a
// device whose memory the host cannot use, the operands travel: each gets a place of its own in the
// device's memory, with guard bytes behind it, and the results come back.
//
// WEIR_TEST_DEVICE in the environment names the kind that tests of kernels try: "cpu" (or nothing),
// "cuda-emulated", or "cuda" on a machine with a GPU.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ops/kernels/kernel.h"

namespace weir::kernels {

struct KernelTrial {
  std::string device = "cpu";
  KernelSpec spec;
  // `inputs` and `outputs` hold the operands' bytes, with room for guards that the caller checks.
  // The bytes of outputs are what the kernel finds there.
  KernelArgs args;
  // The order of the threads on "cuda-emulated" (ops/kernels/cuda/emulation/thread_order.h).
  uint64_t thread_order = 2;
  // kGraph: the device keeps the work as a graph. Acts with other numbers come before, so that the
  // act in question is a launch of a graph that was made for others. Devices without graphs do
  // the work as they always do.
  enum class Launches : uint8_t { kOneByOne, kGraph } launches = Launches::kOneByOne;
};

// Returns the kind of device that WEIR_TEST_DEVICE names.
std::string DeviceOfTests();

// Returns the orders of threads in which a kernel of this kind must give the same bits: one for a
// kind that has no orders.
std::vector<uint64_t> ThreadOrdersOf(const std::string& device);

// The result is an error if there is no such device or kernel (kUnimplemented), if the kernel
// refuses the operands, or if it writes beyond its outputs, into its inputs, or beyond its
// workspace. Errors of operands in memory of the host are the caller's to find.
absl::Status Run(const KernelTrial& trial);

}  // namespace weir::kernels
