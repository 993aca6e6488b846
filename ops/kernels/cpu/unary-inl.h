// The functions of unary_function.h per vector, a type each: Value(x) is the function, and Grad(v,
// dy) is dy times the derivative. v is the operand that the gradient op reads (ops/defs/unary.cc):
// x, or the result. Functions without a gradient op have no Grad. Results are right to a few units
// in the last place unless a function says otherwise, and NaN stays NaN. A function with constants
// takes them in its constructor. Compiled once per instruction set (Highway's foreach_target).

#if defined(WEIR_OPS_KERNELS_CPU_UNARY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEIR_OPS_KERNELS_CPU_UNARY_INL_H_
#undef WEIR_OPS_KERNELS_CPU_UNARY_INL_H_
#else
#define WEIR_OPS_KERNELS_CPU_UNARY_INL_H_
#endif

#include <cmath>

#include "hwy/contrib/math/math-inl.h"
#include "ops/kernels/cpu/simd-inl.h"
#include "ops/kernels/shape/unary_function.h"

HWY_BEFORE_NAMESPACE();
namespace weir::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE VF Const(float value) { return hn::Set(DF(), value); }

// Returns `value` where `mask` holds, and `other` elsewhere.
template <class M>
HWY_INLINE VF Where(M mask, VF value, VF other) {
  return hn::IfThenElse(mask, value, other);
}

struct None {
  static HWY_INLINE VF Value(VF x) { return x; }
};

struct Relu {
  static HWY_INLINE VF Value(VF x) { return Where(hn::Le(x, Const(0)), Const(0), x); }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::IfThenElseZero(hn::Gt(y, Const(0)), dy); }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct Gelu {
  static constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
  static constexpr float kCubic = 0.044715f;

  static HWY_INLINE VF Share(VF x, VF x2) {
    const VF inner = hn::MulAdd(x2, Const(kTwoRootTwoOverPi * kCubic), Const(kTwoRootTwoOverPi));
    return Sigmoid(hn::Mul(x, inner));
  }
  static HWY_INLINE VF Value(VF x) { return hn::Mul(x, Share(x, hn::Mul(x, x))); }
  static HWY_INLINE VF Grad(VF x, VF dy) {
    const VF x2 = hn::Mul(x, x);
    const VF s = Share(x, x2);
    const VF slope =
        hn::MulAdd(x2, Const(3 * kTwoRootTwoOverPi * kCubic), Const(kTwoRootTwoOverPi));
    const VF bell = hn::Mul(s, hn::Sub(Const(1), s));
    return hn::Mul(dy, hn::MulAdd(hn::Mul(x, bell), slope, s));
  }
};

// The distribution function of the normal distribution, and its density times the square root of
// 2 pi. Formula 7.1.26 of Abramowitz and Stegun for erf; the error is at most 8e-8.
struct NormalAt {
  VF below, bell;
};

HWY_INLINE NormalAt Normal(VF x) {
  const VF one = Const(1);
  const VF t = hn::Div(one, hn::MulAdd(hn::Abs(x), Const(0.3275911f * 0.70710678f), one));
  const VF bell = Exp(hn::Mul(hn::Mul(x, x), Const(-0.5f)));
  // Half of the coefficients of the formula.
  VF tail = hn::MulAdd(t, Const(0.5307027145f), Const(-0.7265760135f));
  tail = hn::MulAdd(tail, t, Const(0.7107068705f));
  tail = hn::MulAdd(tail, t, Const(-0.142248368f));
  tail = hn::MulAdd(tail, t, Const(0.127414796f));
  tail = hn::Mul(hn::Mul(tail, t), bell);
  return {Where(hn::Lt(x, Const(0)), tail, hn::Sub(one, tail)), bell};
}

struct GeluExact {
  // Infinitely far to the left the product of x and the distribution function is 0.
  static HWY_INLINE VF Value(VF x) {
    return hn::IfThenZeroElse(hn::Lt(x, Const(-20)), hn::Mul(x, Normal(x).below));
  }
  static HWY_INLINE VF Grad(VF x, VF dy) {
    const NormalAt normal = Normal(x);
    const VF density = hn::Mul(normal.bell, Const(0.3989422804f));
    // Beyond 20 the density is 0, whatever x.
    const VF far = hn::IfThenZeroElse(hn::Gt(hn::Abs(x), Const(20)), hn::Mul(x, density));
    return hn::Mul(dy, hn::Add(normal.below, far));
  }
};

