// Vectors of f32 over storage of real types: loads, stores, sums, the exponential.
// Compiled once per instruction set (Highway's foreach_target).
//
// An element's result does not depend on where it lies in a vector: the last, partial
// vector goes through the same instructions as the others.

#if defined(WEIR_OPS_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_OPS_KERNELS_CPU_SIMD_INL_H_
#undef WEIR_OPS_KERNELS_CPU_SIMD_INL_H_
#else
#define WEIR_OPS_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "runtime/base/dtype.h"
#include "runtime/base/real.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;

HWY_INLINE int64_t NumLanes() { return static_cast<int64_t>(hn::Lanes(DF())); }
constexpr int64_t kLanesMax = static_cast<int64_t>(hn::MaxLanes(DF()));

HWY_INLINE VF LoadF(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE VF LoadF(const BFloat16* p) {
  auto bits = hn::PromoteTo(DU(), hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(p)));
  return hn::BitCast(DF(), hn::ShiftLeft<16>(bits));
}

// An exponent of 5 bits and 10 bits of fraction move to their places in an f32; see dtype.h. Whole
// numbers do the work, so that all instruction sets give the same bits and subnormal numbers count.
HWY_INLINE VF LoadF(const Float16* p) {
  const DF d;
  const DI di;
  const auto bits =
      hn::BitCast(di, hn::PromoteTo(DU(), hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(p))));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fff));
  const auto moved = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(moved, hn::Set(di, 112 << 23));
  const auto endless = hn::Or(moved, hn::Set(di, 0x7f800000));
  const auto subnormal =
      hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f)));
  auto chosen = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x0400)), subnormal, normal);
  chosen = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7bff)), endless, chosen);
  return hn::BitCast(d, hn::Or(sign, chosen));
}

HWY_INLINE void StoreF(VF v, float* p) { hn::StoreU(v, DF(), p); }
// Rounds to nearest even; a NaN stays a (quiet) NaN.
HWY_INLINE void StoreF(VF v, BFloat16* p) {
  const DU du;
  auto bits = hn::BitCast(du, v);
  auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff))));
  auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40));
  auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  auto chosen = hn::IfThenElse(is_nan, quiet, rounded);
  hn::StoreU(hn::DemoteTo(DU16(), hn::BitCast(DI(), chosen)), DU16(),
             reinterpret_cast<uint16_t*>(p));
}

// Rounds as ToFloat16 does.
HWY_INLINE void StoreF(VF v, Float16* p) {
  const DF d;
  const DI di;
  const auto bits = hn::BitCast(di, v);
  const auto sign =
      hn::And(hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(DU(), v))), hn::Set(di, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
  const auto moved = hn::Sub(magnitude, hn::Set(di, 112 << 23));
  const auto odd = hn::And(hn::ShiftRight<13>(moved), hn::Set(di, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(moved, hn::Add(odd, hn::Set(di, 0xfff))));
  const auto sum = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(di, sum), hn::Set(di, 0x3f000000));
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x3ff));
  const auto nan = hn::Or(payload, hn::Set(di, 0x7e00));
  auto chosen = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 0x38800000)), subnormal, normal);
  chosen = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x477fefff)), hn::Set(di, 0x7c00), chosen);
  chosen = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7f800000)), nan, chosen);
  hn::StoreU(hn::DemoteTo(DU16(), hn::Or(sign, chosen)), DU16(), reinterpret_cast<uint16_t*>(p));
}

// Loads the first n < NumLanes() elements; the other lanes are `fill`.
template <class T>
HWY_INLINE VF LoadTail(const T* p, int64_t n, float fill = 0.0f) {
  HWY_ALIGN float lanes[kLanesMax];
  hn::Store(hn::Set(DF(), fill), DF(), lanes);
  for (int64_t i = 0; i < n; ++i) lanes[i] = ToFloat(p[i]);
  return hn::Load(DF(), lanes);
}

