// conv, conv_transpose and conv_grad_w on a GPU.
#include "ops/kernels/cuda/conv.h"

#include <algorithm>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/conv_shape.h"
#include "ops/kernels/shape/spec_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

ConvSizes SizesOf(const ConvShape& shape, DType dtype) {
  ConvSizes sizes;
  sizes.images = shape.images;
  sizes.groups = shape.groups;
  sizes.in = shape.in;
  sizes.out = shape.out;
  sizes.dtype = dtype;
  const size_t missing = std::size(sizes.axes) - shape.axes.size();
  for (size_t d = 0; d < shape.axes.size(); ++d) {
    const WindowAxis& axis = shape.axes[d];
    sizes.axes[missing + d] = {axis.in,     axis.out,     axis.kernel,
                               axis.stride, axis.padding, axis.dilation};
  }
  return sizes;
}

// Computes conv (from the wide side to the narrow one) or conv_transpose (back).
class ConvKernel final : public CudaKernel {
 public:
  using Launcher = void (*)(const ConvWork& work, device::CudaStream stream);

  ConvKernel(Launcher launcher, const ConvWork& work) : launcher_(launcher), work_(work) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    ConvWork work = work_;
    work.x = args.inputs[0];
    work.w = args.inputs[1];
    work.bias = args.inputs.size() > 2 ? args.inputs[2] : nullptr;
    work.y = args.outputs[0];
    launcher_(work, stream);
    return absl::OkStatus();
  }

 private:
  const Launcher launcher_;
  const ConvWork work_;
};

enum class Direction : uint8_t { kForward, kTransposed };

KernelOr MakeConv(const KernelSpec& spec, Direction direction) {
  SpecCheck check(spec);
  check.Inputs(2, 3).Outputs(1, 1).Real(check.in(0), "x");
  check.SameType(check.in(0), check.in(1), "x and w")
      .SameType(check.in(0), check.out(0), "x and y");
  const bool forward = direction == Direction::kForward;
  const TensorSlice &wide = forward ? check.in(0) : check.out(0),
                    &narrow = forward ? check.out(0) : check.in(0);
  const ConvShape shape = ConvShapeOf(wide, check.in(1), narrow, spec, &check);
  ConvWork work;
  if (check.HasIn(2)) {
    check.Real(check.in(2), "bias")
        .Expect(check.in(2).shape == Shape{check.out(0).shape[1]}, "a bias per channel of y");
    work.bias_dtype = check.in(2).dtype;
  }
  if (!check.ok()) return check.status();
  work.sizes = SizesOf(shape, check.in(0).dtype);
  return std::make_unique<ConvKernel>(forward ? &LaunchConv : &LaunchConvTranspose, work);
}

KernelOr MakeConvForward(const KernelSpec& spec) { return MakeConv(spec, Direction::kForward); }

KernelOr MakeConvTranspose(const KernelSpec& spec) {
  return MakeConv(spec, Direction::kTransposed);
}

// Positions that make a part worth a sum of its own, and how much memory the sums may take.
constexpr int64_t kPositionsPerPart = 2048;
constexpr int64_t kPartsMax = 64;
constexpr int64_t kPartialElementsMax = int64_t{1} << 24;

class ConvGradWeightKernel final : public CudaKernel {
 public:
  ConvGradWeightKernel(const ConvShape& shape, DType dtype, DType result)
      : weight_(shape.weight()) {
    work_.sizes = SizesOf(shape, dtype);
    work_.dw_dtype = result;
    int64_t positions = shape.images;
    for (const WindowAxis& axis : shape.axes) positions *= axis.out;
    const int64_t most =
        std::min(kPartsMax, kPartialElementsMax / std::max<int64_t>(1, shape.weight()));
    work_.parts = std::max<int64_t>(1, std::min(most, positions / kPositionsPerPart));
  }

  int64_t workspace_bytes() const override {
    return work_.parts * weight_ * static_cast<int64_t>(sizeof(float));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    ConvGradWeightWork work = work_;
    work.x = args.inputs[0];
    work.dy = args.inputs[1];
    work.dw = args.outputs[0];
    work.sums = static_cast<float*>(workspace);
    LaunchConvGradWeight(work, stream);
    return absl::OkStatus();
  }

 private:
  const int64_t weight_;  // elements
  ConvGradWeightWork work_;
};

KernelOr MakeConvGradWeight(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(2, 2).Outputs(1, 1).Real(check.in(0), "x").Real(check.out(0), "dw");
  check.SameType(check.in(0), check.in(1), "x and dy");
  const ConvShape shape = ConvShapeOf(check.in(0), check.out(0), check.in(1), spec, &check);
  if (!check.ok()) return check.status();
  return std::make_unique<ConvGradWeightKernel>(shape, check.in(0).dtype, check.out(0).dtype);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "conv", MakeConvForward);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "conv_transpose", MakeConvTranspose);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "conv_grad_w", MakeConvGradWeight);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
