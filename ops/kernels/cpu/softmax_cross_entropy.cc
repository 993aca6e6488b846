// softmax_cross_entropy over whole rows and over shards of the vocabulary, accuracy.
//
// A row is read twice: its maximum, then the sum of exponentials, so that a split
// vocabulary (reduce_max, exp_sum_pick, cross_entropy_finish) computes the same terms.
// A target outside the whole vocabulary picks nothing: its logit counts as 0. An ignored target
// makes the loss and its gradient 0. With a smoothed target, what is picked is the mean of the
// logits by the weights of the smoothed target, which shards add up, too.
#include <cmath>
#include <cstring>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/logits.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/softmax_cross_entropy.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

float RowMax(DType dtype, const void* x_any, int64_t n) {
  float max = 0;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    max = MaxOver(static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any), n);
  });
  return max;
}

// Returns the sum of e^(x - max); 0 for an empty row. With max = -inf (every logit of the whole row
// is -inf) all terms are 0 rather than NaN.
float RowExpSum(DType dtype, const void* x_any, float max, int64_t n) {
  float sum = 0;
  const VF shift = hn::Set(DF(), std::isinf(max) && max < 0 ? 0.0f : max);
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    sum = SumOver(
        n, [&](VF v) HWY_ATTR { return Exp(hn::Sub(v, shift)); }, x);
  });
  return sum;
}

float RowSum(DType dtype, const void* x_any, int64_t n) {
  float sum = 0;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    sum = SumOver(
        n, [](VF v) HWY_ATTR { return v; }, x);
  });
  return sum;
}

// dx = e^(x - max) * factor - less.
void RowExpScaled(DType dtype, const void* x_any, void* dx_any, float max, float factor, float less,
                  int64_t n) {
  const VF shift = hn::Set(DF(), max), scale = hn::Set(DF(), factor), minus = hn::Set(DF(), less);
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    MapInto(
        static_cast<T*>(dx_any), n,
        [&](VF v) HWY_ATTR { return hn::Sub(hn::Mul(Exp(hn::Sub(v, shift)), scale), minus); },
        static_cast<const T*>(x_any));
  });
}

// Returns the first index of the largest element, -1 for an empty row.
template <class T>
int64_t FirstIndexOf(const T* x, float max, int64_t n) {
  const int64_t lanes = NumLanes();
  const VF wanted = hn::Set(DF(), max);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    int64_t found = static_cast<int64_t>(hn::FindFirstTrue(DF(), hn::Eq(LoadF(x + i), wanted)));
    if (found >= 0) return i + found;
  }
  for (; i < n; ++i) {
    if (hn::GetLane(LoadTail(x + i, 1)) == max) return i;
  }
  return -1;
}

int64_t RowArgMax(DType dtype, const void* x_any, int64_t n) {
  int64_t index = -1;
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    const auto* x = static_cast<const std::remove_pointer_t<decltype(type)>*>(x_any);
    index = FirstIndexOf(x, MaxOver(x, n), n);
  });
  return index;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(RowMax);
HWY_EXPORT(RowExpSum);
HWY_EXPORT(RowSum);
HWY_EXPORT(RowExpScaled);
HWY_EXPORT(RowArgMax);

namespace {

using KernelOr = absl::StatusOr<std::unique_ptr<Kernel>>;

// LogitRows holds rows of logits, their targets and the begin of the vocabulary shard.
struct LogitRows {
  LogitRows(const TensorSlice& logits, const Attributes& attrs)
      : ignored(attrs),
        weights(logits, attrs),
        dtype(logits.dtype),
        n(SizeFromEnd(logits, 1)),
        first(logits.offset.back()),
        pieces(Pieces::OfRows(LeadingElements(logits, 1), n, kHeavyPiece)) {}

  const void* Row(const void* logits, int64_t row) const {
    return static_cast<const char*>(logits) + row * n * SizeOf(dtype);
  }
  void* Row(void* logits, int64_t row) const {
    return static_cast<char*>(logits) + row * n * SizeOf(dtype);
  }
  bool Holds(int32_t target) const { return first <= target && target < first + n; }
  float Picked(const void* row, int32_t target) const {
    const float logit = Holds(target) ? RealAt(dtype, row, target - first) : 0;
    if (weights.of_each == 0) return logit;
    return weights.of_target * logit +
           weights.of_each * HWY_DYNAMIC_DISPATCH(RowSum)(dtype, row, n);
  }

