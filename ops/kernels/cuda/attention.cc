// attention and attention_grad on a GPU: over cuDNN where it takes the shape, else by kernels of
// this folder. The first run decides, and all runs of one kernel go the same way.
#include "ops/kernels/cuda/attention.h"

#include <algorithm>
#include <cstdio>

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/cuda/cudnn_attention.h"
#include "ops/kernels/shape/attention_shape.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

AttentionSizes SizesOf(const AttentionShape& shape) {
  AttentionSizes sizes;
  sizes.batch = shape.batch;
  sizes.length = shape.length;
  sizes.keys = shape.keys;
  sizes.heads = shape.heads;
  sizes.groups = shape.groups;
  sizes.width = shape.width;
  sizes.dtype = shape.dtype;
  sizes.causal = shape.causal;
  sizes.window = std::min(shape.window, shape.length);
  sizes.scale = shape.scale;
  sizes.has_mask = shape.mask.exists;
  sizes.mask_dtype = shape.mask.dtype;
  sizes.mask_batch = shape.mask.batch_stride;
  sizes.mask_head = shape.mask.head_stride;
  sizes.mask_query = shape.mask.query_stride;
  sizes.mask_key = shape.mask.key_stride;
  return sizes;
}

// The Way says what computes a call. The first run decides between cuDNN and the kernels of this
// folder.
enum class Way : uint8_t { kUndecided, kCudnn, kOwn };

// Takes cuDNN's object into `*keeps` if cuDNN computes the call. Otherwise the process says once
// why it does not.
template <typename Object>
Way Decide(absl::StatusOr<std::unique_ptr<Object>> made, std::unique_ptr<Object>* keeps) {
  if (made.ok()) {
    *keeps = *std::move(made);
    return Way::kCudnn;
  }
  [[maybe_unused]] static const bool said = [&] {
    const std::string why(made.status().message());
    std::fprintf(stderr, "Weir's own kernels compute attention, which cuDNN does faster: %s\n",
                 why.c_str());
    return true;
  }();
  return Way::kOwn;
}

class AttentionKernel final : public CudaKernel {
 public:
  explicit AttentionKernel(const AttentionSizes& sizes)
      : sizes_(sizes), way_(CudnnMayAttend(sizes) ? Way::kUndecided : Way::kOwn) {}

  int64_t workspace_bytes() const override {
    return CudnnMayAttend(sizes_) ? CudnnWorkspace(sizes_) : 0;
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    AttentionWork work;
    work.sizes = sizes_;
    work.q = args.inputs[0];
    work.k = args.inputs[1];
    work.v = args.inputs[2];
    work.mask = args.inputs.size() > 3 ? args.inputs[3] : nullptr;
    work.o = args.outputs[0];
    work.lse = args.outputs.size() > 1 ? static_cast<float*>(args.outputs[1]) : nullptr;
    if (way_ == Way::kUndecided) {
      const KeepsLse lse = work.lse == nullptr ? KeepsLse::kNo : KeepsLse::kYes;
      way_ = Decide(MakeCudnnAttention(sizes_, lse), &cudnn_);
    }
    if (way_ == Way::kCudnn) return cudnn_->Enqueue(work, workspace, stream);
    LaunchAttention(work, stream);
    return absl::OkStatus();
  }

 private:
  const AttentionSizes sizes_;
  Way way_;
  std::unique_ptr<CudnnAttention> cudnn_;  // if way_ is kCudnn
};

KernelOr MakeAttention(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttention(spec));
  return std::make_unique<AttentionKernel>(SizesOf(shape));
}

class AttentionGradKernel final : public CudaKernel {
 public:
  explicit AttentionGradKernel(const AttentionSizes& sizes)
      : sizes_(sizes), way_(CudnnMayAttendGrad(sizes) ? Way::kUndecided : Way::kOwn) {}

  int64_t workspace_bytes() const override {
    if (CudnnMayAttendGrad(sizes_)) return CudnnGradWorkspace(sizes_);  // own kernels need less
    return sizes_.batch * sizes_.heads * sizes_.length * SizeOf(DType::kF32);
  }

 protected:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    AttentionGradWork work;
    work.sizes = sizes_;
    work.q = args.inputs[0];
    work.k = args.inputs[1];
    work.v = args.inputs[2];
    work.o = args.inputs[3];
    work.lse = static_cast<const float*>(args.inputs[4]);
    work.d_o = args.inputs[5];
    work.mask = args.inputs.size() > 6 ? args.inputs[6] : nullptr;
    work.dq = args.outputs[0];
    work.dk = args.outputs[1];
    work.dv = args.outputs[2];
    work.d_scores = args.outputs.size() > 3 ? static_cast<float*>(args.outputs[3]) : nullptr;
    work.inner = static_cast<float*>(workspace);
    // cuDNN does not give the gradient of a mask.
    if (way_ == Way::kUndecided) {
      way_ = work.d_scores != nullptr ? Way::kOwn : Decide(MakeCudnnAttentionGrad(sizes_), &cudnn_);
    }
    if (way_ == Way::kCudnn) return cudnn_->Enqueue(work, workspace, stream);
    LaunchAttentionGrad(work, stream);
    return absl::OkStatus();
  }

 private:
  const AttentionSizes sizes_;
  Way way_;
  std::unique_ptr<CudnnAttentionGrad> cudnn_;  // if way_ is kCudnn
};

KernelOr MakeAttentionGrad(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttentionGrad(spec));
  return std::make_unique<AttentionGradKernel>(SizesOf(shape));
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "attention", MakeAttention);
WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "attention_grad", MakeAttentionGrad);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
