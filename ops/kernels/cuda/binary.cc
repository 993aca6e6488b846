#include "ops/kernels/cuda/binary.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/broadcast_axes.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class BinaryKernel final : public CudaKernel {
 public:
  BinaryKernel(Binary function, const TensorSlice& a, const TensorSlice& b, const TensorSlice& y) {
    work_.function = function;
    work_.dtype = y.dtype;
    work_.layout = LayoutOf(BroadcastAxes({a.shape, b.shape}, y.shape));
  }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    BinaryWork work = work_;
    work.a = args.inputs[0];
    work.b = args.inputs[1];
    work.y = args.outputs[0];
    LaunchBinary(work, stream);
    return absl::OkStatus();
  }

  BinaryWork work_;
};

KernelFactory MakeBinary(Binary function) {
  return [function](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    check.Inputs(2, 2)
        .Outputs(1, 1)
        .Real(check.in(0), "a")
        .SameType(check.in(0), check.in(1), "a and b");
    check.SameType(check.in(0), check.out(0), "a and y");
    check.Expect(BroadcastAxes::Fit({check.in(0).shape, check.in(1).shape}, check.out(0).shape),
                 "operands as long as the result along each axis, or one of them of size 1");
    if (!check.ok()) return check.status();
    return std::make_unique<BinaryKernel>(function, check.in(0), check.in(1), check.out(0));
  };
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "add", MakeBinary(Binary::kAdd));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "sub", MakeBinary(Binary::kSub));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "mul", MakeBinary(Binary::kMul));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "div", MakeBinary(Binary::kDiv));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "maximum", MakeBinary(Binary::kMaximum));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "minimum", MakeBinary(Binary::kMinimum));

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
