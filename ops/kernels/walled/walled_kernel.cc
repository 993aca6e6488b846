// Kernels of the walled device: those of the CPU, given the addresses at which the same bytes lie
// inside the wall (runtime/device/walled_memory.h).
#include <memory>
#include <utility>
#include <vector>

#include "ops/kernels/kernel.h"
#include "runtime/device/walled_memory.h"

namespace weir {
namespace {

class WalledKernel final : public Kernel {
 public:
  WalledKernel(std::unique_ptr<Kernel> kernel, const KernelSpec& spec)
      : kernel_(std::move(kernel)), inputs_(spec.inputs.size()), outputs_(spec.outputs.size()) {}

  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  int64_t output_bytes(int64_t chunk) const override { return kernel_->output_bytes(chunk); }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i] = WalledMemory::Inside(args.inputs[i]);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      outputs_[i] = WalledMemory::Inside(args.outputs[i]);
    }
    KernelArgs inside = args;
    inside.inputs = inputs_;
    inside.outputs = absl::MakeConstSpan(outputs_);
    return kernel_->Run(inside, {launch.team, WalledMemory::Inside(launch.workspace)});
  }

 private:
  const std::unique_ptr<Kernel> kernel_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

std::unique_ptr<Kernel> Wrap(std::unique_ptr<Kernel> kernel, const KernelSpec& spec) {
  return std::make_unique<WalledKernel>(std::move(kernel), spec);
}

[[maybe_unused]] const bool kDerived = (KernelRegistry::Derive("walled", "cpu", &Wrap), true);

}  // namespace
}  // namespace weir
