// The ops that compute each element of y from one element of x, a row of kFunctions each. A row
// gives the op and its gradient op "<name>_grad". The kernels of the rows are in
// ops/kernels/cpu/unary-inl.h and ops/kernels/cuda/unary_functions.cuh.
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

// The operand from which the gradient op computes the derivative. A gradient that reads the result
// costs less memory, because the next op mostly keeps the result anyway.
enum class Reads : uint8_t {
  kInput,
  kResult,
  kNothing,  // the derivative is 0 wherever it exists, and there is no gradient op
};

// A real attribute of an op and of its gradient op.
struct Constant {
  const char* name = nullptr;  // null: there is none
  const char* doc = nullptr;
  std::optional<double> fallback;  // none: required
};

struct Function {
  const char* name;
  const char* formula;  // "y = ..."
  Reads reads;
  double flops;       // per element, of the op
  double grad_flops;  // per element, of the gradient op
  Constant first = {}, second = {};
};

constexpr double kLargest = std::numeric_limits<float>::max();

constexpr Function kFunctions[] = {
    {"relu", "y = max(x, 0)", Reads::kResult, 1, 1},
    {"gelu", "y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))", Reads::kInput, 10, 18},
    {"gelu_exact", "y = x / 2 * (1 + erf(x / sqrt(2)))", Reads::kInput, 16, 19},
    {"silu", "y = x / (1 + exp(-x))", Reads::kInput, 5, 8},
    {"sigmoid", "y = 1 / (1 + exp(-x))", Reads::kResult, 4, 3},
    {"tanh", "y = tanh(x)", Reads::kResult, 8, 3},
    {"softplus", "y = log(1 + exp(x))", Reads::kInput, 10, 5},
    {"erf", "y = erf(x)", Reads::kInput, 14, 6},
    {"exp", "y = e^x", Reads::kResult, 3, 1},
    {"expm1", "y = e^x - 1, exact near 0", Reads::kResult, 5, 2},
    {"log", "y = the natural logarithm of x", Reads::kInput, 5, 1},
    {"log1p", "y = log(1 + x), exact near 0", Reads::kInput, 6, 2},
    {"sin", "y = sin(x), x in radians", Reads::kInput, 8, 9},
    {"cos", "y = cos(x), x in radians", Reads::kInput, 8, 9},
    {"sqrt", "y = the square root of x", Reads::kResult, 1, 2},
    {"rsqrt", "y = 1 / sqrt(x)", Reads::kResult, 2, 4},
    {"reciprocal", "y = 1 / x", Reads::kResult, 1, 3},
    {"square", "y = x^2", Reads::kInput, 1, 2},
    {"abs", "y = |x|", Reads::kInput, 1, 2},
    {"leaky_relu",
     "y = x where x is above 0, else slope * x",
     Reads::kInput,
     2,
     2,
     {"slope", "factor of the part below 0", 0.01}},
    {"elu",
     "y = x where x is above 0, else alpha * (e^x - 1)",
     Reads::kInput,
     6,
     5,
     {"alpha", "factor of the part below 0", 1.0}},
    {"clamp",
     "y = x within the bounds, else the nearer bound",
     Reads::kInput,
     2,
     3,
     {"min", "lower bound; without the attribute, the least number of type f32", -kLargest},
     {"max", "upper bound; without the attribute, the largest number of type f32", kLargest}},
    {"power",
     "y = x^exponent, for a constant exponent",
     Reads::kInput,
     9,
     11,
     {"exponent", "any number; x must not be below 0 unless the exponent is whole", std::nullopt}},
    {"sign", "y = -1, 0 or 1, the sign of x", Reads::kNothing, 1, 0},
    {"step", "y = 0 where x is below 0, 1/2 where x is 0, and 1 where x is above 0",
     Reads::kNothing, 2, 0},
    {"floor", "y = the largest whole number that is not above x", Reads::kNothing, 1, 0},
    {"ceil", "y = the smallest whole number that is not below x", Reads::kNothing, 1, 0},
    {"round", "y = the whole number nearest to x, of two equally near ones the even one",
     Reads::kNothing, 1, 0},
};

std::vector<AttrSchema> AttrsOf(const Function& function) {
  std::vector<AttrSchema> attrs;
  for (const Constant& constant : {function.first, function.second}) {
    if (constant.name == nullptr) continue;
    std::optional<AttrValue> fallback;
    if (constant.fallback.has_value()) fallback = *constant.fallback;
    attrs.push_back({constant.name, AttrKind::kReal, fallback, constant.doc});
  }
  return attrs;
}

std::string GradName(const Function& function) { return absl::StrCat(function.name, "_grad"); }

OpDef UnaryDef(const Function& function) {
  OpDef def;
  def.schema = {.name = function.name,
                .doc = absl::StrCat(function.formula, ", element by element."),
                .inputs = {{.name = "x", .doc = "any shape"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .attrs = AttrsOf(function),
                .factors = "... -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x"});
    WEIR_RETURN_IF_ERROR(check.Real(0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ...", inputs, outputs).Build();
  };
  def.gradient = [&function](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
    if (function.reads == Reads::kNothing) {
      SetGrad(b, 0, Add1(b, "scale", {dy}, {{"factor", 0.0}}));
      return absl::OkStatus();
    }
    const ValueId read = function.reads == Reads::kInput ? b.input(0) : b.output(0);
    SetGrad(b, 0, Add1(b, GradName(function), {read, dy}, b.attrs()));
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(function.flops);
  return def;
}

OpDef UnaryGradDef(const Function& function) {
  const bool reads_input = function.reads == Reads::kInput;
  const std::string read = reads_input ? "x" : "y";
  OpDef def;
  def.schema = {
      .name = GradName(function),
      .doc = absl::StrCat("dx = dy times the derivative of ", function.name, " at x."),
      .inputs = {{.name = read,
                  .doc = absl::StrCat(reads_input ? "input" : "result", " of ", function.name)},
                 {.name = "dy", .doc = absl::StrCat("like ", read)}},
      .outputs = {{.name = "dx", .doc = absl::StrCat("like ", read)}},
      .attrs = AttrsOf(function),
      .internal = true,
      .factors = "..., ... -> ...; linear in dy"};
  def.infer = [read](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {read, "dy"});
    WEIR_RETURN_IF_ERROR(check.Real(0).SameType(1, 0).SameShape(1, 0).status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ... -> ...", inputs, outputs).Linear({1}).Build();
  };
  def.flops = FlopsPerOutput(function.grad_flops);
  return def;
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Function& function : kFunctions) {
    OpRegistry::Register(UnaryDef(function));
    if (function.reads != Reads::kNothing) OpRegistry::Register(UnaryGradDef(function));
  }
  return true;
}();

}  // namespace
}  // namespace weir::ops