template <class T>
HWY_INLINE void StoreTail(VF v, T* p, int64_t n) {
  HWY_ALIGN T lanes[kLanesMax];
  StoreF(v, lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// Keeps the lanes of v below n and sets the others to zero.
HWY_INLINE VF KeepFirst(VF v, int64_t n) {
  return hn::IfThenElseZero(hn::FirstN(DF(), static_cast<size_t>(n)), v);
}

HWY_INLINE float SumLanes(VF v) { return hn::GetLane(hn::SumOfLanes(DF(), v)); }
HWY_INLINE float MaxLane(VF v) { return hn::GetLane(hn::MaxOfLanes(DF(), v)); }

// Sets y[i] = f(x[i], ...) for i < n, over any mix of storage types.
template <class TY, class F, class... TX>
HWY_INLINE void MapInto(TY* y, int64_t n, F f, const TX*... x) {
  const int64_t lanes = NumLanes();
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) StoreF(f(LoadF(x + i)...), y + i);
  if (i < n) StoreTail(f(LoadTail(x + i, n - i)...), y + i, n - i);
}

// Returns the sum over i < n of f(x[i], ...), in a tree fixed by n.
template <class F, class... TX>
HWY_INLINE float SumOver(int64_t n, F f, const TX*... x) {
  const DF d;
  const int64_t lanes = NumLanes();
  VF sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    sum0 = hn::Add(sum0, f(LoadF(x + i)...));
    sum1 = hn::Add(sum1, f(LoadF(x + i + lanes)...));
    sum2 = hn::Add(sum2, f(LoadF(x + i + 2 * lanes)...));
    sum3 = hn::Add(sum3, f(LoadF(x + i + 3 * lanes)...));
  }
  for (; i + lanes <= n; i += lanes) sum0 = hn::Add(sum0, f(LoadF(x + i)...));
  if (i < n) sum1 = hn::Add(sum1, KeepFirst(f(LoadTail(x + i, n - i)...), n - i));
  return SumLanes(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

// Returns the larger of the two; NaN if either is NaN.
HWY_INLINE VF MaxOrNaN(VF a, VF b) {
  return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
}

// Returns the maximum of x[i] over i < n, NaN if there is one, -inf if n is 0.
template <class T>
HWY_INLINE float MaxOver(const T* x, int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int64_t lanes = NumLanes();
  VF max0 = hn::Set(DF(), kLowest), max1 = max0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    max0 = MaxOrNaN(max0, LoadF(x + i));
    max1 = MaxOrNaN(max1, LoadF(x + i + lanes));
  }
  for (; i + lanes <= n; i += lanes) max0 = MaxOrNaN(max0, LoadF(x + i));
  if (i < n) max1 = MaxOrNaN(max1, LoadTail(x + i, n - i, kLowest));
  VF max = MaxOrNaN(max0, max1);
  if (!hn::AllFalse(DF(), hn::IsNaN(max))) return std::numeric_limits<float>::quiet_NaN();
  return MaxLane(max);
}

// Returns e^x within 1.5 ulp over the whole range, denormal results included.
HWY_INLINE VF Exp(VF x) {
  const DF d;
  const DI di;
  // Clamps x: out of range, the result is 0 or infinity either way. Comparisons are false for NaN.
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, -104.0f)), hn::Set(d, -104.0f), x);
  x = hn::IfThenElse(hn::Gt(x, hn::Set(d, 89.0f)), hn::Set(d, 89.0f), x);
  auto exponent = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  VF n = hn::ConvertTo(d, exponent);
  // ln 2 is split in two parts, the first with few enough bits that n times this part is exact.
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860682030941723e-6f), r);
  // e^r = 1 + r + r^2 p(r), where p is interpolated at Chebyshev's nodes of |r| <= ln(2) / 2.
  VF p = hn::Set(d, 0.0013926213466139798f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.008363202971575683f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.04166655443768787f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666657684599398f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  VF y = hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
  // 2^n is a product of two factors, since one exponent field holds neither 2^128 nor 2^-150.
  auto half = hn::ShiftRight<1>(exponent);
  auto bias = hn::Set(di, 127);
  VF scale0 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  VF scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(y, scale0), scale1);
}

HWY_INLINE VF Sigmoid(VF x) {
  const VF one = hn::Set(DF(), 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

// Does what WithRealType does, in the instructions of the target.
template <class F>
HWY_INLINE void WithReal(DType dtype, F f) {
  if (dtype == DType::kBF16) {
    f(static_cast<BFloat16*>(nullptr));
  } else if (dtype == DType::kF16) {
    f(static_cast<Float16*>(nullptr));
  } else {
    f(static_cast<float*>(nullptr));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#endif
