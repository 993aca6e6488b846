// Kernels of the walled device: those of the CPU, given the addresses at which the same bytes lie
// inside the wall (runtime/device/walled_memory.h), and done when the device's queue comes to them.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"
#include "runtime/base/problem.h"
#include "runtime/device/walled_device.h"
#include "runtime/device/walled_memory.h"

namespace weir::kernels {
namespace {

// A kernel marks its workspace when it begins, and finds the mark when it computes, unless a kernel
// of another queue has been there in between. A kernel without a workspace has nothing to mark.
class WorkspaceMark {
 public:
  WorkspaceMark(void* workspace, int64_t bytes)
      : workspace_(workspace), bytes_(bytes), number_(++num_marks) {}

  void Set() const {
    if (bytes_ == 0) return;
    std::memset(workspace_, kPoison, bytes_);
    std::memcpy(workspace_, &number_, std::min<int64_t>(bytes_, sizeof(number_)));
  }
  absl::Status Check() const {
    if (bytes_ == 0 ||
        std::memcmp(workspace_, &number_, std::min<int64_t>(bytes_, sizeof(number_))) == 0)
      return absl::OkStatus();
    return CodedError(absl::StatusCode::kInternal, "W0535",
                      "two kernels that run at the same time share a workspace");
  }

 private:
  static constexpr int kPoison = 0xff;  // a NaN in every format
  static inline std::atomic<uint64_t> num_marks{0};

  void* workspace_;
  int64_t bytes_;
  uint64_t number_;
};

class WalledKernel final : public Kernel {
 public:
  WalledKernel(std::unique_ptr<Kernel> kernel, const KernelSpec& spec)
      : kernel_(std::move(kernel)),
        num_inputs_(spec.inputs.size()),
        num_outputs_(spec.outputs.size()) {}

  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  int64_t output_bytes(int64_t chunk) const override { return kernel_->output_bytes(chunk); }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    std::vector<const void*> inputs(num_inputs_);
    std::vector<void*> outputs(num_outputs_);
    for (size_t i = 0; i < num_inputs_; ++i)
      inputs[i] = device::WalledMemory::Inside(args.inputs[i]);
    for (size_t i = 0; i < num_outputs_; ++i)
      outputs[i] = device::WalledMemory::Inside(args.outputs[i]);
    std::vector<int64_t> input_bytes(args.input_bytes.begin(), args.input_bytes.end());
    void* const workspace = device::WalledMemory::Inside(launch.workspace);
    const WorkspaceMark mark(workspace, workspace_bytes());
    const auto begin = [mark] {
      mark.Set();
      return absl::OkStatus();
    };
    const auto run = [kernel = kernel_.get(), args, inputs = std::move(inputs),
                      outputs = std::move(outputs), input_bytes = std::move(input_bytes), launch,
                      workspace, mark]() -> absl::Status {
      if (absl::Status status = mark.Check(); !status.ok()) return status;
      KernelArgs inside = args;
      inside.inputs = inputs;
      inside.outputs = absl::MakeConstSpan(outputs);
      inside.input_bytes = input_bytes;
      return kernel->Run(inside, {launch.team, workspace, launch.queue});
    };
    if (launch.queue == nullptr) {
      mark.Set();
      return run();
    }
    static_cast<device::WalledQueue*>(launch.queue)
        ->Put(workspace_bytes() > 0 ? device::WalledQueue::Action(begin) : nullptr, run);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
  const size_t num_inputs_, num_outputs_;
};

std::unique_ptr<Kernel> Wrap(std::unique_ptr<Kernel> kernel, const KernelSpec& spec) {
  return std::make_unique<WalledKernel>(std::move(kernel), spec);
}

[[maybe_unused]] const bool kDerived = (KernelRegistry::Derive("walled", "cpu", &Wrap), true);

}  // namespace
}  // namespace weir::kernels
