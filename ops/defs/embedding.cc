// embedding and the gradient of its table.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::Status EmbeddingGradient(GradientBuilder& b) {
  ValueId dy = OutputGrad(b, 0);
  if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
  const sbp::TensorDim vocab = b.input_type(0).dims[0];
  SetGrad(b, 0,
          Add1(b, "embedding_grad", {b.input(1), dy},
               {{"vocab", vocab.size},
                {"vocab_dim", vocab.name},
                {"vocab_unit", vocab.unit},
                {"out_dtype", std::string("f32")}}));
  return absl::OkStatus();
}

OpDef EmbeddingDef() {
  OpDef def;
  def.schema = {
      .name = "embedding",
      .doc = "y[..., :] = table[ids[...], :].",
      .inputs = {{.name = "table", .doc = "[v, h]"},
                 {.name = "ids",
                  .doc = "i32[...], rows of the table",
                  .index = IndexedAxis{.operand = 0, .axis = 0}}},
      .outputs = {{.name = "y", .doc = "[..., h]"}},
      .factors =
          "v h, ... -> ... h; v is summed (a shard of the table gives zeros for ids outside it); "
          "linear in table"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"table", "ids"});
    WEIR_RETURN_IF_ERROR(check.Real(0).Rank(0, 2).Is(1, DType::kI32).status());
    sbp::TensorType y{in.inputs[0].dtype, in.inputs[1].dims};
    y.dims.push_back(check.dim(0, 1));
    return std::vector<sbp::TensorType>{y};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("v h, ... -> ... h", inputs, outputs).Linear({0}).Build();
  };
  def.gradient = EmbeddingGradient;
  def.flops = NoFlops();
  return def;
}

OpDef EmbeddingGradDef() {
  OpDef def;
  def.schema = {
      .name = "embedding_grad",
      .doc = "dtable[i, :] = sum of dy[..., :] where ids is i, in the order of the samples.",
      .inputs = {{.name = "ids",
                  .doc = "i32[...], rows of dtable",
                  .index =
                      IndexedAxis{.side = IndexedAxis::Side::kOutput, .operand = 0, .axis = 0}},
                 {.name = "dy", .doc = "[..., h]"}},
      .outputs = {{.name = "dtable", .doc = "[v, h]"}},
      .attrs = {{"vocab", AttrKind::kInt, std::nullopt, "rows of the table"},
                {"vocab_dim", AttrKind::kString, std::nullopt, "name of its first dimension"},
                {"vocab_unit", AttrKind::kInt, int64_t{1}, "unit of its first dimension"},
                {"out_dtype", AttrKind::kString, std::string("f32"), "element type of dtable"}},
      .internal = true,
      .factors = "..., ... h -> v h; leading dimensions are summed; linear in dy"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<std::vector<sbp::TensorType>> {
    OperandCheck check(in, {"ids", "dy"});
    check.Is(0, DType::kI32).Real(1).MinRank(1, 1).LeadingShape(0, 1, 1);
    sbp::TensorDim vocab{in.attrs.Str("vocab_dim"), in.attrs.Int("vocab"),
                         in.attrs.Int("vocab_unit", 1)};
    if (vocab.size < 1 || vocab.unit < 1 || vocab.size % vocab.unit != 0) {
      check.Fail({"W0310", "", "vocab to be a positive multiple of vocab_unit",
                  absl::StrCat("vocab ", vocab.size, ", vocab_unit ", vocab.unit),
                  "vocab_unit: 1"});
    }
    WEIR_RETURN_IF_ERROR(check.status());
    WEIR_ASSIGN_OR_RETURN(DType dtype,
                          RealDType("out_dtype", in.attrs.Str("out_dtype", "f32"), DType::kF32));
    return std::vector<sbp::TensorType>{sbp::TensorType{dtype, {vocab, check.dim(1, -1)}}};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("..., ... h -> v h", inputs, outputs).Linear({1}).Build();
  };
  def.flops = FlopsPerInput(1);
  return def;
}

WEIR_REGISTER_OP(EmbeddingDef());
WEIR_REGISTER_OP(EmbeddingGradDef());

}  // namespace
}  // namespace weir::ops