  IgnoredTarget ignored;
  TargetWeights weights;
  DType dtype;
  int64_t n, first;
  Pieces pieces;
};

float* FloatsOrNull(const KernelArgs& args, size_t output) {
  return output < args.outputs.size() ? static_cast<float*>(args.outputs[output]) : nullptr;
}

class CrossEntropyKernel final : public Kernel {
 public:
  CrossEntropyKernel(const TensorSlice& logits, const Attributes& attrs) : rows_(logits, attrs) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int32_t* targets = static_cast<const int32_t*>(args.inputs[1]);
    float* loss = static_cast<float*>(args.outputs[0]);
    float* max_out = FloatsOrNull(args, 1);
    float* sum_out = FloatsOrNull(args, 2);
    launch.team->For(rows_.pieces.count(), [&](int64_t piece) {
      for (int64_t i = rows_.pieces.begin(piece); i < rows_.pieces.end(piece); ++i) {
        const void* row = rows_.Row(args.inputs[0], i);
        const float max = HWY_DYNAMIC_DISPATCH(RowMax)(rows_.dtype, row, rows_.n);
        const float sum = HWY_DYNAMIC_DISPATCH(RowExpSum)(rows_.dtype, row, max, rows_.n);
        loss[i] =
            rows_.ignored.Is(targets[i]) ? 0 : std::log(sum) + max - rows_.Picked(row, targets[i]);
        if (max_out) max_out[i] = max;
        if (sum_out) sum_out[i] = sum;
      }
    });
    return absl::OkStatus();
  }

 private:
  const LogitRows rows_;
};

KernelOr MakeCrossEntropy(const KernelSpec& spec) {
  if (absl::Status status = CheckCrossEntropy(spec); !status.ok()) return status;
  return std::make_unique<CrossEntropyKernel>(*spec.inputs[0], spec.attrs);
}

class CrossEntropyGradKernel final : public Kernel {
 public:
  CrossEntropyGradKernel(const TensorSlice& logits, const Attributes& attrs)
      : rows_(logits, attrs) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int32_t* targets = static_cast<const int32_t*>(args.inputs[1]);
    const float* max = static_cast<const float*>(args.inputs[2]);
    const float* sum = static_cast<const float*>(args.inputs[3]);
    const float* dloss = static_cast<const float*>(args.inputs[4]);
    launch.team->For(rows_.pieces.count(), [&](int64_t piece) {
      for (int64_t i = rows_.pieces.begin(piece); i < rows_.pieces.end(piece); ++i) {
        const void* row = rows_.Row(args.inputs[0], i);
        void* dx = rows_.Row(args.outputs[0], i);
        if (rows_.ignored.Is(targets[i])) {
          std::memset(dx, 0, static_cast<size_t>(rows_.n * SizeOf(rows_.dtype)));
          continue;
        }
        // The logit is read before the row is written, because dx may be the logits.
        const bool held = rows_.Holds(targets[i]);
        const float picked = held ? RealAt(rows_.dtype, row, targets[i] - rows_.first) : 0;
        const float factor = dloss[i] / sum[i], less = rows_.weights.of_each * dloss[i];
        HWY_DYNAMIC_DISPATCH(RowExpScaled)(rows_.dtype, row, dx, max[i], factor, less, rows_.n);
        if (held)
          SetRealAt(rows_.dtype, dx, targets[i] - rows_.first,
                    std::exp(picked - max[i]) * factor - less - rows_.weights.of_target * dloss[i]);
      }
    });
    return absl::OkStatus();
  }

 private:
  const LogitRows rows_;
};

KernelOr MakeCrossEntropyGrad(const KernelSpec& spec) {
  if (absl::Status status = CheckCrossEntropyGrad(spec); !status.ok()) return status;
  return std::make_unique<CrossEntropyGradKernel>(*spec.inputs[0], spec.attrs);
}