struct Silu {
  static HWY_INLINE VF Value(VF x) { return hn::Mul(x, Sigmoid(x)); }
  static HWY_INLINE VF Grad(VF x, VF dy) {
    const VF s = Sigmoid(x);
    return hn::Mul(dy, hn::Mul(s, hn::MulAdd(x, hn::Sub(Const(1), s), Const(1))));
  }
};

struct Logistic {
  static HWY_INLINE VF Value(VF x) { return Sigmoid(x); }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::Mul(dy, hn::NegMulAdd(y, y, y)); }
};

struct Tanh {
  static HWY_INLINE VF Value(VF x) { return Where(hn::IsNaN(x), x, hn::Tanh(DF(), x)); }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::Mul(dy, hn::NegMulAdd(y, y, Const(1))); }
};

struct Exponential {
  static HWY_INLINE VF Value(VF x) { return Exp(x); }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::Mul(dy, y); }
};

struct Expm1 {
  // The library's function serves near 0; elsewhere the difference is exact enough.
  static HWY_INLINE VF Value(VF x) {
    const auto near = hn::Lt(hn::Abs(x), Const(1));
    return Where(near, hn::Expm1(DF(), hn::IfThenElseZero(near, x)), hn::Sub(Exp(x), Const(1)));
  }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::MulAdd(dy, y, dy); }
};

struct Log {
  // The library's function takes finite numbers above 0.
  static HWY_INLINE VF Value(VF x) {
    const VF infinity = Const(std::numeric_limits<float>::infinity());
    const auto plain = hn::And(hn::Gt(x, Const(0)), hn::Lt(x, infinity));
    const VF log = hn::Log(DF(), Where(plain, x, Const(1)));
    const VF other = Where(hn::Lt(x, Const(0)), Const(std::numeric_limits<float>::quiet_NaN()),
                           Where(hn::Eq(x, Const(0)), hn::Neg(infinity), x));
    return Where(plain, log, other);
  }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Div(dy, x); }
};

struct Log1p {
  // Near 0 the library's function serves, which is right there.
  static HWY_INLINE VF Value(VF x) {
    const auto near = hn::Lt(hn::Abs(x), Const(0.5f));
    return Where(near, hn::Log1p(DF(), hn::IfThenElseZero(near, x)),
                 Log::Value(hn::Add(x, Const(1))));
  }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Div(dy, hn::Add(x, Const(1))); }
};

struct Softplus {
  static HWY_INLINE VF Value(VF x) {
    const VF above = hn::Max(x, Const(0));
    return Where(hn::IsNaN(x), x, hn::Add(above, Log1p::Value(Exp(hn::Neg(hn::Abs(x))))));
  }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Mul(dy, Sigmoid(x)); }
};

struct Erf {
  // Near 0, Taylor's series up to x^11; elsewhere the normal distribution at sqrt(2) x, whose error
  // is then small beside the result.
  static HWY_INLINE VF Value(VF x) {
    const VF x2 = hn::Mul(x, x);
    VF series = hn::MulAdd(x2, Const(-0.000854832703f), Const(0.00522397762f));
    series = hn::MulAdd(series, x2, Const(-0.0268661706f));
    series = hn::MulAdd(series, x2, Const(0.112837917f));
    series = hn::MulAdd(series, x2, Const(-0.376126389f));
    series = hn::MulAdd(series, x2, Const(1.12837917f));
    const VF below = Normal(hn::Mul(x, Const(1.41421356f))).below;
    return Where(hn::Lt(hn::Abs(x), Const(0.5f)), hn::Mul(x, series),
                 hn::MulAdd(below, Const(2), Const(-1)));
  }
  static HWY_INLINE VF Grad(VF x, VF dy) {
    return hn::Mul(dy, hn::Mul(Const(1.12837917f), Exp(hn::Neg(hn::Mul(x, x)))));
  }
};

// The library's sine and cosine are right for arguments up to 39,000 in size. A larger argument is
// first brought into one turn. The result then has few digits, as the argument has few digits
// behind the point.
HWY_INLINE VF Reduced(VF x) {
  const VF turn = Const(6.28318530718f);
  const VF far = hn::NegMulAdd(hn::Round(hn::Div(x, turn)), turn, x);
  return Where(hn::Lt(hn::Abs(x), Const(39000)), x, far);
}

struct Sin {
  static HWY_INLINE VF Value(VF x) { return hn::Sin(DF(), Reduced(x)); }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Mul(dy, hn::Cos(DF(), Reduced(x))); }
};

struct Cos {
  static HWY_INLINE VF Value(VF x) { return hn::Cos(DF(), Reduced(x)); }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Neg(hn::Mul(dy, hn::Sin(DF(), Reduced(x)))); }
};

