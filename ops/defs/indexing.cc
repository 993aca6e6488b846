// Ops that read and write slices or single elements at the places that indices give, and the sums
// that are their gradients:
//
//   take         y[.., i.., ..] = x[.., ids[i..], ..]     gradient: segment_sum
//   segment_sum  y[.., s, ..] = sum of x[.., i.., ..]      gradient: take
//   gather       y[.., i, ..] = x[.., index[.., i, ..], ..]   gradient: scatter_add
//   scatter_add  y[.., s, ..] = sum of x[.., i, ..]        gradient: gather
//
// where a sum is over the places whose index is s. A shard of the indexed dimension gives zeros, or
// sums, for the indices inside it alone.
#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

using Types = std::vector<sbp::TensorType>;
using Dims = std::vector<sbp::TensorDim>;

AttrSchema AxisAttr(const std::string& doc) { return {"axis", AttrKind::kInt, std::nullopt, doc}; }
AttrSchema ToAttr() {
  return {"to", AttrKind::kString, std::nullopt, "all dimensions of y, items name[=size[/unit]]",
          true};
}
AttrSchema OutDTypeAttr() {
  return {"out_dtype", AttrKind::kString, std::string(), "element type of y; empty: like x"};
}

IndexedAxis Along(IndexedAxis::Side side) {
  return {.side = side, .operand = 0, .axis = IndexedAxis::kAttribute};
}

// Returns `dims` with `middle` in place of the `count` dimensions from `axis` on.
Dims Replaced(const Dims& dims, int64_t axis, size_t count, const Dims& middle) {
  Dims all(dims.begin(), dims.begin() + axis);
  all.insert(all.end(), middle.begin(), middle.end());
  all.insert(all.end(), dims.begin() + axis + static_cast<int64_t>(count), dims.end());
  return all;
}

bool SameSizes(const Dims& a, const Dims& b, int64_t except) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); ++d) {
    if (static_cast<int64_t>(d) != except && a[d].size != b[d].size) return false;
  }
  return true;
}

// Returns the type of the sums, which have the dimensions of the attribute `to`. Apart from the
// dimension `axis`, these must be as long as those of `like`.
absl::StatusOr<Types> InferSums(const InferInput& in, const Dims& like, int64_t axis) {
  WEIR_ASSIGN_OR_RETURN(DType dtype,
                        RealDType("out_dtype", in.attrs.Str("out_dtype"), in.inputs[0].dtype));
  WEIR_ASSIGN_OR_RETURN(Dims dims, ParseDims(in.attrs.Str("to"), in.dims));
  if (!SameSizes(dims, like, axis)) {
    return Rejected(
        {"W0310", "",
         absl::StrCat("attribute to with the sizes of ", ToText(sbp::TensorType{dtype, like}),
                      ", where dimension ", axis, " may have any size"),
         in.attrs.Str("to"), DimsText(like)});
  }
  return Types{sbp::TensorType{dtype, std::move(dims)}};
}

// An IndexedRule builds the factors of the four ops: each dimension of an operand is a factor.
class IndexedRule {
 public:
  IndexedRule(const Types& inputs, const Types& outputs) : inputs_(inputs), outputs_(outputs) {}

  // Adds a factor for each of the dimensions, and returns the list of factors of each.
  std::vector<std::vector<int>> New(const Dims& dims) {
    std::vector<std::vector<int>> lists;
    for (const sbp::TensorDim& dim : dims) {
      lists.push_back({static_cast<int>(rule_.factors.size())});
      rule_.factors.push_back(sbp::Factor{.size = dim.size});
    }
    return lists;
  }

  sbp::FactorRule& rule() { return rule_; }

  sbp::FactorRule Build() {
    if (IsReal(inputs_[0].dtype)) rule_.linear.push_back(ToAllOutputs({0}, 1));
    TakeUnitsAndNames(inputs_, outputs_, &rule_);
    return rule_;
  }

 private:
  const Types& inputs_;
  const Types& outputs_;
  sbp::FactorRule rule_;
};

using Lists = std::vector<std::vector<int>>;

Lists ReplacedLists(const Lists& lists, int64_t axis, size_t count, const Lists& middle) {
  Lists all(lists.begin(), lists.begin() + axis);
  all.insert(all.end(), middle.begin(), middle.end());
  all.insert(all.end(), lists.begin() + axis + static_cast<int64_t>(count), lists.end());
  return all;
}

