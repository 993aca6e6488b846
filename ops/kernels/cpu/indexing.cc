// take, gather, segment_sum, scatter_add and one_hot. Sums are made in the order of the elements,
// in f32: a piece has some outer places and columns to itself, and adds all that falls there.
#include <algorithm>
#include <cstring>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/indexing_shape.h"
#include "ops/kernels/shape/pieces.h"
#include "runtime/base/real.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// Fewer columns than a cache line holds would make pieces share lines.
constexpr int64_t kColumnsMin = kCacheLine / sizeof(float);

// y[o, i, ..] = x[o, index, ..]: one memcpy where an index selects a row.
class IndexedReadKernel final : public Kernel {
 public:
  IndexedReadKernel(const IndexingShape& shape, DType dtype)
      : shape_(shape),
        bytes_(SizeOf(dtype)),
        pieces_(Pieces::OfRows(shape.outer * shape.count, shape.inner, kLightPiece)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (shape_.inner == 0) return absl::OkStatus();
    const char* x = static_cast<const char*>(args.inputs[0]);
    const int32_t* index = static_cast<const int32_t*>(args.inputs[1]);
    char* y = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t r = pieces_.begin(piece); r < pieces_.end(piece); ++r) {
        const int64_t o = r / shape_.count, i = r % shape_.count;
        const int32_t* at = index + o * shape_.outer_stride + i * shape_.count_stride;
        const char* from = x + o * shape_.rows * shape_.inner * bytes_;
        char* to = y + r * shape_.inner * bytes_;
        if (shape_.selects_rows()) {
          Copy(from, *at - shape_.first, 0, shape_.inner, to);
        } else {
          for (int64_t j = 0; j < shape_.inner; ++j)
            Copy(from, at[j] - shape_.first, j, 1, to + j * bytes_);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Copies n elements of a row from column j on, or sets them to 0 where this shard lacks the row.
  void Copy(const char* from, int64_t row, int64_t j, int64_t n, char* to) const {
    if (0 <= row && row < shape_.rows) {
      std::memcpy(to, from + (row * shape_.inner + j) * bytes_, n * bytes_);
    } else {
      std::memset(to, 0, n * bytes_);
    }
  }

  const IndexingShape shape_;
  const int64_t bytes_;
  const Pieces pieces_;
};

// y[o, index, ..] += x[o, i, ..] for all i in order, from zero.
class IndexedSumKernel final : public Kernel {
 public:
  IndexedSumKernel(const IndexingShape& shape, DType x, DType y)
      : shape_(shape),
        x_type_(x),
        y_type_(y),
        columns_{shape.inner,
                 std::max<int64_t>(kColumnsMin, kLightPiece / (shape.rows + shape.count + 1))},
        pieces_(Pieces::OfRows(shape.outer * columns_.count(),
                               (shape.rows + shape.count) * columns_.size, kLightPiece)) {}

  int64_t workspace_bytes() const override {
    return y_type_ == DType::kF32 ? 0 : shape_.outer * shape_.rows * shape_.inner * 4;
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    float* sums = static_cast<float*>(y_type_ == DType::kF32 ? args.outputs[0] : launch.workspace);
    const int32_t* index = static_cast<const int32_t*>(args.inputs[1]);
    const int64_t y_bytes = SizeOf(y_type_);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t task = pieces_.begin(piece); task < pieces_.end(piece); ++task) {
        const int64_t o = task / columns_.count(), part = task % columns_.count();
        const int64_t begin = columns_.begin(part), end = columns_.end(part);
        const int64_t y_first = o * shape_.rows * shape_.inner;
        Clear(sums + y_first, begin, end);
        Add(args.inputs[0], index, o, begin, end, sums + y_first);
        if (y_type_ == DType::kF32) continue;
        for (int64_t row = 0; row < shape_.rows; ++row) {
          const int64_t at = y_first + row * shape_.inner + begin;
          ConvertReal(DType::kF32, y_type_, sums + at,
                      static_cast<char*>(args.outputs[0]) + at * y_bytes, end - begin);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  void Clear(float* sums, int64_t begin, int64_t end) const {
    for (int64_t row = 0; row < shape_.rows; ++row)
      std::fill(sums + row * shape_.inner + begin, sums + row * shape_.inner + end, 0.0f);
  }

  void Add(const void* x, const int32_t* index, int64_t o, int64_t begin, int64_t end,
           float* sums) const {
    for (int64_t i = 0; i < shape_.count; ++i) {
      const int32_t* at = index + o * shape_.outer_stride + i * shape_.count_stride;
      const int64_t x_first = (o * shape_.count + i) * shape_.inner;
      for (int64_t j = begin; j < end; ++j) {
        const int64_t row = at[j * shape_.inner_stride] - shape_.first;
        if (row < 0 || row >= shape_.rows) continue;
        sums[row * shape_.inner + j] += RealAt(x_type_, x, x_first + j);
      }
    }
  }

  const IndexingShape shape_;
  const DType x_type_, y_type_;
  const Pieces columns_;  // of the inner elements of one outer place
  const Pieces pieces_;   // of all pairs of an outer place and some columns
};

class OneHotKernel final : public Kernel {
 public:
  OneHotKernel(const IndexingShape& shape, DType dtype)
      : shape_(shape),
        dtype_(dtype),
        pieces_(Pieces::OfRows(shape.outer, shape.rows, kLightPiece)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int32_t* ids = static_cast<const int32_t*>(args.inputs[0]);
    const int64_t bytes = SizeOf(dtype_);
    char* y = static_cast<char*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t o = pieces_.begin(piece); o < pieces_.end(piece); ++o) {
        char* row = y + o * shape_.rows * bytes;
        std::memset(row, 0, shape_.rows * bytes);
        const int64_t at = ids[o] - shape_.first;
        if (at < 0 || at >= shape_.rows) continue;
        const float one = 1.0f;
        ConvertReal(DType::kF32, dtype_, &one, row + at * bytes, 1);
      }
    });
    return absl::OkStatus();
  }

 private:
  const IndexingShape shape_;
  const DType dtype_;
  const Pieces pieces_;
};

template <absl::StatusOr<IndexingShape> (*kShape)(const KernelSpec&)>
KernelOr MakeIndexedRead(const KernelSpec& spec) {
  auto shape = kShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<IndexedReadKernel>(*shape, spec.outputs[0]->dtype);
}

template <absl::StatusOr<IndexingShape> (*kShape)(const KernelSpec&)>
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

WEIR_REGISTER_KERNEL("cpu", "take", MakeIndexedRead<TakeShape>);
WEIR_REGISTER_KERNEL("cpu", "gather", MakeIndexedRead<GatherShape>);
WEIR_REGISTER_KERNEL("cpu", "segment_sum", MakeIndexedSum<SegmentSumShape>);
WEIR_REGISTER_KERNEL("cpu", "scatter_add", MakeIndexedSum<ScatterAddShape>);
WEIR_REGISTER_KERNEL("cpu", "one_hot", MakeOneHot);

}  // namespace
}  // namespace weir::kernels
