// relu, gelu (tanh form) and silu with their derivatives, per vector.
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