struct Sqrt {
  static HWY_INLINE VF Value(VF x) { return hn::Sqrt(x); }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::Div(hn::Mul(dy, Const(0.5f)), y); }
};

struct Rsqrt {
  static HWY_INLINE VF Value(VF x) { return hn::Div(Const(1), hn::Sqrt(x)); }
  static HWY_INLINE VF Grad(VF y, VF dy) {
    return hn::Mul(hn::Mul(dy, Const(-0.5f)), hn::Mul(y, hn::Mul(y, y)));
  }
};

struct Reciprocal {
  static HWY_INLINE VF Value(VF x) { return hn::Div(Const(1), x); }
  static HWY_INLINE VF Grad(VF y, VF dy) { return hn::Neg(hn::Mul(dy, hn::Mul(y, y))); }
};

struct Square {
  static HWY_INLINE VF Value(VF x) { return hn::Mul(x, x); }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Mul(dy, hn::Add(x, x)); }
};

struct LeakyRelu {
  explicit LeakyRelu(UnaryConstants constants) : slope(constants.first) {}
  HWY_INLINE VF Value(VF x) const { return Grad(x, x); }
  HWY_INLINE VF Grad(VF x, VF dy) const {
    return Where(hn::Gt(x, Const(0)), dy, hn::Mul(dy, Const(slope)));
  }
  const float slope;
};

struct Elu {
  explicit Elu(UnaryConstants constants) : alpha(constants.first) {}
  HWY_INLINE VF Value(VF x) const {
    return Where(hn::Gt(x, Const(0)), x, hn::Mul(Const(alpha), Expm1::Value(x)));
  }
  HWY_INLINE VF Grad(VF x, VF dy) const {
    return Where(hn::Gt(x, Const(0)), dy, hn::Mul(dy, hn::Mul(Const(alpha), Exp(x))));
  }
  const float alpha;
};

struct Clamp {
  explicit Clamp(UnaryConstants constants) : least(constants.first), most(constants.second) {}
  HWY_INLINE VF Value(VF x) const {
    const VF above = Where(hn::Lt(x, Const(least)), Const(least), x);
    return Where(hn::Gt(above, Const(most)), Const(most), above);
  }
  HWY_INLINE VF Grad(VF x, VF dy) const {
    return hn::IfThenZeroElse(hn::Or(hn::Lt(x, Const(least)), hn::Gt(x, Const(most))), dy);
  }
  const float least, most;
};

// A whole exponent up to 64 in size is a product. Another exponent takes the logarithm, whose error
// the exponent multiplies.
struct Power {
  explicit Power(UnaryConstants constants) : exponent(constants.first) {}
  static HWY_INLINE VF Of(VF x, float exponent) {
    const float size = std::abs(exponent);
    if (size > 64 || size != std::floor(size)) return Exp(hn::Mul(Const(exponent), Log::Value(x)));
    VF product = Const(1), square = x;
    for (int rest = static_cast<int>(size); rest > 0; rest /= 2) {
      if (rest % 2 == 1) product = hn::Mul(product, square);
      square = hn::Mul(square, square);
    }
    return exponent < 0 ? hn::Div(Const(1), product) : product;
  }
  HWY_INLINE VF Value(VF x) const { return Of(x, exponent); }
  HWY_INLINE VF Grad(VF x, VF dy) const {
    return hn::Mul(hn::Mul(dy, Const(exponent)), Of(x, exponent - 1));
  }
  const float exponent;
};

struct Sign {
  static HWY_INLINE VF Value(VF x) {
    const auto is_zero_or_nan = hn::Or(hn::Eq(x, Const(0)), hn::IsNaN(x));
    return Where(is_zero_or_nan, x, hn::CopySign(Const(1), x));
  }
};

struct Step {
  static HWY_INLINE VF Value(VF x) { return hn::MulAdd(Sign::Value(x), Const(0.5f), Const(0.5f)); }
};

struct Abs {
  static HWY_INLINE VF Value(VF x) { return hn::Abs(x); }
  static HWY_INLINE VF Grad(VF x, VF dy) { return hn::Mul(dy, Sign::Value(x)); }
};

// Numbers of type f32 from 2^23 on are whole.
struct Floor {
  static HWY_INLINE VF Value(VF x) { return hn::Floor(x); }
};

struct Ceil {
  static HWY_INLINE VF Value(VF x) { return hn::Ceil(x); }
};

struct Round {
  static HWY_INLINE VF Value(VF x) { return hn::Round(x); }
};

}  // namespace HWY_NAMESPACE
}  // namespace weir::kernels
HWY_AFTER_NAMESPACE();

#endif
