// relu, gelu (tanh form), gelu_exact and silu with their derivatives, per vector.
// Compiled once per instruction set (Highway's foreach_target).

#if defined(WEIR_OPS_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_OPS_KERNELS_CPU_ACTIVATION_INL_H_
#undef WEIR_OPS_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define WEIR_OPS_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "ops/kernels/cpu/activation.h"
#include "ops/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {

// Zero where x <= 0; NaN stays.
HWY_INLINE VF Relu(VF x) { return hn::IfThenElse(hn::Le(x, hn::Zero(DF())), hn::Zero(DF()), x); }

HWY_INLINE VF ReluGrad(VF y, VF dy) { return hn::IfThenElseZero(hn::Gt(y, hn::Zero(DF())), dy); }

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kGeluCubic = 0.044715f;

HWY_INLINE VF GeluSigmoid(VF x, VF x2) {
  const DF d;
  VF inner =
      hn::MulAdd(x2, hn::Set(d, kTwoRootTwoOverPi * kGeluCubic), hn::Set(d, kTwoRootTwoOverPi));
  return Sigmoid(hn::Mul(x, inner));
}

HWY_INLINE VF Gelu(VF x) { return hn::Mul(x, GeluSigmoid(x, hn::Mul(x, x))); }

HWY_INLINE VF GeluGrad(VF x, VF dy) {
  const DF d;
  VF x2 = hn::Mul(x, x);
  VF s = GeluSigmoid(x, x2);
  VF slope =
      hn::MulAdd(x2, hn::Set(d, 3 * kTwoRootTwoOverPi * kGeluCubic), hn::Set(d, kTwoRootTwoOverPi));
  VF bell = hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s));
  return hn::Mul(dy, hn::MulAdd(hn::Mul(x, bell), slope, s));
}

// The distribution function of the normal distribution, and its density times the square root of
// 2 pi. Formula 7.1.26 of Abramowitz and Stegun for erf; the error is at most 8e-8.
struct NormalAt {
  VF below, bell;
};

HWY_INLINE NormalAt Normal(VF x) {
  const DF d;
  const VF one = hn::Set(d, 1.0f);
  const VF t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.3275911f * 0.70710678f), one));
  const VF bell = Exp(hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f)));
  // Half of the coefficients of the formula.
  VF tail = hn::MulAdd(t, hn::Set(d, 0.5307027145f), hn::Set(d, -0.7265760135f));
  tail = hn::MulAdd(tail, t, hn::Set(d, 0.7107068705f));
  tail = hn::MulAdd(tail, t, hn::Set(d, -0.142248368f));
  tail = hn::MulAdd(tail, t, hn::Set(d, 0.127414796f));
  tail = hn::Mul(hn::Mul(tail, t), bell);
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail)), bell};
}

// Infinitely far to the left the product of x and the distribution function is 0.
HWY_INLINE VF GeluExact(VF x) {
  const VF y = hn::Mul(x, Normal(x).below);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(DF(), -20.0f)), y);
}

HWY_INLINE VF GeluExactGrad(VF x, VF dy) {
  const DF d;
  const NormalAt normal = Normal(x);
  const VF density = hn::Mul(normal.bell, hn::Set(d, 0.3989422804f));
  // Beyond 20 the density is 0, whatever x.
  const VF far = hn::IfThenZeroElse(hn::Gt(hn::Abs(x), hn::Set(d, 20.0f)), hn::Mul(x, density));
  return hn::Mul(dy, hn::Add(normal.below, far));
}

HWY_INLINE VF Silu(VF x) { return hn::Mul(x, Sigmoid(x)); }

HWY_INLINE VF SiluGrad(VF x, VF dy) {
  const VF one = hn::Set(DF(), 1.0f);
  VF s = Sigmoid(x);
  return hn::Mul(dy, hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one)));
}

}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#endif
