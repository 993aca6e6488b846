// rotary is the rotary position embedding. Its gradient is the opposite rotation.
#include "absl/strings/str_cat.h"
#include "ops/defs/at_positions.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

OpDef RotaryDef() {
  OpDef def;
  def.schema = {.name = "rotary",
                .doc = "Rotates the pairs (i, i + d/2) of each head by position * base^(-2 i / d).",
                .inputs = {{.name = "x", .doc = "[b, s, h, d], d even"},
                           {.name = "positions",
                            .optional = true,
                            .doc = "i32[b, s], the position of each element; absent: 0, 1, 2, …"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .attrs = {{"base", AttrKind::kReal, 10000.0, "base of the frequencies, above 0"},
                          {"inverse", AttrKind::kBool, false, "rotate backwards"}},
                .factors = "b s h d, b s -> b s h d; d is whole; linear in x"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"x", "positions"});
    WEIR_RETURN_IF_ERROR(check.Real(0).Rank(0, 4).status());
    if (check.Has(1)) check.Is(1, DType::kI32).Rank(1, 2).SameSize(1, 0, 0, 0).SameSize(1, 1, 0, 1);
    const sbp::TensorDim& d = check.dim(0, 3);
    if (d.size % 2 != 0) {
      check.Fail({"W0308", "", absl::StrCat("an even last dimension of x, ", d.name),
                  absl::StrCat(d.name, "=", d.size), absl::StrCat(d.name, "=", d.size + 1)});
    }
    if (!(in.attrs.Real("base", 10000.0) > 0)) {
      check.Fail({"W0310", "", "base above 0", absl::StrCat(in.attrs.Real("base")), "base: 10000"});
    }
    WEIR_RETURN_IF_ERROR(check.status());
    return std::vector<sbp::TensorType>{in.inputs[0]};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("b s h d, b s -> b s h d", inputs, outputs).Whole("d").Linear({0}).Build();
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) {
      std::vector<ValueId> inputs = {dy};
      if (b.num_inputs() > 1) inputs.push_back(b.input(1));
      SetGrad(b, 0,
              Add1(b, "rotary", inputs,
                   {{"base", b.attrs().Real("base", 10000.0)},
                    {"inverse", !b.attrs().Bool("inverse")}}));
    }
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(3);
  return def;
}

WEIR_REGISTER_OP(RotaryDef());
WEIR_REGISTER_AT_POSITIONS(rotary, {.op = "rotary"});

}  // namespace
}  // namespace weir::ops
