// reduce_variance and normalize, and their gradients. Together with reduce_mean they are batch
// normalisation and group normalisation: mean and variance are tensors of the graph, so those of a
// batch that is split come from the sums of all shards.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/axis_rule.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

using Types = std::vector<sbp::TensorType>;

AttrSchema AxesAttr() {
  return {"axes", AttrKind::kInts, std::nullopt, "axes of x that mean and variance lack, from 0"};
}

// Returns the type of a statistic of x: x without `axes`, in f32. W0310 unless axes exist, are
// named once and are at least one.
absl::StatusOr<sbp::TensorType> StatisticOf(const sbp::TensorType& x,
                                            const std::vector<int64_t>& axes) {
  std::vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  const int64_t rank = static_cast<int64_t>(x.dims.size());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= rank ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Rejected({"W0310", "", absl::StrCat("axes of x ", ToText(x), ", from 0, each once"),
                     absl::StrCat("[", absl::StrJoin(axes, ", "), "]"), "axes: [0]"});
  }
  sbp::TensorType statistic{DType::kF32, {}};
  for (int64_t d = 0; d < rank; ++d) {
    if (!std::binary_search(sorted.begin(), sorted.end(), d)) statistic.dims.push_back(x.dims[d]);
  }
  return statistic;
}

// Checks that the operands `which` have the shape of a statistic of x, operand 0.
absl::StatusOr<sbp::TensorType> CheckStatistics(const InferInput& in, OperandCheck* check,
                                                const std::vector<int>& which) {
  WEIR_RETURN_IF_ERROR(check->Real(0).status());
  WEIR_ASSIGN_OR_RETURN(const sbp::TensorType statistic,
                        StatisticOf(in.inputs[0], in.attrs.Ints("axes")));
  for (int i : which) {
    if (!check->Has(i)) continue;
    WEIR_RETURN_IF_ERROR(check->Real(i).status());
    if (in.inputs[i].shape() != statistic.shape()) {
      return Rejected(
          {"W0308", "",
           absl::StrCat("a mean, a variance and factors shaped like x without the axes, ",
                        ToText(statistic)),
           ToText(in.inputs[i]), ""});
    }
  }
  return statistic;
}

// Returns the rule with one factor per dimension of x, linear in the input `linear`.
sbp::FactorRule Rule(const Attributes& attrs, const Types& inputs, const Types& outputs,
                     int linear) {
  sbp::FactorRule rule = LackingAxesRule(inputs, outputs, inputs[0], attrs.Ints("axes"));
  if (linear >= 0) rule.linear.push_back(ToAllOutputs({linear}, outputs.size()));
  return rule;
}

// Returns n / (n - 1), where n elements of x have one mean; 1 if n is 1.
double UnbiasedFactor(const GradientBuilder& b) {
  double n = 1;
  for (int64_t axis : b.attrs().Ints("axes"))
    n *= static_cast<double>(b.input_type(0).dims[static_cast<size_t>(axis)].size);
  return n > 1 ? n / (n - 1) : 1;
}

OpDef ReduceVarianceDef() {
  OpDef def;
  def.schema = {.name = "reduce_variance",
                .doc =
                    "Mean of (x - mean)^2 over the axes; a shard divides by the count of the "
                    "whole tensor.",
                .inputs = {{.name = "x", .doc = "any shape"},
                           {.name = "mean", .doc = "x without the axes, as reduce_mean gives it"}},
                .outputs = {{.name = "variance", .doc = "f32, x without the axes"},
                            {.name = "unbiased",
                             .optional = true,
                             .doc = "f32, variance * n / (n - 1), where n elements of x have one "
                                    "mean; variance if n is 1"}},
                .attrs = {AxesAttr()},
                .factors =
                    "..., what remains -> what remains, what remains; reduced axes are "
                    "merged by sum"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x", "mean"});
    WEIR_ASSIGN_OR_RETURN(const sbp::TensorType variance, CheckStatistics(in, &check, {1}));
    return Types{variance, variance};
  };
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    return Rule(attrs, inputs, outputs, -1);
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dv = OutputGrad(b, 0);
    if (const ValueId unbiased = OutputGrad(b, 1); unbiased >= 0) {
      const ValueId part = Add1(b, "scale", {unbiased}, {{"factor", UnbiasedFactor(b)}});
      dv = dv < 0 ? part : Add1(b, "add", {dv, part}, {});
    }
    if (dv < 0 || !(b.needs_grad(0) || b.needs_grad(1))) return absl::OkStatus();
    const std::vector<ValueId> grads = b.Add("reduce_variance_grad", {b.input(0), b.input(1), dv},
                                             {{"axes", b.attrs().Ints("axes")}});
    if (b.needs_grad(0)) SetGrad(b, 0, grads[0]);
    if (b.needs_grad(1)) SetGrad(b, 1, grads[1]);
    return absl::OkStatus();
  };
  def.flops = FlopsPerInput(3);
  return def;
}

