// matmul and the gradient of its weight. The gradient of x is a matmul again.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::StatusOr<std::vector<sbp::TensorType>> InferMatmul(const InferInput& in) {
  int k = in.attrs.Bool("transpose_w") ? 1 : 0;
  OperandCheck check(in, {"x", "w", "bias"});
  check.Real(0).MinRank(0, 1).SameType(1, 0).Rank(1, 2).SameSize(1, k, 0, -1);
  check.SameType(2, 0).Rank(2, 1).SameSize(2, 0, 1, 1 - k);
  WEIR_RETURN_IF_ERROR(check.status());
  WEIR_RETURN_IF_ERROR(CheckChoice("activation", in.attrs.Str("activation", "none"),
                                   {"none", "relu", "gelu", "gelu_exact", "silu"}));
  sbp::TensorType y = in.inputs[0];
  y.dims.back() = check.dim(1, 1 - k);
  return std::vector<sbp::TensorType>{y, y};
}

sbp::FactorRule MatmulRule(const Attributes& attrs, const std::vector<sbp::TensorType>& inputs,
                           const std::vector<sbp::TensorType>& outputs) {
  bool transpose = attrs.Bool("transpose_w");
  RuleBuilder rule(transpose ? "... k, n k, n -> ... n, ... n" : "... k, k n, n -> ... n, ... n",
                   inputs, outputs);
  // Rules of a job that name dimensions of parameters mean the weight's names.
  rule.Named("k", inputs[1].dims[transpose ? 1 : 0].name)
      .Named("n", inputs[1].dims[transpose ? 0 : 1].name);
  rule.Additive(2);
  if (attrs.Str("activation", "none") != "none") return rule.Whole("k").Build();
  if (inputs.size() > 2) return rule.Linear({0, 2}).Linear({1, 2}).Build();
  return rule.Linear({0}).Linear({1}).Build();
}

double MatmulFlops(const Attributes&, const std::vector<sbp::TensorType>& inputs,
                   const std::vector<sbp::TensorType>& outputs) {
  double k = static_cast<double>(inputs[0].dims.back().size);
  return static_cast<double>(outputs[0].num_elements()) * 2.0 * k;
}

// Returns the gradient of the value before the activation; -1 if no gradient flows.
ValueId PreActivationGrad(GradientBuilder& b) {
  ValueId dy = OutputGrad(b, 0);
  std::string activation = b.attrs().Str("activation", "none");
  if (dy >= 0 && activation == "relu") dy = Add1(b, "relu_grad", {b.output(0), dy}, {});
  if (dy >= 0 && activation != "relu" && activation != "none")
    dy = Add1(b, absl::StrCat(activation, "_grad"), {b.output(1), dy}, {});
  ValueId dpre = OutputGrad(b, 1);
  if (dy < 0 || dpre < 0) return dy < 0 ? dpre : dy;
  return Add1(b, "add", {dy, dpre}, {});
}

absl::Status MatmulGradient(GradientBuilder& b) {
  ValueId dpre = PreActivationGrad(b);
  if (dpre < 0) return absl::OkStatus();
  bool transpose = b.attrs().Bool("transpose_w");
  if (b.needs_grad(0)) {
    SetGrad(b, 0, Add1(b, "matmul", {dpre, b.input(1)}, {{"transpose_w", !transpose}}));
  }
  if (b.needs_grad(1)) {
    SetGrad(b, 1,
            Add1(b, "matmul_grad_w", {b.input(0), dpre},
                 {{"transpose_w", transpose},
                  {"out_dtype", std::string("f32")},
                  {"to", DimsText(b.input_type(1).dims)}}));
  }
  if (b.needs_grad(2)) {
    std::vector<int64_t> leading(b.type(dpre).dims.size() - 1);
    std::iota(leading.begin(), leading.end(), 0);
    SetGrad(b, 2, SumOver(b, dpre, leading));
  }
  return absl::OkStatus();
}

