// The ops that compute each element of y from one element of a and one of b: add, sub, mul, div,
// maximum and minimum. The operands are aligned at their last dimensions, and an operand repeats
// along each dimension that it lacks or in which its size is 1.
#include "absl/strings/str_cat.h"
#include "ops/defs/broadcast.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"

namespace weir::ops {
namespace {

absl::StatusOr<std::vector<sbp::TensorType>> InferBinary(const InferInput& in) {
  OperandCheck check(in, {"a", "b"});
  return InferBroadcast(in, check.Real(0).SameType(1, 0), in.inputs[0].dtype);
}

enum class Linear : uint8_t { kTogether, kEach, kFirst, kNot };

// Adds the nodes that compute dy times the derivative by operand i, in the shape of the result.
using Partial = ValueId (*)(GradientBuilder& b, int i, ValueId dy);

struct Function {
  const char* name;
  const char* formula;
  Linear linear;
  double sign_of_b;  // a factor of the derivative by b, applied to the sum
  Partial partial;
};

// Returns dy where operand i is the larger (`sign` 1) or the smaller one (-1), half of dy where
// both are equal, and 0 elsewhere.
ValueId Chosen(GradientBuilder& b, int i, ValueId dy, int sign) {
  const ValueId own = b.input(i), other = b.input(1 - i);
  const ValueId lead = Add1(b, "sub", {sign > 0 ? own : other, sign > 0 ? other : own}, {});
  return Add1(b, "mul", {dy, Add1(b, "step", {lead}, {})}, {});
}

constexpr Function kFunctions[] = {
    {"add", "y = a + b", Linear::kTogether, 1,
     [](GradientBuilder&, int, ValueId dy) { return dy; }},
    {"sub", "y = a - b", Linear::kTogether, -1,
     [](GradientBuilder&, int, ValueId dy) { return dy; }},
    {"mul", "y = a * b", Linear::kEach, 1,
     [](GradientBuilder& b, int i, ValueId dy) {
       return Add1(b, "mul", {dy, b.input(1 - i)}, {});
     }},
    {"div", "y = a / b", Linear::kFirst, -1,
     [](GradientBuilder& b, int i, ValueId dy) {
       const ValueId by_b = Add1(b, "div", {dy, b.input(1)}, {});
       return i == 0 ? by_b : Add1(b, "mul", {by_b, b.output(0)}, {});
     }},
    {"maximum", "y = the larger of a and b", Linear::kNot, 1,
     [](GradientBuilder& b, int i, ValueId dy) { return Chosen(b, i, dy, 1); }},
    {"minimum", "y = the smaller of a and b", Linear::kNot, 1,
     [](GradientBuilder& b, int i, ValueId dy) { return Chosen(b, i, dy, -1); }},
};

const char* LinearText(Linear linear) {
  switch (linear) {
    case Linear::kTogether: return "; linear in a and b together";
    case Linear::kEach: return "; linear in a, and in b";
    case Linear::kFirst: return "; linear in a";
    case Linear::kNot: break;
  }
  return "";
}

std::vector<sbp::LinearGroup> GroupsOf(Linear linear) {
  switch (linear) {
    case Linear::kTogether: return {ToAllOutputs({0, 1}, 1)};
    case Linear::kEach: return {ToAllOutputs({0}, 1), ToAllOutputs({1}, 1)};
    case Linear::kFirst: return {ToAllOutputs({0}, 1)};
    case Linear::kNot: break;
  }
  return {};
}

OpDef BinaryDef(const Function& function) {
  OpDef def;
  def.schema = {
      .name = function.name,
      .doc = absl::StrCat(function.formula, ", element by element."),
      .inputs = {{.name = "a", .doc = "any shape"},
                 {.name = "b",
                  .doc = "aligned with a at the last dimensions: equal names and sizes, or a size "
                         "of 1 or a missing dimension, along which that operand repeats"}},
      .outputs = {{.name = "y", .doc = "the dimensions of both"}},
      .factors = absl::StrCat("..., ... -> ..., without those along which an operand repeats",
                              LinearText(function.linear))};
  def.infer = InferBinary;
  def.rule = [linear = function.linear](const Attributes& attrs, const auto& inputs,
                                        const auto& outputs) {
    sbp::FactorRule rule = BroadcastRule(attrs, inputs, outputs);
    rule.linear = GroupsOf(linear);
    return rule;
  };
  def.gradient = [&function](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    if (dy < 0) return absl::OkStatus();
    for (int i : {0, 1}) {
      if (!b.needs_grad(i)) continue;
      SetRepeatedGrad(b, i, function.partial(b, i, dy), i == 0 ? 1 : function.sign_of_b);
    }
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(1);
  return def;
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const Function& function : kFunctions) OpRegistry::Register(BinaryDef(function));
  return true;
}();

}  // namespace
}  // namespace weir::ops