OpDef ReduceVarianceGradDef() {
  OpDef def;
  def.schema = {.name = "reduce_variance_grad",
                .doc = "Gradients of reduce_variance.",
                .inputs = {{.name = "x", .doc = "any shape"},
                           {.name = "mean", .doc = "x without the axes"},
                           {.name = "dvariance", .doc = "x without the axes"}},
                .outputs = {{.name = "dx", .doc = "like x"},
                            {.name = "dmean", .doc = "f32, x without the axes"}},
                .attrs = {AxesAttr()},
                .internal = true,
                .factors =
                    "..., what remains, what remains -> ..., what remains; reduced axes are "
                    "summed into dmean; linear in dvariance"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x", "mean", "dvariance"});
    WEIR_ASSIGN_OR_RETURN(const sbp::TensorType statistic, CheckStatistics(in, &check, {1, 2}));
    return Types{in.inputs[0], statistic};
  };
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    return Rule(attrs, inputs, outputs, 2);
  };
  def.flops = FlopsPerInput(3);
  return def;
}

OpDef NormalizeDef() {
  OpDef def;
  def.schema = {.name = "normalize",
                .doc =
                    "y = (x - mean) / sqrt(variance + epsilon) * gamma + beta with operands that "
                    "repeat along the axes.",
                .inputs = {{.name = "x", .doc = "any shape"},
                           {.name = "mean", .doc = "x without the axes"},
                           {.name = "variance", .doc = "x without the axes"},
                           {.name = "gamma", .optional = true, .doc = "x without the axes"},
                           {.name = "beta", .optional = true, .doc = "x without the axes"}},
                .outputs = {{.name = "y", .doc = "like x"}},
                .attrs = {AxesAttr(), {"epsilon", AttrKind::kReal, 1e-5, "added to the variance"}},
                .factors = "..., what remains, what remains, what remains, what remains -> ..."};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x", "mean", "variance", "gamma", "beta"});
    WEIR_RETURN_IF_ERROR(CheckStatistics(in, &check, {1, 2, 3, 4}).status());
    WEIR_RETURN_IF_ERROR(CheckNotNegative(in.attrs, "epsilon"));
    return Types{in.inputs[0]};
  };
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    return Rule(attrs, inputs, outputs, -1);
  };
  def.gradient = [](GradientBuilder& b) {
    const ValueId dy = OutputGrad(b, 0);
    bool wanted = false;
    for (int i = 0; i < 5; ++i) wanted = wanted || b.needs_grad(i);
    if (dy < 0 || !wanted) return absl::OkStatus();
    std::vector<ValueId> operands = {b.input(0), b.input(1), b.input(2), dy};
    if (b.num_inputs() > 3) operands.push_back(b.input(3));
    const std::vector<ValueId> grads =
        b.Add("normalize_grad", operands,
              {{"axes", b.attrs().Ints("axes")}, {"epsilon", b.attrs().Real("epsilon", 1e-5)}});
    for (int i = 0; i < 5; ++i) {
      if (b.needs_grad(i)) SetGrad(b, i, grads[i]);
    }
    return absl::OkStatus();
  };
  def.flops = FlopsPerOutput(4);
  return def;
}

OpDef NormalizeGradDef() {
  OpDef def;
  def.schema = {.name = "normalize_grad",
                .doc = "Gradients of normalize.",
                .inputs = {{.name = "x", .doc = "any shape"},
                           {.name = "mean", .doc = "x without the axes"},
                           {.name = "variance", .doc = "x without the axes"},
                           {.name = "dy", .doc = "like x"},
                           {.name = "gamma", .optional = true, .doc = "x without the axes"}},
                .outputs = {{.name = "dx", .doc = "like x"},
                            {.name = "dmean", .doc = "f32, x without the axes"},
                            {.name = "dvariance", .doc = "f32, x without the axes"},
                            {.name = "dgamma", .doc = "f32, x without the axes"},
                            {.name = "dbeta", .doc = "f32, x without the axes"}},
                .attrs = {AxesAttr(), {"epsilon", AttrKind::kReal, 1e-5, "added to the variance"}},
                .internal = true,
                .factors =
                    "..., what remains, what remains, ..., what remains -> ..., what remains "
                    "(4 times); reduced axes are summed into all but dx; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"x", "mean", "variance", "dy", "gamma"});
    WEIR_ASSIGN_OR_RETURN(const sbp::TensorType statistic, CheckStatistics(in, &check, {1, 2, 4}));
    WEIR_RETURN_IF_ERROR(check.SameType(3, 0).SameShape(3, 0).status());
    return Types{in.inputs[0], statistic, statistic, statistic, statistic};
  };
  def.rule = [](const Attributes& attrs, const Types& inputs, const Types& outputs) {
    return Rule(attrs, inputs, outputs, 3);
  };
  def.flops = FlopsPerInput(6);
  return def;
}

WEIR_REGISTER_OP(ReduceVarianceDef());
WEIR_REGISTER_OP(ReduceVarianceGradDef());
WEIR_REGISTER_OP(NormalizeDef());
WEIR_REGISTER_OP(NormalizeGradDef());

}  // namespace
}  // namespace weir::ops
