// The functions of unary_function.h for one element, a type each: Value(x) is the function, and
// Grad(v, dy) is dy times the derivative. v is the operand that the gradient op reads
// (ops/defs/unary.cc): x, or the result. Functions without a gradient op have no Grad. NaN stays
// NaN. Constants are members.
#pragma once

#include "ops/kernels/cuda/launch.cuh"
#include "ops/kernels/shape/unary_function.h"

namespace weir::kernels::WEIR_CUDA_SPACE {

// A function without constants.
struct NoConstants {
  explicit __host__ __device__ NoConstants(UnaryConstants) {}
};

__device__ inline float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

struct None : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return x; }
};

struct Relu : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return x <= 0 ? 0.0f : x; }
  __device__ float Grad(float y, float dy) const { return y > 0 ? dy : 0.0f; }
};

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct Gelu : NoConstants {
  using NoConstants::NoConstants;
  static constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
  static constexpr float kCubic = 0.044715f;

  __device__ float Share(float x, float x2) const {
    return Sigmoid(x * (x2 * (kTwoRootTwoOverPi * kCubic) + kTwoRootTwoOverPi));
  }
  __device__ float Value(float x) const { return x * Share(x, x * x); }
  __device__ float Grad(float x, float dy) const {
    const float x2 = x * x;
    const float s = Share(x, x2);
    const float slope = x2 * (3 * kTwoRootTwoOverPi * kCubic) + kTwoRootTwoOverPi;
    return dy * (x * (s * (1 - s)) * slope + s);
  }
};

// x times the distribution function of the normal distribution.
struct GeluExact : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Below(float x) const { return 0.5f * erfcf(x * -0.70710678f); }
  // Infinitely far to the left the product of x and the distribution function is 0.
  __device__ float Value(float x) const { return x < -20 ? 0.0f : x * Below(x); }
  __device__ float Grad(float x, float dy) const {
    // Beyond 20 the density is 0, whatever x.
    const float density = 0.3989422804f * expf(-0.5f * x * x);
    return dy * (Below(x) + (fabsf(x) > 20 ? 0.0f : x * density));
  }
};

struct Silu : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return x * Sigmoid(x); }
  __device__ float Grad(float x, float dy) const {
    const float s = Sigmoid(x);
    return dy * (s * (x * (1 - s) + 1));
  }
};

struct Logistic : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return Sigmoid(x); }
  __device__ float Grad(float y, float dy) const { return dy * (y - y * y); }
};

struct Tanh : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return tanhf(x); }
  __device__ float Grad(float y, float dy) const { return dy * (1 - y * y); }
};

struct Softplus : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const {
    return x != x ? x : fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
  }
  __device__ float Grad(float x, float dy) const { return dy * Sigmoid(x); }
};

struct Erf : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return erff(x); }
  __device__ float Grad(float x, float dy) const { return dy * (1.12837917f * expf(-x * x)); }
};

struct Exponential : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return expf(x); }
  __device__ float Grad(float y, float dy) const { return dy * y; }
};

struct Expm1 : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return expm1f(x); }
  __device__ float Grad(float y, float dy) const { return dy * y + dy; }
};

struct Log : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return logf(x); }
  __device__ float Grad(float x, float dy) const { return dy / x; }
};

struct Log1p : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return log1pf(x); }
  __device__ float Grad(float x, float dy) const { return dy / (x + 1); }
};

struct Sin : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return sinf(x); }
  __device__ float Grad(float x, float dy) const { return dy * cosf(x); }
};

struct Cos : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return cosf(x); }
  __device__ float Grad(float x, float dy) const { return -(dy * sinf(x)); }
};

struct Sqrt : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return sqrtf(x); }
  __device__ float Grad(float y, float dy) const { return dy * 0.5f / y; }
};

struct Rsqrt : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return 1 / sqrtf(x); }
  __device__ float Grad(float y, float dy) const { return dy * -0.5f * (y * (y * y)); }
};

struct Reciprocal : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return 1 / x; }
  __device__ float Grad(float y, float dy) const { return -(dy * (y * y)); }
};

struct Square : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return x * x; }
  __device__ float Grad(float x, float dy) const { return dy * (x + x); }
};

struct LeakyRelu {
  explicit LeakyRelu(UnaryConstants constants) : slope(constants.first) {}
  __device__ float Value(float x) const { return Grad(x, x); }
  __device__ float Grad(float x, float dy) const { return x > 0 ? dy : dy * slope; }
  float slope;
};

struct Elu {
  explicit Elu(UnaryConstants constants) : alpha(constants.first) {}
  __device__ float Value(float x) const { return x > 0 ? x : alpha * expm1f(x); }
  __device__ float Grad(float x, float dy) const { return x > 0 ? dy : dy * (alpha * expf(x)); }
  float alpha;
};

struct Clamp {
  explicit Clamp(UnaryConstants constants) : least(constants.first), most(constants.second) {}
  __device__ float Value(float x) const {
    const float above = x < least ? least : x;
    return above > most ? most : above;
  }
  __device__ float Grad(float x, float dy) const { return x < least || x > most ? 0.0f : dy; }
  float least, most;
};

// A whole exponent up to 64 in size is a product.
struct Power {
  explicit Power(UnaryConstants constants) : exponent(constants.first) {}
  __device__ static float Of(float x, float exponent) {
    const float size = fabsf(exponent);
    if (size > 64 || size != floorf(size)) return powf(x, exponent);
    float product = 1, square = x;
    for (int rest = static_cast<int>(size); rest > 0; rest /= 2) {
      if (rest % 2 == 1) product *= square;
      square *= square;
    }
    return exponent < 0 ? 1 / product : product;
  }
  __device__ float Value(float x) const { return Of(x, exponent); }
  __device__ float Grad(float x, float dy) const { return dy * exponent * Of(x, exponent - 1); }
  float exponent;
};

// Zeros keep their sign.
struct Sign : NoConstants {
  using NoConstants::NoConstants;
  __device__ static float Of(float x) { return x == 0 || x != x ? x : copysignf(1, x); }
  __device__ float Value(float x) const { return Of(x); }
};

struct Step : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return x != x ? x : x > 0 ? 1.0f : x < 0 ? 0.0f : 0.5f; }
};

struct Abs : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return fabsf(x); }
  __device__ float Grad(float x, float dy) const { return dy * Sign::Of(x); }
};

struct Floor : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return floorf(x); }
};

struct Ceil : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return ceilf(x); }
};

// Halves go to the even neighbour.
struct Round : NoConstants {
  using NoConstants::NoConstants;
  __device__ float Value(float x) const { return rintf(x); }
};

// Calls f on the host with the function's type, made with the constants.
template <typename F>
void WithUnary(Unary function, UnaryConstants constants, F f) {
  switch (function) {
#define WEIR_UNARY_CASE(id, name, Code, has_grad) \
  case Unary::id: return f(Code(constants));
    WEIR_UNARY_FUNCTIONS(WEIR_UNARY_CASE)
#undef WEIR_UNARY_CASE
  }
}

}  // namespace weir::kernels::WEIR_CUDA_SPACE