OpDef MatmulDef() {
  OpDef def;
  def.schema = {
      .name = "matmul",
      .doc = "y = activation(x w + bias) over the last dimension of x.",
      .inputs = {{.name = "x", .doc = "[..., k]"},
                 {.name = "w", .doc = "[k, n], or [n, k] if transpose_w"},
                 {.name = "bias", .optional = true, .doc = "[n]"}},
      .outputs = {{.name = "y", .doc = "[..., n]; n is the weight's dimension"},
                  {.name = "pre", .optional = true, .doc = "x w + bias, before the activation"}},
      .attrs = {{"transpose_w", AttrKind::kBool, false, "w is [n, k]"},
                {"activation", AttrKind::kString, std::string("none"),
                 "none, relu, gelu, gelu_exact or silu"}},
      .factors =
          "... k, k n, n -> ... n, ... n; k is summed (whole under an activation), bias is added "
          "once; "
          "linear in x and bias, and in w and bias, without an activation"};
  def.infer = InferMatmul;
  def.rule = MatmulRule;
  def.gradient = MatmulGradient;
  def.flops = MatmulFlops;
  return def;
}

absl::StatusOr<std::vector<sbp::TensorType>> InferMatmulGradW(const InferInput& in) {
  OperandCheck check(in, {"x", "dy"});
  check.Real(0).MinRank(0, 1).SameType(1, 0).MinRank(1, 1);
  WEIR_RETURN_IF_ERROR(check.status());
  if (check.dims(0).size() != check.dims(1).size())
    check.Rank(1, static_cast<int>(check.dims(0).size()));
  for (int d = 0; d + 1 < static_cast<int>(check.dims(0).size()); ++d) check.SameSize(1, d, 0, d);
  WEIR_RETURN_IF_ERROR(check.status());
  sbp::TensorType dw;
  WEIR_ASSIGN_OR_RETURN(dw.dtype,
                        RealDType("out_dtype", in.attrs.Str("out_dtype", "f32"), DType::kF32));
  dw.dims = {check.dim(0, -1), check.dim(1, -1)};
  if (in.attrs.Bool("transpose_w")) std::swap(dw.dims[0], dw.dims[1]);
  if (!in.attrs.Str("to").empty()) {
    WEIR_ASSIGN_OR_RETURN(auto named, ParseDims(in.attrs.Str("to"), in.dims));
    if (sbp::TensorType{dw.dtype, named}.shape() != dw.shape()) {
      check.Fail({"W0310", "", "attribute to with the sizes of " + ToText(dw), in.attrs.Str("to"),
                  DimsText(dw.dims)});
      return check.status();
    }
    dw.dims = named;
  }
  return std::vector<sbp::TensorType>{dw};
}

OpDef MatmulGradWDef() {
  OpDef def;
  def.schema = {
      .name = "matmul_grad_w",
      .doc = "dw = x^T dy, summed over all leading dimensions.",
      .inputs = {{.name = "x", .doc = "[..., k]"}, {.name = "dy", .doc = "[..., n]"}},
      .outputs = {{.name = "dw", .doc = "[k, n], or [n, k] if transpose_w"}},
      .attrs = {{"transpose_w", AttrKind::kBool, false, "dw is [n, k]"},
                {"out_dtype", AttrKind::kString, std::string("f32"), "element type of dw"},
                {"to", AttrKind::kString, std::string(),
                 "dimensions of dw (type text); empty: those of x and dy"}},
      .internal = true,
      .factors = "... k, ... n -> k n; leading dimensions are summed; linear in x, and in dy"};
  def.infer = InferMatmulGradW;
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    bool transpose = attrs.Bool("transpose_w");
    RuleBuilder rule(transpose ? "... k, ... n -> n k" : "... k, ... n -> k n", inputs, outputs);
    rule.Named("k", outputs[0].dims[transpose ? 1 : 0].name)
        .Named("n", outputs[0].dims[transpose ? 0 : 1].name);
    return rule.Linear({0}).Linear({1}).Build();
  };
  def.flops = [](const Attributes&, const auto& inputs, const auto&) {
    double n = static_cast<double>(inputs[1].dims.back().size);
    return 2.0 * static_cast<double>(inputs[0].num_elements()) * n;
  };
  return def;
}

WEIR_REGISTER_OP(MatmulDef());
WEIR_REGISTER_OP(MatmulGradWDef());

}  // namespace
}  // namespace weir::ops
