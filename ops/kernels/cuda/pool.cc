// max_pool, average_pool and their gradients on a GPU.
#include "ops/kernels/cuda/pool.h"

#include <optional>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/pool_shape.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class PoolKernel final : public CudaKernel {
 public:
  explicit PoolKernel(const PoolWork& work) : work_(work) {}

  // The gradient of a maximum first finds the largest element of each window.
  int64_t workspace_bytes() const override {
    if (work_.pool != Pool::kMaxGrad) return 0;
    int64_t windows = work_.planes;
    for (const PoolAxis& axis : work_.axes) windows *= axis.out;
    return windows * static_cast<int64_t>(sizeof(int64_t));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    PoolWork work = work_;
    if (work.pool != Pool::kAverageGrad) work.x = args.inputs[0];
    if (work.pool == Pool::kMaxGrad) work.dy = args.inputs[1];
    if (work.pool == Pool::kAverageGrad) work.dy = args.inputs[0];
    work.y = args.outputs[0];
    work.largest = static_cast<int64_t*>(workspace);
    LaunchPool(work, stream);
    return absl::OkStatus();
  }

 private:
  const PoolWork work_;
};

KernelFactory MakePool(Pool pool) {
  return [pool](const KernelSpec& spec) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    SpecCheck check(spec);
    const int num_inputs = pool == Pool::kMaxGrad ? 2 : 1;
    check.Inputs(num_inputs, num_inputs).Outputs(1, 1).Real(check.in(0), "the first input");
    check.SameType(check.in(0), check.out(0), "all operands");
    if (num_inputs == 2) {
      check.SameType(check.in(0), check.in(1), "all operands")
          .SameShape(check.in(0), check.out(0), "x and dx");
    }
    const TensorSlice& x = pool == Pool::kAverageGrad ? check.out(0) : check.in(0);
    const TensorSlice& y = pool == Pool::kMaxGrad       ? check.in(1)
                           : pool == Pool::kAverageGrad ? check.in(0)
                                                        : check.out(0);
    const std::optional<PoolShape> shape = PoolShapeOf(spec.attrs, x, y);
    check.Expect(shape.has_value(), "[b, c, s...] and [b, c, t...] with t windows over s");
    if (!check.ok()) return check.status();
    PoolWork work;
    work.pool = pool;
    work.dtype = check.in(0).dtype;
    work.planes = shape->planes;
    for (size_t d = 0; d < shape->axes.size(); ++d) {
      const WindowAxis& axis = shape->axes[d];
      work.axes[d] = {axis.in, axis.out, axis.kernel, axis.stride, axis.padding, axis.dilation};
    }
    work.counts_padding = spec.attrs.Bool("count_padding", true);
    return std::make_unique<PoolKernel>(work);
  };
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "max_pool", MakePool(Pool::kMax));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "max_pool_grad", MakePool(Pool::kMaxGrad));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "average_pool", MakePool(Pool::kAverage));
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "average_pool_grad", MakePool(Pool::kAverageGrad));

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
