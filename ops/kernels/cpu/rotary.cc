// rotary turns the pairs (i, i + d/2) of each head by position * base^(-2i/d).
#include <cmath>
#include <vector>

#include "ops/kernels/cpu/simd_targets.h"
#include "ops/kernels/kernel.h"
#include "ops/kernels/shape/pieces.h"
#include "ops/kernels/shape/spec_check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/kernels/cpu/rotary.cc"
#include "hwy/foreach_target.h"

#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace {

// Turns one position: num_heads heads of 2 * half elements. y may be x.
void TurnHeads(DType dtype, const void* x_any, void* y_any, const float* cosine, const float* sine,
               int64_t num_heads, int64_t half) {
  WithReal(dtype, [&](auto* type) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = static_cast<const T*>(x_any);
    T* y = static_cast<T*>(y_any);
    const int64_t lanes = NumLanes();
    for (int64_t head = 0; head < num_heads; ++head, x += 2 * half, y += 2 * half) {
      for (int64_t i = 0; i < half; i += lanes) {
        const int64_t n = half - i;
        if (n >= lanes) {
          VF a = LoadF(x + i), b = LoadF(x + half + i), c = LoadF(cosine + i), s = LoadF(sine + i);
          StoreF(hn::MulSub(a, c, hn::Mul(b, s)), y + i);
          StoreF(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + i);
        } else {
          VF a = LoadTail(x + i, n), b = LoadTail(x + half + i, n);
          VF c = LoadTail(cosine + i, n), s = LoadTail(sine + i, n);
          StoreTail(hn::MulSub(a, c, hn::Mul(b, s)), y + i, n);
          StoreTail(hn::MulAdd(a, s, hn::Mul(b, c)), y + half + i, n);
        }
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::kernels {

HWY_EXPORT(TurnHeads);

namespace {

class RotaryKernel final : public Kernel {
 public:
  // The constructor makes the tables of the shard's positions once, in double precision. If an
  // operand gives the positions, each run makes the rows of the table that it uses.
  RotaryKernel(const TensorSlice& x, bool has_positions, double base, double direction,
               int num_threads)
      : dtype_(x.dtype),
        has_positions_(has_positions),
        direction_(direction),
        num_threads_(num_threads),
        sequence_(x.shape[1]),
        num_heads_(x.shape[2]),
        half_(x.shape[3] / 2),
        pieces_(Pieces::OfRows(x.shape[0] * sequence_, num_heads_ * 2 * half_, kHeavyPiece)),
        frequencies_(half_),
        cosine_(has_positions ? 0 : sequence_ * half_),
        sine_(has_positions ? 0 : sequence_ * half_) {
    for (int64_t i = 0; i < half_; ++i)
      frequencies_[i] = std::pow(base, -static_cast<double>(i) / static_cast<double>(half_));
    if (has_positions) return;
    for (int64_t s = 0; s < sequence_; ++s)
      FillTable(x.offset[1] + s, cosine_.data() + s * half_, sine_.data() + s * half_);
  }

  int64_t workspace_bytes() const override {
    return has_positions_ ? 2 * num_threads_ * padded_half() * int64_t{sizeof(float)} : 0;
  }

  absl::Status Run(const KernelArgs& args, const LaunchContext& launch) override {
    const int64_t stride = num_heads_ * 2 * half_ * SizeOf(dtype_);
    const auto* positions = has_positions_ ? static_cast<const int32_t*>(args.inputs[1]) : nullptr;
    launch.team->For(pieces_.count(), [&](int64_t piece, int worker) {
      float* own = static_cast<float*>(launch.workspace) + 2 * worker * padded_half();
      for (int64_t i = pieces_.begin(piece); i < pieces_.end(piece); ++i) {
        const int64_t at = i % sequence_ * half_;
        if (has_positions_) FillTable(positions[i], own, own + padded_half());
        HWY_DYNAMIC_DISPATCH(TurnHeads)
        (dtype_, static_cast<const char*>(args.inputs[0]) + i * stride,
         static_cast<char*>(args.outputs[0]) + i * stride,
         has_positions_ ? own : cosine_.data() + at,
         has_positions_ ? own + padded_half() : sine_.data() + at, num_heads_, half_);
      }
    });
    return absl::OkStatus();
  }

 private:
  void FillTable(int64_t position, float* cosine, float* sine) const {
    for (int64_t i = 0; i < half_; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      cosine[i] = static_cast<float>(std::cos(angle));
      sine[i] = static_cast<float>(direction_ * std::sin(angle));
    }
  }
  int64_t padded_half() const { return RoundUp(half_, 16); }

  const DType dtype_;
  const bool has_positions_;
  const double direction_;
  const int num_threads_;
  const int64_t sequence_, num_heads_, half_;
  const Pieces pieces_;
  std::vector<double> frequencies_;   // by pair
  std::vector<float> cosine_, sine_;  // [position][pair]; empty if an operand gives the positions
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeRotary(const KernelSpec& spec) {
  SpecCheck check(spec);
  check.Inputs(1, 2)
      .Outputs(1, 1)
      .Real(check.in(0), "x")
      .Expect(check.in(0).shape.size() == 4, "x[b, s, h, d]");
  check.SameType(check.in(0), check.out(0), "x and y")
      .SameShape(check.in(0), check.out(0), "x and y");
  check.Expect(SizeFromEnd(check.in(0), 1) % 2 == 0, "an even d");
  check.Expect(spec.attrs.Real("base", 10000) > 0, "a base above 0");
  if (check.HasIn(1)) {
    check.Is(check.in(1), DType::kI32, "positions")
        .Expect(check.in(1).shape == Shape{check.in(0).shape[0], check.in(0).shape[1]},
                "positions[b, s]");
  }
  if (!check.ok()) return check.status();
  return std::make_unique<RotaryKernel>(check.in(0), check.HasIn(1), spec.attrs.Real("base", 10000),
                                        spec.attrs.Bool("inverse") ? -1.0 : 1.0, spec.num_threads);
}

WEIR_REGISTER_KERNEL("cpu", "rotary", MakeRotary);

}  // namespace
}  // namespace weir::kernels
#endif  // HWY_ONCE