// Gives x the gradient of an op that reads x at the indices: `sum` of dy at the same indices.
absl::Status SumGradient(GradientBuilder& b, const char* sum) {
  const ValueId dy = OutputGrad(b, 0);
  if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
  SetGrad(b, 0,
          Add1(b, sum, {dy, b.input(1)},
               {{"axis", b.attrs().Int("axis")},
                {"to", DimsText(b.input_type(0).dims)},
                {"out_dtype", std::string("f32")}}));
  return absl::OkStatus();
}

// Gives x the gradient of an op that sums x at the indices: what `read` reads of dy there.
absl::Status ReadGradient(GradientBuilder& b, const char* read) {
  const ValueId dy = OutputGrad(b, 0);
  if (dy < 0 || !b.needs_grad(0)) return absl::OkStatus();
  SetGrad(b, 0, Add1(b, read, {dy, b.input(1)}, {{"axis", b.attrs().Int("axis")}}));
  return absl::OkStatus();
}

// ---- take and segment_sum

absl::StatusOr<Types> InferTake(const InferInput& in) {
  const int64_t axis = in.attrs.Int("axis");
  OperandCheck check(in, {"x", "ids"});
  WEIR_RETURN_IF_ERROR(check.Axis("axis", axis, 0).Is(1, DType::kI32).status());
  return Types{{in.inputs[0].dtype, Replaced(in.inputs[0].dims, axis, 1, in.inputs[1].dims)}};
}

// The sum over shards of x is a sum of real numbers; a shard of integers would lack a merge.
sbp::FactorRule TakeRule(const Attributes& attrs, const Types& inputs, const Types& outputs) {
  const int64_t axis = attrs.Int("axis");
  IndexedRule rule(inputs, outputs);
  const Lists x = rule.New(inputs[0].dims), ids = rule.New(inputs[1].dims);
  rule.rule().factors[axis].whole = !IsReal(inputs[0].dtype);
  rule.rule().inputs = {{x}, {ids}};
  rule.rule().outputs = {{ReplacedLists(x, axis, 1, ids)}};
  return rule.Build();
}

OpDef TakeDef() {
  OpDef def;
  def.schema = {.name = "take",
                .doc = "The slices of x at the places `ids` along one axis.",
                .inputs = {{.name = "x", .doc = "any shape with the axis"},
                           {.name = "ids",
                            .doc = "i32, any shape, places along the axis",
                            .index = Along(IndexedAxis::Side::kInput)}},
                .outputs = {{.name = "y", .doc = "x with the dimensions of ids for the axis"}},
                .attrs = {AxisAttr("axis of x, from 0")},
                .factors =
                    "... v ..., i... -> ... i... ...; v is summed (a shard of x gives zeros "
                    "for ids outside it), or whole for integers and masks; linear in x",
                .moves_elements = true};
  def.infer = InferTake;
  def.rule = TakeRule;
  def.gradient = [](GradientBuilder& b) { return SumGradient(b, "segment_sum"); };
  def.flops = NoFlops();
  return def;
}

absl::StatusOr<Types> InferSegmentSum(const InferInput& in) {
  const int64_t axis = in.attrs.Int("axis");
  OperandCheck check(in, {"x", "ids"});
  const size_t count = in.inputs[1].dims.size();
  const int64_t last = static_cast<int64_t>(in.inputs[0].dims.size()) - static_cast<int64_t>(count);
  check.Real(0).Is(1, DType::kI32).MinRank(0, static_cast<int>(count));
  if (axis < 0 || axis > last) {
    check.Fail({"W0310", "",
                absl::StrCat("axis from 0 to ", last, ", so that x ", ToText(in.inputs[0]),
                             " has all dimensions of ids ", ToText(in.inputs[1])),
                absl::StrCat(axis), "axis: 0"});
  }
  for (size_t d = 0; check.status().ok() && d < count; ++d)
    check.SameSize(1, static_cast<int>(d), 0, static_cast<int>(axis) + static_cast<int>(d));
  WEIR_RETURN_IF_ERROR(check.status());
  return InferSums(in, Replaced(in.inputs[0].dims, axis, count, {sbp::TensorDim{"segments", 1, 1}}),
                   axis);
}

