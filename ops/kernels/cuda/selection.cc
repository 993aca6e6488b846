// top_k, argmax and cumsum: factories of the kernels for CUDA.
#include "ops/kernels/cuda/selection.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/selection_shape.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

TopKWork WorkOf(const SelectionShape& shape, const KernelSpec& spec) {
  TopKWork work;
  work.dtype = spec.inputs[0]->dtype;
  work.outer = shape.outer;
  work.n = shape.n;
  work.inner = shape.inner;
  work.k = shape.k;
  work.largest = spec.attrs.Bool("largest", true);
  return work;
}

class TopKKernel final : public CudaKernel {
 public:
  explicit TopKKernel(const TopKWork& work) : work_(work) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    TopKWork work = work_;
    work.x = args.inputs[0];
    work.values = args.outputs[0];
    if (args.outputs.size() > 1) work.indices = static_cast<int32_t*>(args.outputs[1]);
    LaunchTopK(work, stream);
    return absl::OkStatus();
  }

 private:
  const TopKWork work_;  // without addresses
};

class ArgmaxKernel final : public CudaKernel {
 public:
  explicit ArgmaxKernel(const TopKWork& work) : work_(work) {}

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    TopKWork work = work_;
    work.x = args.inputs[0];
    work.indices = static_cast<int32_t*>(args.outputs[0]);
    LaunchTopK(work, stream);
    return absl::OkStatus();
  }

 private:
  const TopKWork work_;  // without addresses
};

class CumsumKernel final : public CudaKernel {
 public:
  CumsumKernel(const SelectionShape& shape, const KernelSpec& spec) {
    work_.dtype = spec.inputs[0]->dtype;
    work_.outer = shape.outer;
    work_.n = shape.n;
    work_.inner = shape.inner;
    work_.exclusive = spec.attrs.Bool("exclusive", false);
    work_.reverse = spec.attrs.Bool("reverse", false);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    CumsumWork work = work_;
    work.x = args.inputs[0];
    work.y = args.outputs[0];
    LaunchCumsum(work, stream);
    return absl::OkStatus();
  }

 private:
  CumsumWork work_;  // without addresses
};

KernelOr MakeTopK(const KernelSpec& spec) {
  auto shape = TopKShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<TopKKernel>(WorkOf(*shape, spec));
}

KernelOr MakeArgmax(const KernelSpec& spec) {
  auto shape = ArgmaxShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<ArgmaxKernel>(WorkOf(*shape, spec));
}

KernelOr MakeCumsum(const KernelSpec& spec) {
  auto shape = CumsumShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<CumsumKernel>(*shape, spec);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "top_k", MakeTopK);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "argmax", MakeArgmax);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "cumsum", MakeCumsum);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
