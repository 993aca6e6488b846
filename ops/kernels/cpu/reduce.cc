// reduce_sum, reduce_mean, reduce_max over some axes; expand and reduce_max_grad.
//
// The elements that are reduced into one element are cut into segments by shape alone. Partial
// results of segments go to the workspace in f32 and are combined in order.
#include <cstring>
#include <limits>

#include "ops/kernels/cpu/gemm_pack.h"
#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/axis_groups.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/reduce_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/reduce.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

#ifndef WEIR_OPS_KERNELS_CPU_REDUCE_ONCE
#define WEIR_OPS_KERNELS_CPU_REDUCE_ONCE
namespace weir::kernels {
enum class Reduction : uint8_t { kSum, kMax };
}
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

float ReduceRow(Reduction reduction, DType dtype, const void* x_any, int64_t n) {
  float result = 0;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    result = reduction == Reduction::kSum ? SumOver(
                                                n, [](VF v) HWY_ATTR { return v; }, x)
                                          : MaxOver(x, n);
  });
  return result;
}

// total[i] = reduction(total[i], x[i]).
void MergeRow(Reduction reduction, DType dtype, const void* x_any, float* total, int64_t n) {
  const float* before = total;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    if (reduction == Reduction::kSum) {
      MapInto(
          total, n, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); }, before, x);
    } else {
      MapInto(
          total, n, [](VF a, VF b) HWY_ATTR { return MaxOrNaN(a, b); }, before, x);
    }
  });
}

void StoreScaled(DType dtype, const float* x, float factor, void* y_any, int64_t n) {
  const VF scale = hn::Set(DF(), factor);
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    MapInto(
        static_cast<std::remove_pointer_t<decltype(type)>*>(y_any), n,
        [&](VF v) HWY_ATTR { return hn::Mul(v, scale); }, x);
  });
}

// Sets y[i] = value for all i.
void FillRow(DType dtype, const void* value_any, void* y_any, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T value = *static_cast<const T*>(value_any);
    T* y = static_cast<T*>(y_any);
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  });
}

// dx[i] = dy where x[i] equals y, else 0; y and dy are single elements, or rows like x.
template <class T>
void MaxGradRowTyped(AxisGroups::Kind inner, const T* x, const T* y, const T* dy, T* dx,
                     int64_t n) {
  auto pass = [](VF a, VF m, VF g) HWY_ATTR { return hn::IfThenElseZero(hn::Eq(a, m), g); };
  if (inner == AxisGroups::Kind::kKept) return MapInto(dx, n, pass, x, y, dy);
  const VF max = hn::Set(DF(), hn::GetLane(LoadTail(y, 1))),
           grad = hn::Set(DF(), hn::GetLane(LoadTail(dy, 1)));
  MapInto(
      dx, n, [&](VF a) HWY_ATTR { return pass(a, max, grad); }, x);
}