sbp::FactorRule SegmentSumRule(const Attributes& attrs, const Types& inputs, const Types& outputs) {
  const int64_t axis = attrs.Int("axis");
  const size_t count = inputs[1].dims.size();
  IndexedRule rule(inputs, outputs);
  const Lists x = rule.New(inputs[0].dims), segments = rule.New({outputs[0].dims[axis]});
  const Lists ids(x.begin() + axis, x.begin() + axis + static_cast<int64_t>(count));
  rule.rule().inputs = {{x}, {ids}};
  rule.rule().outputs = {{ReplacedLists(x, axis, count, segments)}};
  return rule.Build();
}

OpDef SegmentSumDef() {
  OpDef def;
  def.schema = {
      .name = "segment_sum",
      .doc =
          "For each segment s, the sum of the slices of x whose id is s, in their order. The ids "
          "need not be sorted; a segment without a slice is 0.",
      .inputs = {{.name = "x", .doc = "any shape with the dimensions of ids from the axis on"},
                 {.name = "ids",
                  .doc = "i32, any shape, segments of the slices",
                  .index = Along(IndexedAxis::Side::kOutput)}},
      .outputs = {{.name = "y", .doc = "x with one dimension, the segments, for those of ids"}},
      .attrs = {AxisAttr("first axis of x that ids has, and the axis of the segments in y"),
                ToAttr(), OutDTypeAttr()},
      .factors =
          "... i... ..., i... -> ... s ...; i is summed (a shard of y has the sums of its "
          "segments); linear in x"};
  def.infer = InferSegmentSum;
  def.rule = SegmentSumRule;
  def.gradient = [](GradientBuilder& b) { return ReadGradient(b, "take"); };
  def.flops = FlopsPerInput(1);
  return def;
}

// ---- gather and scatter_add

absl::StatusOr<Types> InferGather(const InferInput& in) {
  const int64_t axis = in.attrs.Int("axis");
  OperandCheck check(in, {"x", "index"});
  check.Is(1, DType::kI32)
      .Axis("axis", axis, 0)
      .Rank(1, static_cast<int>(in.inputs[0].dims.size()));
  WEIR_RETURN_IF_ERROR(check.status());
  for (size_t d = 0; d < in.inputs[0].dims.size(); ++d) {
    if (static_cast<int64_t>(d) != axis)
      check.SameSize(1, static_cast<int>(d), 0, static_cast<int>(d));
  }
  WEIR_RETURN_IF_ERROR(check.status());
  return Types{
      {in.inputs[0].dtype, Replaced(in.inputs[0].dims, axis, 1, {in.inputs[1].dims[axis]})}};
}

sbp::FactorRule GatherRule(const Attributes& attrs, const Types& inputs, const Types& outputs) {
  const int64_t axis = attrs.Int("axis");
  IndexedRule rule(inputs, outputs);
  const Lists x = rule.New(inputs[0].dims), places = rule.New({inputs[1].dims[axis]});
  const Lists index = ReplacedLists(x, axis, 1, places);
  rule.rule().factors[axis].whole = !IsReal(inputs[0].dtype);
  rule.rule().inputs = {{x}, {index}};
  rule.rule().outputs = {{index}};
  return rule.Build();
}

OpDef GatherDef() {
  OpDef def;
  def.schema = {.name = "gather",
                .doc =
                    "For each place of index, the element of x at that place, but along one axis "
                    "at the index that stands there.",
                .inputs = {{.name = "x", .doc = "any shape with the axis"},
                           {.name = "index",
                            .doc = "i32, like x except along the axis; places along the axis of x",
                            .index = Along(IndexedAxis::Side::kInput)}},
                .outputs = {{.name = "y", .doc = "the shape of index"}},
                .attrs = {AxisAttr("axis of x, from 0")},
                .factors =
                    "... v ..., ... i ... -> ... i ...; v is summed (a shard of x gives zeros "
                    "for an index outside it), or whole for integers and masks; linear in x",
                .moves_elements = true};
  def.infer = InferGather;
  def.rule = GatherRule;
  def.gradient = [](GradientBuilder& b) { return SumGradient(b, "scatter_add"); };
  def.flops = NoFlops();
  return def;
}

