// The functions of one element that stand alone as ops or, some of them, follow a matmul.
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weir::kernels {

// Lists the functions: the enumerator, the name of the op, the type with the code (of that name in
// each device's kernels), and whether there is a gradient op.
#define WEIR_UNARY_FUNCTIONS(ROW)                  \
  ROW(kNone, "none", None, false)                  \
  ROW(kRelu, "relu", Relu, true)                   \
  ROW(kGelu, "gelu", Gelu, true)                   \
  ROW(kGeluExact, "gelu_exact", GeluExact, true)   \
  ROW(kSilu, "silu", Silu, true)                   \
  ROW(kSigmoid, "sigmoid", Logistic, true)         \
  ROW(kTanh, "tanh", Tanh, true)                   \
  ROW(kSoftplus, "softplus", Softplus, true)       \
  ROW(kErf, "erf", Erf, true)                      \
  ROW(kExp, "exp", Exponential, true)              \
  ROW(kExpm1, "expm1", Expm1, true)                \
  ROW(kLog, "log", Log, true)                      \
  ROW(kLog1p, "log1p", Log1p, true)                \
  ROW(kSin, "sin", Sin, true)                      \
  ROW(kCos, "cos", Cos, true)                      \
  ROW(kSqrt, "sqrt", Sqrt, true)                   \
  ROW(kRsqrt, "rsqrt", Rsqrt, true)                \
  ROW(kReciprocal, "reciprocal", Reciprocal, true) \
  ROW(kSquare, "square", Square, true)             \
  ROW(kAbs, "abs", Abs, true)                      \
  ROW(kLeakyRelu, "leaky_relu", LeakyRelu, true)   \
  ROW(kElu, "elu", Elu, true)                      \
  ROW(kClamp, "clamp", Clamp, true)                \
  ROW(kPower, "power", Power, true)                \
  ROW(kSign, "sign", Sign, false)                  \
  ROW(kStep, "step", Step, false)                  \
  ROW(kFloor, "floor", Floor, false)               \
  ROW(kCeil, "ceil", Ceil, false)                  \
  ROW(kRound, "round", Round, false)

#define WEIR_UNARY_ENUMERATOR(id, name, Code, has_grad) id,
enum class Unary : uint8_t { WEIR_UNARY_FUNCTIONS(WEIR_UNARY_ENUMERATOR) };
#undef WEIR_UNARY_ENUMERATOR

// The constants of a function: its attributes, in the order of ops/defs/unary.cc. Most functions
// have none.
struct UnaryConstants {
  float first = 0, second = 0;
};

// Returns the function with this name; "none" is the identity. nullopt: there is none.
std::optional<Unary> UnaryFromName(const std::string& name);

}  // namespace weir::kernels
