// embedding and its gradient. A shard of the table has rows [offset, offset + rows) of the
// vocabulary; ids outside that range contribute nothing.
#include <cstring>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/embedding_check.h"
#include "ops/kernels/shape/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

void AddRow(DType dtype, const void* x_any, float* total, int64_t n) {
  const float* before = total;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    MapInto(
        total, n, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); }, before, x);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(AddRow);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

class EmbeddingKernel final : public Kernel {
 public:
  EmbeddingKernel(const TensorSlice& table, const TensorSlice& ids)
      : row_bytes_(table.shape[1] * SizeOf(table.dtype)),
        first_(table.offset[0]),
        rows_(table.shape[0]),
        pieces_(Pieces::OfRows(ids.num_elements(), table.shape[1], kLightPiece)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const char* table = static_cast<const char*>(args.inputs[0]);
    const int32_t* ids = static_cast<const int32_t*>(args.inputs[1]);
    char* y = static_cast<char*>(args.outputs[0]);
    if (row_bytes_ == 0) return absl::OkStatus();
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t i = pieces_.begin(piece); i < pieces_.end(piece); ++i) {
        int64_t row = ids[i] - first_;
        if (0 <= row && row < rows_) {
          std::memcpy(y + i * row_bytes_, table + row * row_bytes_, row_bytes_);
        } else {
          std::memset(y + i * row_bytes_, 0, row_bytes_);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const int64_t row_bytes_, first_, rows_;
  const Pieces pieces_;
};

KernelOr MakeEmbedding(const KernelSpec& spec) {
  if (absl::Status status = CheckEmbedding(spec); !status.ok()) return status;
  return std::make_unique<EmbeddingKernel>(*spec.inputs[0], *spec.inputs[1]);
}

// First the samples of each row are listed in order (one thread, integers only). Then rows are
// summed independently of each other.
class EmbeddingGradKernel final : public Kernel {
 public:
  EmbeddingGradKernel(const TensorSlice& ids, const TensorSlice& dy, const TensorSlice& dtable,
                      int num_threads)
      : dy_type_(dy.dtype),
        out_type_(dtable.dtype),
        num_ids_(ids.num_elements()),
        first_(dtable.offset[0]),
        rows_(dtable.shape[0]),
        width_(dtable.shape[1]),
        pieces_(Pieces::OfRows(rows_, width_, kLightPiece)),
        next_at_(RoundUp(rows_ * 4, kCacheLine)),
        sums_at_(next_at_ + RoundUp(num_ids_ * 4, kCacheLine)),
        sum_bytes_(RoundUp(width_ * 4, kCacheLine)),
        num_threads_(num_threads) {}

  int64_t workspace_bytes() const override { return sums_at_ + sum_bytes_ * num_threads_; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (width_ == 0) return absl::OkStatus();
    char* workspace = static_cast<char*>(launch.workspace);
    int32_t* head = reinterpret_cast<int32_t*>(workspace);
    int32_t* next = reinterpret_cast<int32_t*>(workspace + next_at_);
    ListSamples(static_cast<const int32_t*>(args.inputs[0]), head, next);
    launch.team->For(pieces_.count(), [&](int64_t piece, int worker) {
      float* sum = reinterpret_cast<float*>(workspace + sums_at_ + worker * sum_bytes_);
      for (int64_t row = pieces_.begin(piece); row < pieces_.end(piece); ++row) {
        char* out = static_cast<char*>(args.outputs[0]) + row * width_ * SizeOf(out_type_);
        if (head[row] < 0) {
          std::memset(out, 0, width_ * SizeOf(out_type_));
          continue;
        }
        float* total = out_type_ == DType::kF32 ? reinterpret_cast<float*>(out) : sum;
        SumRow(static_cast<const char*>(args.inputs[1]), head[row], next, total);
        if (total == sum) ConvertReal(DType::kF32, out_type_, sum, out, width_);
      }
    });
    return absl::OkStatus();
  }

 private:
  // head[row] is the row's first sample or -1; next[sample] is the next sample of the same row or
  // -1.
  void ListSamples(const int32_t* ids, int32_t* head, int32_t* next) const {
    std::fill(head, head + rows_, -1);
    for (int64_t i = num_ids_ - 1; i >= 0; --i) {
      int64_t row = ids[i] - first_;
      if (row < 0 || row >= rows_) continue;
      next[i] = head[row];
      head[row] = static_cast<int32_t>(i);
    }
  }

  void SumRow(const char* dy, int32_t sample, const int32_t* next, float* total) const {
    const int64_t row_bytes = width_ * SizeOf(dy_type_);
    ConvertReal(dy_type_, DType::kF32, dy + sample * row_bytes, total, width_);
    for (sample = next[sample]; sample >= 0; sample = next[sample]) {
      HWY_DYNAMIC_DISPATCH(AddRow)(dy_type_, dy + sample * row_bytes, total, width_);
    }
  }

  const DType dy_type_, out_type_;
  const int64_t num_ids_, first_, rows_, width_;
  const Pieces pieces_;
  // The workspace holds head, next, then one row of sums per worker.
  const int64_t next_at_, sums_at_, sum_bytes_;
  const int num_threads_;
};

KernelOr MakeEmbeddingGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckEmbeddingGrad(spec); !status.ok()) return status;
  return std::make_unique<EmbeddingGradKernel>(*spec.inputs[0], *spec.inputs[1], *spec.outputs[0],
                                               spec.num_threads);
}

WEIR_REGISTER_KERNEL("cpu", "embedding", MakeEmbedding);
WEIR_REGISTER_KERNEL("cpu", "embedding_grad", MakeEmbeddingGrad);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