absl::StatusOr<Types> InferScatterAdd(const InferInput& in) {
  const int64_t axis = in.attrs.Int("axis");
  OperandCheck check(in, {"x", "index"});
  check.Real(0).Is(1, DType::kI32).Axis("axis", axis, 0).SameShape(1, 0);
  WEIR_RETURN_IF_ERROR(check.status());
  return InferSums(in, in.inputs[0].dims, axis);
}

sbp::FactorRule ScatterAddRule(const Attributes& attrs, const Types& inputs, const Types& outputs) {
  const int64_t axis = attrs.Int("axis");
  IndexedRule rule(inputs, outputs);
  const Lists x = rule.New(inputs[0].dims), segments = rule.New({outputs[0].dims[axis]});
  rule.rule().inputs = {{x}, {x}};
  rule.rule().outputs = {{ReplacedLists(x, axis, 1, segments)}};
  return rule.Build();
}

OpDef ScatterAddDef() {
  OpDef def;
  def.schema = {
      .name = "scatter_add",
      .doc =
          "Zeros, to which each element of x is added at its own place, but along one axis at the "
          "index that stands there. Elements of one place are added in their order.",
      .inputs = {{.name = "x", .doc = "any shape with the axis"},
                 {.name = "index",
                  .doc = "i32, shaped like x; places along the axis of y",
                  .index = Along(IndexedAxis::Side::kOutput)}},
      .outputs = {{.name = "y", .doc = "like x, of any size along the axis"}},
      .attrs = {AxisAttr("axis of x and y, from 0"), ToAttr(), OutDTypeAttr()},
      .factors =
          "... i ..., ... i ... -> ... s ...; i is summed (a shard of y has the sums of its "
          "places); linear in x"};
  def.infer = InferScatterAdd;
  def.rule = ScatterAddRule;
  def.gradient = [](GradientBuilder& b) { return ReadGradient(b, "gather"); };
  def.flops = FlopsPerInput(1);
  return def;
}

// ---- one_hot

OpDef OneHotDef() {
  OpDef def;
  def.schema = {
      .name = "one_hot",
      .doc = "y[..., v] = 1 where ids[...] is v, and 0 elsewhere.",
      .inputs = {{.name = "ids",
                  .doc = "i32[...], places along the last dimension of y",
                  .index =
                      IndexedAxis{.side = IndexedAxis::Side::kOutput, .operand = 0, .axis = -1}}},
      .outputs = {{.name = "y", .doc = "[..., v]"}},
      .attrs = {ToAttr(),
                {"out_dtype", AttrKind::kString, std::string(),
                 "element type of y; empty: f32, or the type of the precision of the job"}},
      .factors = "... -> ... v"};
  def.infer = [](const InferInput& in) -> absl::StatusOr<Types> {
    OperandCheck check(in, {"ids"});
    WEIR_RETURN_IF_ERROR(check.Is(0, DType::kI32).status());
    WEIR_ASSIGN_OR_RETURN(DType dtype,
                          RealDType("out_dtype", in.attrs.Str("out_dtype"), DType::kF32));
    WEIR_ASSIGN_OR_RETURN(Dims dims, ParseDims(in.attrs.Str("to"), in.dims));
    Dims leading = dims;
    if (!leading.empty()) leading.pop_back();
    if (dims.size() != in.inputs[0].dims.size() + 1 || !SameSizes(leading, in.inputs[0].dims, -1)) {
      return Rejected({"W0310", "",
                       absl::StrCat("attribute to with the dimensions of ids ",
                                    ToText(in.inputs[0]), " and one more, the classes"),
                       in.attrs.Str("to"),
                       absl::StrCat(DimsText(in.inputs[0].dims),
                                    in.inputs[0].dims.empty() ? "" : ", ", "classes=10")});
    }
    return Types{{dtype, std::move(dims)}};
  };
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    return RuleBuilder("... -> ... v", inputs, outputs).Build();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(TakeDef());
WEIR_REGISTER_OP(SegmentSumDef());
WEIR_REGISTER_OP(GatherDef());
WEIR_REGISTER_OP(ScatterAddDef());
WEIR_REGISTER_OP(OneHotDef());

}  // namespace
}  // namespace weir::ops