void MaxGradRow(AxisGroups::Kind inner, DType dtype, const void* x, const void* y, const void* dy,
                void* dx, int64_t n) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    MaxGradRowTyped(inner, static_cast<const T*>(x), static_cast<const T*>(y),
                    static_cast<const T*>(dy), static_cast<T*>(dx), n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(ReduceRow);
HWY_EXPORT(MergeRow);
HWY_EXPORT(StoreScaled);
HWY_EXPORT(FillRow);
HWY_EXPORT(MaxGradRow);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// The maximum number of segments where each result has many rows.
constexpr int64_t kSegmentsMax = 64;

class ReduceKernel final : public Kernel {
 public:
  ReduceKernel(Reduction reduction, const TensorSlice& x, const TensorSlice& y,
               const std::vector<int64_t>& axes, double factor)
      : reduction_(reduction),
        x_type_(x.dtype),
        y_type_(y.dtype),
        factor_(static_cast<float>(factor)),
        num_results_(y.num_elements()),
        groups_(x.shape, axes),
        empty_(x.num_elements() == 0) {
    const bool rows_kept = groups_.inner() == AxisGroups::Kind::kKept;
    width_ = rows_kept ? groups_.row() : 1;
    cut_row_ = !rows_kept && groups_.num_reduced() == 1;
    if (empty_) return;
    segments_.total = cut_row_ ? groups_.row() : groups_.num_reduced();
    const int64_t unit = cut_row_ ? 1 : groups_.row();  // elements of what segments count
    segments_.size = std::max((segments_.total + kSegmentsMax - 1) / kSegmentsMax,
                              std::max<int64_t>(1, kLightPiece / unit));
    const int64_t segment_elements = std::min(segments_.size, segments_.total) * unit;
    tasks_ = Pieces::OfRows(groups_.num_kept() * segments_.count(), segment_elements, kLightPiece);
  }

  // f32 [kept outer index][segment][width].
  int64_t workspace_bytes() const override { return empty_ ? 0 : tasks_.total * width_ * 4; }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (empty_) {
      FillEmpty(args.outputs[0]);
      return absl::OkStatus();
    }
    float* partials = static_cast<float*>(launch.workspace);
    launch.team->For(tasks_.count(), [&](int64_t piece) {
      for (int64_t task = tasks_.begin(piece); task < tasks_.end(piece); ++task) {
        ReduceSegment(args.inputs[0], task / segments_.count(), task % segments_.count(),
                      partials + task * width_);
      }
    });
    if (segments_.count() == 1) {
      Pieces results{num_results_, kLightPiece};
      launch.team->For(results.count(), [&](int64_t piece) {
        const int64_t begin = results.begin(piece);
        Store(partials + begin, args.outputs[0], begin, results.length(piece));
      });
      return absl::OkStatus();
    }
    Pieces kept = Pieces::OfRows(groups_.num_kept(), width_ * segments_.count(), kLightPiece);
    launch.team->For(kept.count(), [&](int64_t piece) {
      for (int64_t i = kept.begin(piece); i < kept.end(piece); ++i) {
        float* total = partials + i * segments_.count() * width_;
        for (int64_t segment = 1; segment < segments_.count(); ++segment) {
          HWY_DYNAMIC_DISPATCH(MergeRow)
          (reduction_, DType::kF32, total + segment * width_, total, width_);
        }
        Store(total, args.outputs[0], i * width_, width_);
      }
    });
    return absl::OkStatus();
  }

 private:
  void ReduceSegment(const void* x, int64_t kept, int64_t segment, float* partial) const {
    if (cut_row_) {
      const void* row = At(x, groups_.RowStart(kept, 0) + segments_.begin(segment));
      *partial =
          HWY_DYNAMIC_DISPATCH(ReduceRow)(reduction_, x_type_, row, segments_.length(segment));
      return;
    }
    for (int64_t reduced = segments_.begin(segment); reduced < segments_.end(segment); ++reduced) {
      const void* row = At(x, groups_.RowStart(kept, reduced));
      const bool first = reduced == segments_.begin(segment);
      if (groups_.inner() == AxisGroups::Kind::kReduced) {
        float value = HWY_DYNAMIC_DISPATCH(ReduceRow)(reduction_, x_type_, row, groups_.row());
        *partial = first                           ? value
                   : reduction_ == Reduction::kSum ? *partial + value
                                                   : Larger(*partial, value);
      } else if (first) {
        ConvertReal(x_type_, DType::kF32, row, partial, width_);
      } else {
        HWY_DYNAMIC_DISPATCH(MergeRow)(reduction_, x_type_, row, partial, width_);
      }
    }
  }

  static float Larger(float a, float b) { return b > a || b != b ? b : a; }
  const void* At(const void* x, int64_t element) const {
    return static_cast<const char*>(x) + element * SizeOf(x_type_);
  }
  void Store(const float* values, void* y, int64_t first, int64_t n) const {
    HWY_DYNAMIC_DISPATCH(StoreScaled)
    (y_type_, values, factor_, static_cast<char*>(y) + first * SizeOf(y_type_), n);
  }

  // Writes the neutral element everywhere, because there is nothing to reduce.
  void FillEmpty(void* y) const {
    const float neutral =
        reduction_ == Reduction::kSum ? 0 : -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < num_results_; ++i) Store(&neutral, y, i, 1);
  }

  const Reduction reduction_;
  const DType x_type_, y_type_;
  const float factor_;
  const int64_t num_results_;
  const AxisGroups groups_;
  const bool empty_;
  bool cut_row_ = false;  // segments are parts of one row; otherwise they are runs of rows
  int64_t width_ = 1;     // results per kept outer index
  Pieces segments_, tasks_;
};

