// top_k, argmax and cumsum. Each piece has whole columns: an outer and an inner place, with all
// elements along the axis.
#include <algorithm>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/selection_shape.h"
#include "runtime/base/real.h"

namespace weir::kernels {
namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

struct Candidate {
  float value;
  int32_t place;
};

// Returns whether a comes before b. NaN counts as the largest.
bool Precedes(const Candidate& a, const Candidate& b, bool largest) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  if (a_nan != b_nan) return a_nan == largest;
  if (!a_nan && a.value != b.value) return largest ? a.value > b.value : a.value < b.value;
  return a.place < b.place;
}

// Calls body(from, to, worker) for each column, whose first element is at `from` in x and at `to`
// in the results.
template <typename Body>
void ForColumns(const SelectionShape& shape, const Pieces& pieces, const LaunchContext& launch,
                Body body) {
  launch.team->For(pieces.count(), [&](int64_t piece, int worker) {
    for (int64_t c = pieces.begin(piece); c < pieces.end(piece); ++c) {
      const int64_t o = c / shape.inner, j = c % shape.inner;
      body(o * shape.n * shape.inner + j, o * shape.k * shape.inner + j, worker);
    }
  });
}

Pieces ColumnPieces(const SelectionShape& shape) {
  return Pieces::OfRows(shape.outer * shape.inner, shape.n, kHeavyPiece);
}

class TopKKernel final : public Kernel {
 public:
  TopKKernel(const SelectionShape& shape, const KernelSpec& spec)
      : shape_(shape),
        dtype_(spec.inputs[0]->dtype),
        largest_(spec.attrs.Bool("largest", true)),
        pieces_(ColumnPieces(shape)),
        bytes_of_worker_(RoundUp(shape.n * static_cast<int64_t>(sizeof(Candidate)), kCacheLine)),
        num_threads_(spec.num_threads) {}

  int64_t workspace_bytes() const override { return bytes_of_worker_ * num_threads_; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int64_t bytes = SizeOf(dtype_);
    char* values = static_cast<char*>(args.outputs[0]);
    int32_t* indices = args.outputs.size() > 1 ? static_cast<int32_t*>(args.outputs[1]) : nullptr;
    ForColumns(shape_, pieces_, launch, [&](int64_t from, int64_t to, int worker) {
      auto* all = reinterpret_cast<Candidate*>(static_cast<char*>(launch.workspace) +
                                               worker * bytes_of_worker_);
      for (int64_t i = 0; i < shape_.n; ++i) {
        all[i] = {RealAt(dtype_, args.inputs[0], from + i * shape_.inner), static_cast<int32_t>(i)};
      }
      std::partial_sort(
          all, all + shape_.k, all + shape_.n,
          [this](const Candidate& a, const Candidate& b) { return Precedes(a, b, largest_); });
      for (int64_t i = 0; i < shape_.k; ++i) {
        const int64_t at = to + i * shape_.inner;
        ConvertReal(DType::kF32, dtype_, &all[i].value, values + at * bytes, 1);
        if (indices != nullptr) indices[at] = all[i].place;
      }
    });
    return absl::OkStatus();
  }

 private:
  const SelectionShape shape_;
  const DType dtype_;
  const bool largest_;
  const Pieces pieces_;
  const int64_t bytes_of_worker_;
  const int num_threads_;
};

class ArgmaxKernel final : public Kernel {
 public:
  ArgmaxKernel(const SelectionShape& shape, const KernelSpec& spec)
      : shape_(shape),
        dtype_(spec.inputs[0]->dtype),
        largest_(spec.attrs.Bool("largest", true)),
        pieces_(ColumnPieces(shape)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    int32_t* y = static_cast<int32_t*>(args.outputs[0]);
    ForColumns(shape_, pieces_, launch, [&](int64_t from, int64_t to, int) {
      Candidate best{RealAt(dtype_, args.inputs[0], from), 0};
      for (int64_t i = 1; i < shape_.n; ++i) {
        const Candidate next{RealAt(dtype_, args.inputs[0], from + i * shape_.inner),
                             static_cast<int32_t>(i)};
        if (Precedes(next, best, largest_)) best = next;
      }
      y[to] = best.place;
    });
    return absl::OkStatus();
  }

 private:
  const SelectionShape shape_;
  const DType dtype_;
  const bool largest_;
  const Pieces pieces_;
};

class CumsumKernel final : public Kernel {
 public:
  CumsumKernel(const SelectionShape& shape, const KernelSpec& spec)
      : shape_(shape),
        dtype_(spec.inputs[0]->dtype),
        exclusive_(spec.attrs.Bool("exclusive", false)),
        reverse_(spec.attrs.Bool("reverse", false)),
        pieces_(ColumnPieces(shape)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int64_t bytes = SizeOf(dtype_);
    ForColumns(shape_, pieces_, launch, [&](int64_t from, int64_t, int) {
      float sum = 0;
      for (int64_t i = 0; i < shape_.n; ++i) {
        const int64_t at = from + (reverse_ ? shape_.n - 1 - i : i) * shape_.inner;
        const float with = sum + RealAt(dtype_, args.inputs[0], at);
        ConvertReal(DType::kF32, dtype_, exclusive_ ? &sum : &with,
                    static_cast<char*>(args.outputs[0]) + at * bytes, 1);
        sum = with;
      }
    });
    return absl::OkStatus();
  }

 private:
  const SelectionShape shape_;
  const DType dtype_;
  const bool exclusive_, reverse_;
  const Pieces pieces_;
};

template <typename SomeKernel, absl::StatusOr<SelectionShape> (*kShape)(const KernelSpec&)>
KernelOr Make(const KernelSpec& spec) {
  auto shape = kShape(spec);
  if (!shape.ok()) return shape.status();
  return std::make_unique<SomeKernel>(*shape, spec);
}

KernelOr MakeTopK(const KernelSpec& spec) { return Make<TopKKernel, TopKShape>(spec); }
KernelOr MakeArgmax(const KernelSpec& spec) { return Make<ArgmaxKernel, ArgmaxShape>(spec); }
KernelOr MakeCumsum(const KernelSpec& spec) { return Make<CumsumKernel, CumsumShape>(spec); }

WEIR_REGISTER_KERNEL("cpu", "top_k", MakeTopK);
WEIR_REGISTER_KERNEL("cpu", "argmax", MakeArgmax);
WEIR_REGISTER_KERNEL("cpu", "cumsum", MakeCumsum);

}  // namespace
}  // namespace weir::kernels
