// A Kernel computes one op on one device for fixed local shapes. It is made once when a plan is
// loaded and run many times; running allocates nothing.
//
// A kernel may rely on this: operands are dense row-major, 64-byte aligned, of exactly the slices
// given; absent optional operands have null pointers; operands may be empty (zero elements).
// Operands are addresses of the device's memory, which the host may be unable to read. Results must
// not depend on the number of threads: work is cut by shape alone.
// Thread rule: one thread at a time calls Run, the thread that owns the rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/attributes.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/base/transfer/transfer.h"
#include "runtime/device/thread_team.h"

namespace weir::kernels {

struct KernelSpec {
  std::string op;
  Attributes attrs;
  // Absent optional operands are nullopt.
  std::vector<std::optional<TensorSlice>> inputs;
  std::vector<std::optional<TensorSlice>> outputs;
  int64_t micro_batches = 1;  // of the job
  int num_threads = 1;        // of the team it will run on: at least that team's num_threads()
  Transfer transfer = {};     // of an op of transfers: what the kernel moves
};

struct KernelArgs {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  int64_t step = 0;         // from 0
  int64_t micro_batch = 0;  // of this act, from 0
  int64_t chunk = 0;        // of this act, for chunked transfers
  int64_t span_act = 0;  // acts before this one that wrote to output 0 since it was last handed on:
                         // 0 if each act hands on its own
  uint64_t random_key = 0;  // of (job seed, call instance, op); mix with `step`
  // The bytes of each input that its producer wrote, from the operand's start. A token
  // may be shorter than its slot; the memory behind is undefined. Empty: all operands are whole.
  absl::Span<const int64_t> input_bytes = {};
};

}  // namespace weir::kernels
namespace weir::device {
class DeviceQueue;
}
namespace weir::kernels {

// The resources with which a kernel does its work.
struct LaunchContext {
  device::ThreadTeam* team = nullptr;  // the cores of a device whose kernels run on the host
  // The kernel's workspace_bytes(), 64-byte aligned, contents undefined. Each queue has a workspace
  // of its own.
  void* workspace = nullptr;
  // The kernel puts its work into this queue. Null is allowed for kernels that do their work at
  // once.
  device::DeviceQueue* queue = nullptr;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t workspace_bytes() const { return 0; }
  // Does the work before it returns, or puts it into the queue; then `args` may change once Run has
  // returned. An error is a fault of the device or of its library, and ends
  // the job; what operands hold is never an error.
  virtual absl::Status Run(const KernelArgs& args, const LaunchContext& launch) = 0;
  // Bytes of output 0 that an act with this `chunk` fills, from its start; the rest is
  // not sent. -1: all of it. For kernels that pack messages, whose last chunk is short.
  virtual int64_t output_bytes(int64_t chunk) const { return -1; }
};

using KernelFactory = std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const KernelSpec&)>;

class KernelRegistry {
 public:
  // `device` is a kind of device (Device::kind). Fatal on a duplicate.
  static void Register(const std::string& device, const std::string& op, KernelFactory factory);
  // Kernels of `device` are those of `base`, each handed to `wrap`. Fatal on a duplicate.
  using Wrap = std::unique_ptr<Kernel> (*)(std::unique_ptr<Kernel> kernel, const KernelSpec& spec);
  static void Derive(const std::string& device, const std::string& base, Wrap wrap);
  // kUnimplemented if this device has no kernel for the op.
  static absl::StatusOr<std::unique_ptr<Kernel>> Create(const std::string& device,
                                                        const KernelSpec& spec);
  static std::vector<std::string> Names(const std::string& device);
};

#define WEIR_REGISTER_KERNEL(device, op, factory) \
  WEIR_REGISTER_KERNEL_INNER(__COUNTER__, device, op, factory)
#define WEIR_REGISTER_KERNEL_INNER(n, device, op, factory) \
  WEIR_REGISTER_KERNEL_INNER2(n, device, op, factory)
#define WEIR_REGISTER_KERNEL_INNER2(n, device, op, factory)       \
  [[maybe_unused]] static const bool weir_kernel_registered_##n = \
      (::weir::kernels::KernelRegistry::Register(device, op, factory), true)

}  // namespace weir::kernels