enum class Mean : uint8_t { kNo, kYes };

KernelFactory MakeReduce(Reduction reduction, Mean mean) {
  return [reduction, mean](const KernelSpec& spec) -> KernelOr {
    if (absl::Status status = CheckReduce(spec); !status.ok()) return status;
    const TensorSlice &x = *spec.inputs[0], &y = *spec.outputs[0];
    const std::vector<int64_t> axes = spec.attrs.Ints("axes");
    const double count = static_cast<double>(ReducedElements(x.global_shape, axes));
    return std::make_unique<ReduceKernel>(reduction, x, y, axes,
                                          mean == Mean::kYes ? 1 / count : 1);
  };
}

// expand and reduce_max_grad write rows of dx in the order of memory, each from a row or one
// element of the reduced tensor.
class ExpandKernel final : public Kernel {
 public:
  enum class Mask : uint8_t { kNone, kMaximum };

  ExpandKernel(const TensorSlice& dx, const std::vector<int64_t>& axes, Mask mask)
      : dtype_(dx.dtype),
        groups_(dx.shape, axes),
        masked_(mask == Mask::kMaximum),
        empty_(dx.num_elements() == 0),
        rows_(Pieces::OfRows(groups_.num_kept() * groups_.num_reduced(), groups_.row(),
                             kLightPiece)) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    if (empty_) return absl::OkStatus();
    const int64_t n = groups_.row(), size = SizeOf(dtype_);
    const int64_t width = groups_.inner() == AxisGroups::Kind::kKept ? n : 1;
    char* dx = static_cast<char*>(args.outputs[0]);
    launch.team->For(rows_.count(), [&](int64_t piece) {
      for (int64_t row = rows_.begin(piece); row < rows_.end(piece); ++row) {
        const int64_t small = groups_.KeptIndexOf(row) * width * size, large = row * n * size;
        if (masked_) {
          HWY_DYNAMIC_DISPATCH(MaxGradRow)
          (groups_.inner(), dtype_, In(args, 0) + large, In(args, 1) + small, In(args, 2) + small,
           dx + large, n);
        } else if (width == n) {
          std::memcpy(dx + large, In(args, 0) + small, n * size);
        } else {
          HWY_DYNAMIC_DISPATCH(FillRow)(dtype_, In(args, 0) + small, dx + large, n);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  static const char* In(const KernelArgs& args, int i) {
    return static_cast<const char*>(args.inputs[i]);
  }

  const DType dtype_;
  const AxisGroups groups_;
  const bool masked_;  // reduce_max_grad: only where x equals the maximum
  const bool empty_;
  const Pieces rows_;
};

KernelOr MakeExpand(const KernelSpec& spec) {
  if (absl::Status status = CheckExpand(spec); !status.ok()) return status;
  return std::make_unique<ExpandKernel>(*spec.outputs[0], spec.attrs.Ints("axes"),
                                        ExpandKernel::Mask::kNone);
}

KernelOr MakeReduceMaxGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckReduceMaxGrad(spec); !status.ok()) return status;
  return std::make_unique<ExpandKernel>(*spec.outputs[0], spec.attrs.Ints("axes"),
                                        ExpandKernel::Mask::kMaximum);
}

WEIR_REGISTER_KERNEL("cpu", "reduce_sum", MakeReduce(Reduction::kSum, Mean::kNo));
WEIR_REGISTER_KERNEL("cpu", "reduce_mean", MakeReduce(Reduction::kSum, Mean::kYes));
WEIR_REGISTER_KERNEL("cpu", "reduce_max", MakeReduce(Reduction::kMax, Mean::kNo));
WEIR_REGISTER_KERNEL("cpu", "expand", MakeExpand);
WEIR_REGISTER_KERNEL("cpu", "reduce_max_grad", MakeReduceMaxGrad);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
