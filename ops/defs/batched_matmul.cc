// batched_matmul, the product of two tensors of matrices. The gradients are products of the same
// kind.
#include "absl/strings/str_cat.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

// Returns the axes of the rows and of the columns of an operand, counted from the end.
struct MatrixAxes {
  explicit MatrixAxes(bool transposed) : rows(transposed ? -1 : -2), columns(-3 - rows) {}
  int rows, columns;
};

absl::StatusOr<std::vector<sbp::TensorType>> InferBatchedMatmul(const InferInput& in) {
  OperandCheck check(in, {"a", "b"});
  WEIR_RETURN_IF_ERROR(check.Real(0).MinRank(0, 2).SameType(1, 0).MinRank(1, 2).status());
  const int rank = static_cast<int>(check.dims(0).size());
  check.Rank(1, rank);
  for (int d = 0; d + 2 < rank; ++d) check.SameSize(1, d, 0, d);
  const MatrixAxes a(in.attrs.Bool("transpose_a")), b(in.attrs.Bool("transpose_b"));
  WEIR_RETURN_IF_ERROR(check.SameSize(1, b.rows, 0, a.columns).status());
  sbp::TensorType y{in.inputs[0].dtype, {in.inputs[0].dims.begin(), in.inputs[0].dims.end() - 2}};
  y.dims.push_back(check.dim(0, a.rows));
  y.dims.push_back(check.dim(1, b.columns));
  return std::vector<sbp::TensorType>{y};
}

ValueId Product(GradientBuilder& g, ValueId a, bool transpose_a, ValueId b, bool transpose_b) {
  return Add1(g, "batched_matmul", {a, b},
              {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

// With A and B as the op reads them: dA = dy B^T and dB = A^T dy. An operand that is stored
// transposed has the transposed gradient.
absl::Status BatchedMatmulGradient(GradientBuilder& g) {
  const ValueId dy = OutputGrad(g, 0);
  if (dy < 0) return absl::OkStatus();
  const bool ta = g.attrs().Bool("transpose_a"), tb = g.attrs().Bool("transpose_b");
  if (g.needs_grad(0)) {
    const ValueId b = g.input(1);
    SetGrad(g, 0, ta ? Product(g, b, tb, dy, true) : Product(g, dy, false, b, !tb));
  }
  if (g.needs_grad(1)) {
    const ValueId a = g.input(0);
    SetGrad(g, 1, tb ? Product(g, dy, true, a, ta) : Product(g, a, !ta, dy, false));
  }
  return absl::OkStatus();
}

OpDef BatchedMatmulDef() {
  OpDef def;
  def.schema = {.name = "batched_matmul",
                .doc = "y = a b for each pair of matrices in the last two dimensions.",
                .inputs = {{.name = "a", .doc = "[..., m, k], or [..., k, m] if transpose_a"},
                           {.name = "b",
                            .doc = "[..., k, n], or [..., n, k] if transpose_b; the leading sizes "
                                   "are those of a"}},
                .outputs = {{.name = "y", .doc = "[..., m, n]"}},
                .attrs = {{"transpose_a", AttrKind::kBool, false, "a is [..., k, m]"},
                          {"transpose_b", AttrKind::kBool, false, "b is [..., n, k]"}},
                .factors = "... m k, ... k n -> ... m n; k is summed; linear in a, and in b"};
  def.infer = InferBatchedMatmul;
  def.rule = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    return RuleBuilder(
               absl::StrCat(attrs.Bool("transpose_a") ? "... k m, " : "... m k, ",
                            attrs.Bool("transpose_b") ? "... n k" : "... k n", " -> ... m n"),
               inputs, outputs)
        .Linear({0})
        .Linear({1})
        .Build();
  };
  def.gradient = BatchedMatmulGradient;
  def.flops = [](const Attributes& attrs, const auto& inputs, const auto& outputs) {
    const auto& a = inputs[0].dims;
    const int64_t k = a[a.size() - (attrs.Bool("transpose_a") ? 2 : 1)].size;
    return 2.0 * static_cast<double>(k) * static_cast<double>(outputs[0].num_elements());
  };
  return def;
}

WEIR_REGISTER_OP(BatchedMatmulDef());

}  // namespace
}  // namespace weir::ops
