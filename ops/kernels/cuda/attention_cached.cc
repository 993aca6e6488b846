#include "ops/kernels/cuda/attention_cached.h"

#include "ops/kernels/cuda/cuda_kernel.h"
#include "ops/kernels/shape/cached_attention_shape.h"
#include "runtime/base/status.h"

namespace weir::kernels::WEIR_CUDA_SPACE {
namespace {

class CachedAttentionKernel final : public CudaKernel {
 public:
  explicit CachedAttentionKernel(const CachedAttentionShape& shape) {
    work_.batch = shape.batch;
    work_.length = shape.length;
    work_.heads = shape.heads;
    work_.groups = shape.groups;
    work_.width = shape.width;
    work_.entries = shape.entries;
    work_.page_size = shape.page_size;
    work_.first_page = shape.first_page;
    work_.num_pages = shape.num_pages;
    work_.slots = shape.slots();
    work_.dtype = shape.dtype;
    work_.window = shape.window;
    work_.scale = shape.scale;
  }

  int64_t workspace_bytes() const override { return work_.scores_bytes(); }

 private:
  absl::Status Enqueue(const KernelArgs& args, void* workspace,
                       device::CudaStream stream) override {
    CachedAttentionWork work = work_;
    work.q = args.inputs[0];
    work.k = args.inputs[1];
    work.v = args.inputs[2];
    work.positions = static_cast<const int32_t*>(args.inputs[3]);
    work.table = static_cast<const int32_t*>(args.inputs[4]);
    work.o = args.outputs[0];
    work.keys = args.outputs[1];
    work.values = args.outputs[2];
    work.scores = static_cast<float*>(workspace);
    LaunchCachedAttention(work, stream);
    return absl::OkStatus();
  }

  CachedAttentionWork work_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeCachedAttention(const KernelSpec& spec) {
  WEIR_ASSIGN_OR_RETURN(const CachedAttentionShape shape, ReadCachedAttention(spec));
  return std::make_unique<CachedAttentionKernel>(shape);
}

WEIR_REGISTER_KERNEL(WEIR_CUDA_KIND, "attention_cached", MakeCachedAttention);

}  // namespace
}  // namespace weir::kernels::WEIR_CUDA_SPACE
