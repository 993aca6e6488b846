// embedding and its gradient: factories of the kernels for CUDA.
#include "ops/kernels/cuda/embedding.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/joined_kernels.h"
#include "ops/kernels/shape/embedding_check.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class EmbeddingKernel final : public CudaKernel {
 public:
  EmbeddingKernel(const TensorSlice& table, const TensorSlice& ids) {
    work_.dtype = table.dtype;
    work_.num_ids = ids.num_elements();
    work_.first = table.offset[0];
    work_.rows = table.shape[0];
    work_.width = table.shape[1];
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void*, device::CudaStream stream) override {
    EmbeddingWork work = work_;
    work.table = args.inputs[0];
    work.ids = static_cast<const int32_t*>(args.inputs[1]);
    work.y = args.outputs[0];
    LaunchEmbedding(work, stream);
    return absl::OkStatus();
  }

 private:
  EmbeddingWork work_;  // without addresses
};

KernelOr MakeEmbedding(const KernelSpec& spec) {
  if (absl::Status status = CheckEmbedding(spec); !status.ok()) return status;
  return std::make_unique<EmbeddingKernel>(*spec.inputs[0], *spec.inputs[1]);
}

class EmbeddingGradKernel final : public CudaKernel {
 public:
  EmbeddingGradKernel(const TensorSlice& ids, const TensorSlice& dy, const TensorSlice& dtable,
                      bool accumulates)
      : accumulates_(accumulates) {
    work_.dy_dtype = dy.dtype;
    work_.dtable_dtype = dtable.dtype;
    work_.num_ids = ids.num_elements();
    work_.first = dtable.offset[0];
    work_.rows = dtable.shape[0];
    work_.width = dtable.shape[1];
  }

  int64_t workspace_bytes() const override {
    return EmbeddingGradWorkspace(work_.num_ids, work_.rows, work_.width);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    EmbeddingGradWork work = work_;
    work.ids = static_cast<const int32_t*>(args.inputs[0]);
    work.dy = args.inputs[1];
    work.dtable = args.outputs[0];
    work.adds = accumulates_ && args.span_act > 0;
    work.workspace = workspace;
    LaunchEmbeddingGrad(work, stream);
    return absl::OkStatus();
  }

 private:
  const bool accumulates_;  // over the acts of a span
  EmbeddingGradWork work_;  // without addresses
};

KernelOr MakeEmbeddingGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckEmbeddingGrad(spec); !status.ok()) return status;
  return std::make_unique<EmbeddingGradKernel>(*spec.inputs[0], *spec.inputs[1], *spec.outputs[0],
                                               /*accumulates=*/false);
}

}  // namespace

std::unique_ptr<Kernel> MakeEmbeddingGradInto(const KernelSpec& grad) {
  return std::make_unique<EmbeddingGradKernel>(*grad.inputs[0], *grad.inputs[1], *grad.outputs[0],
                                               /*accumulates=*/true);
}

namespace {

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "embedding", MakeEmbedding);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "embedding_grad", MakeEmbeddingGrad);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