class ExpSumPickKernel final : public Kernel {
 public:
  ExpSumPickKernel(const TensorSlice& logits, const Attributes& attrs) : rows_(logits, attrs) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int32_t* targets = static_cast<const int32_t*>(args.inputs[1]);
    const float* max = static_cast<const float*>(args.inputs[2]);
    float* sum = static_cast<float*>(args.outputs[0]);
    float* picked = static_cast<float*>(args.outputs[1]);
    launch.team->For(rows_.pieces.count(), [&](int64_t piece) {
      for (int64_t i = rows_.pieces.begin(piece); i < rows_.pieces.end(piece); ++i) {
        const void* row = rows_.Row(args.inputs[0], i);
        sum[i] = HWY_DYNAMIC_DISPATCH(RowExpSum)(rows_.dtype, row, max[i], rows_.n);
        picked[i] = rows_.Picked(row, targets[i]);
      }
    });
    return absl::OkStatus();
  }

 private:
  const LogitRows rows_;
};

KernelOr MakeExpSumPick(const KernelSpec& spec) {
  if (absl::Status status = CheckExpSumPick(spec); !status.ok()) return status;
  return std::make_unique<ExpSumPickKernel>(*spec.inputs[0], spec.attrs);
}

class CrossEntropyFinishKernel final : public Kernel {
 public:
  CrossEntropyFinishKernel(int64_t n, const Attributes& attrs)
      : ignored_(attrs), pieces_{n, kHeavyPiece} {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const float* max = static_cast<const float*>(args.inputs[0]);
    const float* sum = static_cast<const float*>(args.inputs[1]);
    const float* picked = static_cast<const float*>(args.inputs[2]);
    const int32_t* targets =
        ignored_.exists ? static_cast<const int32_t*>(args.inputs[3]) : nullptr;
    float* loss = static_cast<float*>(args.outputs[0]);
    launch.team->For(pieces_.count(), [&](int64_t piece) {
      for (int64_t i = pieces_.begin(piece); i < pieces_.end(piece); ++i) {
        const bool counts = targets == nullptr || !ignored_.Is(targets[i]);
        loss[i] = counts ? std::log(sum[i]) + max[i] - picked[i] : 0;
      }
    });
    return absl::OkStatus();
  }

 private:
  const IgnoredTarget ignored_;
  const Pieces pieces_;
};

KernelOr MakeCrossEntropyFinish(const KernelSpec& spec) {
  if (absl::Status status = CheckCrossEntropyFinish(spec); !status.ok()) return status;
  return std::make_unique<CrossEntropyFinishKernel>(spec.outputs[0]->num_elements(), spec.attrs);
}

class AccuracyKernel final : public Kernel {
 public:
  AccuracyKernel(const TensorSlice& logits, const Attributes& attrs) : rows_(logits, attrs) {}

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int32_t* targets = static_cast<const int32_t*>(args.inputs[1]);
    float* hit = static_cast<float*>(args.outputs[0]);
    launch.team->For(rows_.pieces.count(), [&](int64_t piece) {
      for (int64_t i = rows_.pieces.begin(piece); i < rows_.pieces.end(piece); ++i) {
        int64_t best =
            HWY_DYNAMIC_DISPATCH(RowArgMax)(rows_.dtype, rows_.Row(args.inputs[0], i), rows_.n);
        const bool counts = !rows_.ignored.Is(targets[i]);
        hit[i] = counts && best >= 0 && best == targets[i] ? 1.0f : 0.0f;
      }
    });
    return absl::OkStatus();
  }

 private:
  const LogitRows rows_;
};

KernelOr MakeAccuracy(const KernelSpec& spec) {
  if (absl::Status status = CheckAccuracy(spec); !status.ok()) return status;
  return std::make_unique<AccuracyKernel>(*spec.inputs[0], spec.attrs);
}

WEIR_REGISTER_KERNEL("cpu", "softmax_cross_entropy", MakeCrossEntropy);
WEIR_REGISTER_KERNEL("cpu", "softmax_cross_entropy_grad", MakeCrossEntropyGrad);
WEIR_REGISTER_KERNEL("cpu", "exp_sum_pick", MakeExpSumPick);
WEIR_REGISTER_KERNEL("cpu", "cross_entropy_finish", MakeCrossEntropyFinish);
WEIR_REGISTER_KERNEL("cpu", "accuracy", MakeAccuracy);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
