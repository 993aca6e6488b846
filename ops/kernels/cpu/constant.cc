#include <algorithm>
#include <type_traits>

#include "ops/kernels/kernel.h"
#include "runtime/base/real.h"

namespace weir::kernels {
namespace {

class ConstantKernel final : public Kernel {
 public:
  ConstantKernel(DType dtype, int64_t elements, float value)
      : dtype_(dtype), elements_(elements), value_(value) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (IsReal(dtype_)) {
      WithRealType(dtype_, [&](auto* type) {
        using T = std::remove_pointer_t<decltype(type)>;
        std::fill_n(static_cast<T*>(args.outputs[0]), elements_, RoundTo<T>(value_));
      });
    } else {
      std::fill_n(static_cast<int32_t*>(args.outputs[0]), elements_, static_cast<int32_t>(value_));
    }
    return absl::OkStatus();
  }

 private:
  DType dtype_;
  int64_t elements_;
  float value_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeConstant(const KernelSpec& spec) {
  if (spec.outputs.size() != 1 || !spec.outputs[0])
    return absl::InvalidArgumentError("constant: one output");
  const TensorSlice& y = *spec.outputs[0];
  return std::make_unique<ConstantKernel>(y.dtype, y.num_elements(),
                                          static_cast<float>(spec.attrs.Real("value")));
}

WEIR_REGISTER_KERNEL("cpu", "constant", MakeConstant);

}  // namespace
}  // namespace weir::kernels
