#include "ops/kernels/cuda/updates.h"

#include <memory>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/update_ops.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

template <typename Update>
class UpdateKernel final : public CudaKernel {
 public:
  explicit UpdateKernel(const KernelSpec& spec)
      : update_(spec), n_(spec.outputs[0]->num_elements()) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    const auto map = update_.At(args);
    if (map.has_value()) LaunchUpdate(*map, n_, stream);
    return absl::OkStatus();
  }

 private:
  const Update update_;
  const int64_t n_;
};

template <typename Update>
absl::StatusOr<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) {
  if (absl::Status status = Update::Check(spec); !status.ok()) return status;
  return std::make_unique<UpdateKernel<Update>>(spec);
}

[[maybe_unused]] const bool registered = [] {
  ForEachUpdate([](const char* op, auto type) {
    KernelRegistry::Register(WEIR_CUDA_KIND, op, &Make<typename decltype(type)::type>);
  });
  return true;
}();

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
