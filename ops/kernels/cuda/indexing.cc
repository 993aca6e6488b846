// take, gather, segment_sum, scatter_add and one_hot: factories of the kernels for CUDA.
#include "ops/kernels/cuda/indexing.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/indexing_shape.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;
using ShapeFunction = absl::StatusOr<IndexingShape> (*)(const KernelSpec&);

IndexedSizes SizesOf(const IndexingShape& shape) {
  return {shape.outer, shape.rows,         shape.first,        shape.count,
          shape.inner, shape.outer_stride, shape.count_stride, shape.inner_stride};
}

class IndexedReadKernel final : public CudaKernel {
 public:
  IndexedReadKernel(const IndexingShape& shape, DType dtype) {
    work_.sizes = SizesOf(shape);
    work_.element_bytes = static_cast<int>(SizeOf(dtype));
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    IndexedReadWork work = work_;
    work.x = args.inputs[0];
    work.index = static_cast<const int32_t*>(args.inputs[1]);
    work.y = args.outputs[0];
    LaunchIndexedRead(work, stream);
    return absl::OkStatus();
  }

 private:
  IndexedReadWork work_;  // without addresses
};

class IndexedSumKernel final : public CudaKernel {
 public:
  IndexedSumKernel(const IndexingShape& shape, DType x, DType y) {
    work_.sizes = SizesOf(shape);
    work_.x_dtype = x;
    work_.y_dtype = y;
  }

  int64_t workspace_bytes() const override {
    return IndexedSumWorkspace(work_.sizes, work_.y_dtype);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    IndexedSumWork work = work_;
    work.x = args.inputs[0];
    work.index = static_cast<const int32_t*>(args.inputs[1]);
    work.y = args.outputs[0];
    work.workspace = workspace;
    LaunchIndexedSum(work, stream);
    return absl::OkStatus();
  }

 private:
  IndexedSumWork work_;  // without addresses
};

class OneHotKernel final : public CudaKernel {
 public:
  OneHotKernel(const IndexingShape& shape, DType dtype) {
    work_.dtype = dtype;
    work_.samples = shape.outer;
    work_.rows = shape.rows;
    work_.first = shape.first;
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    OneHotWork work = work_;
    work.ids = static_cast<const int32_t*>(args.inputs[0]);
    work.y = args.outputs[0];
    LaunchOneHot(work, stream);
    return absl::OkStatus();
  }

 private:
  OneHotWork work_;  // without addresses
};

template <ShapeFunction kShape>
KernelOr MakeIndexedRead(const KernelSpec& spec) {
  auto shape = kShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<IndexedReadKernel>(*shape, spec.outputs[0]->dtype);
}

template <ShapeFunction kShape>
KernelOr MakeIndexedSum(const KernelSpec& spec) {
  auto shape = kShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<IndexedSumKernel>(*shape, spec.inputs[0]->dtype, spec.outputs[0]->dtype);
}

KernelOr MakeOneHot(const KernelSpec& spec) {
  auto shape = OneHotShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<OneHotKernel>(*shape, spec.outputs[0]->dtype);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "take", MakeIndexedRead<TakeShape>);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "gather", MakeIndexedRead<GatherShape>);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "segment_sum", MakeIndexedSum<SegmentSumShape>);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "scatter_add", MakeIndexedSum<ScatterAddShape>);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "one_hot", MakeOneHot);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
