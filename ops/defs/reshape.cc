// reshape gives the same elements, row-major, other dimensions. Its rule finds the factors whose
// products make both shapes: [b, s, 64] -> [b, s, 4, 16] has the factors b, s, 4, 16.
#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "ops/defs/flops.h"
#include "ops/defs/gradient_steps.h"
#include "ops/defs/operand_check.h"
#include "ops/defs/rule_builder.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"

namespace weir::ops {
namespace {

absl::StatusOr<std::vector<sbp::TensorType>> InferReshape(const InferInput& in) {
  const sbp::TensorType& x = in.inputs[0];
  WEIR_ASSIGN_OR_RETURN(auto dims, ParseDims(in.attrs.Str("to"), in.dims));
  sbp::TensorType y{x.dtype, std::move(dims)};
  if (y.num_elements() == x.num_elements()) return std::vector<sbp::TensorType>{y};
  return Rejected(
      {"W0308", "",
       absl::StrCat("as many elements in `to` as in x ", ToText(x), ", ", x.num_elements()),
       absl::StrCat(y.num_elements(), " in ", ToText(y)),
       absl::StrCat("sizes in `to` whose product is ", x.num_elements(), ", such as name=size/1")});
}

// Pairs dimensions of one shape with those of the other, from the first on. A run is the shortest
// stretch of both shapes with equal products. In a run, factors are cut off from the minor side as
// long as one remainder divides the other. A run that does not divide is never split.
class FactorMatcher {
 public:
  FactorMatcher(const std::vector<sbp::TensorDim>& x, const std::vector<sbp::TensorDim>& y)
      : x_(x), y_(y) {
    in_.dims.resize(x.size());
    out_.dims.resize(y.size());
    Match();
  }

  sbp::FactorRule Rule(const std::vector<sbp::TensorType>& inputs,
                       const std::vector<sbp::TensorType>& outputs) {
    rule_.inputs = {in_};
    rule_.outputs = {out_};
    TakeUnitsAndNames(inputs, outputs, &rule_);
    NameParts();
    return rule_;
  }

 private:
  int NewFactor(int64_t size) {
    rule_.factors.push_back(sbp::Factor{.size = size});
    return static_cast<int>(rule_.factors.size()) - 1;
  }

  void Match() {
    size_t i = 0, j = 0;
    while (i < x_.size() || j < y_.size()) {
      bool x_one = i < x_.size() && x_[i].size == 1, y_one = j < y_.size() && y_[j].size == 1;
      if (x_one && y_one && x_[i].name == y_[j].name) {
        Share(i++, j++, 1);
      } else if (x_one) {
        ++i;  // of no factor
      } else if (y_one) {
        ++j;
      } else if (i < x_.size() && j < y_.size()) {
        MatchRun(&i, &j);
      } else {
        return;  // sizes disagree: inference has refused that
      }
    }
  }

  void Share(size_t i, size_t j, int64_t size) {
    int factor = NewFactor(size);
    in_.dims[i].push_back(factor);
    out_.dims[j].push_back(factor);
  }

  void MatchRun(size_t* i, size_t* j) {
    size_t i_end = *i + 1, j_end = *j + 1;
    int64_t px = x_[*i].size, py = y_[*j].size;
    while (px != py) {
      if (px < py && i_end < x_.size())
        px *= x_[i_end++].size;
      else if (py < px && j_end < y_.size())
        py *= y_[j_end++].size;
      else
        return Opaque(i, j, x_.size(), y_.size());
    }
    // The walk starts at the minor end; each step cuts off the smaller remainder if it divides the
    // larger.
    size_t a = i_end - 1, b = j_end - 1;
    int64_t ra = x_[a].size, rb = y_[b].size;
    std::vector<std::tuple<size_t, size_t, int64_t>> parts;
    while (true) {
      int64_t part = std::min(ra, rb);
      if (part < 1 || ra % part != 0 || rb % part != 0) return Opaque(i, j, i_end, j_end);
      parts.emplace_back(a, b, part);
      ra /= part;
      rb /= part;
      if (a == *i && b == *j && ra == 1 && rb == 1) break;
      if (ra == 1 && a > *i) ra = x_[--a].size;
      if (rb == 1 && b > *j) rb = y_[--b].size;
    }
    for (auto it = parts.rbegin(); it != parts.rend(); ++it) {
      if (std::get<2>(*it) > 1) Share(std::get<0>(*it), std::get<1>(*it), std::get<2>(*it));
    }
    *i = i_end;
    *j = j_end;
  }

  void Opaque(size_t* i, size_t* j, size_t i_end, size_t j_end) {
    for (; *i < i_end; ++*i) in_.dims[*i].push_back(OwnWhole(x_[*i].size));
    for (; *j < j_end; ++*j) out_.dims[*j].push_back(OwnWhole(y_[*j].size));
  }

  int OwnWhole(int64_t size) {
    int factor = NewFactor(size);
    rule_.factors[factor].whole = true;
    return factor;
  }

  // A factor that is not a whole dimension takes the name of the dimension whose major part it is.
  void NameParts() {
    auto name = [&](const std::vector<sbp::TensorDim>& dims, const sbp::OperandRule& operand) {
      for (size_t d = 0; d < dims.size(); ++d) {
        if (operand.dims[d].empty()) continue;
        std::string& text = rule_.factors[operand.dims[d][0]].name;
        if (text.empty()) text = dims[d].name;
      }
    };
    name(x_, in_);
    name(y_, out_);
    for (sbp::Factor& factor : rule_.factors) {
      if (factor.name.empty()) factor.name = "part";
    }
  }

  const std::vector<sbp::TensorDim>& x_;
  const std::vector<sbp::TensorDim>& y_;
  sbp::OperandRule in_, out_;
  sbp::FactorRule rule_;
};

OpDef ReshapeDef() {
  OpDef def;
  def.schema = {
      .name = "reshape",
      .doc = "The elements of x in row-major order under the dimensions of `to`.",
      .inputs = {{.name = "x", .doc = "any shape"}},
      .outputs = {{.name = "y", .doc = "the dimensions of `to`"}},
      .attrs = {{"to", AttrKind::kString, std::nullopt,
                 "items name[=size[/unit]] or name*name, such as \"batch, sequence, heads=4/1, "
                 "head_dim=16\"",
                 true}},
      .factors = "the common parts of both shapes, such as b s (h d) -> b s h d; linear in x",
      .moves_elements = true};
  def.infer = InferReshape;
  def.rule = [](const Attributes&, const auto& inputs, const auto& outputs) {
    sbp::FactorRule rule = FactorMatcher(inputs[0].dims, outputs[0].dims).Rule(inputs, outputs);
    if (IsReal(inputs[0].dtype)) rule.linear.push_back(ToAllOutputs({0}, 1));
    return rule;
  };
  def.gradient = [](GradientBuilder& b) {
    ValueId dy = OutputGrad(b, 0);
    if (dy >= 0 && b.needs_grad(0)) {
      b.SetInputGrad(0, Add1(b, "reshape", {dy}, {{"to", DimsText(b.input_type(0).dims)}}));
    }
    return absl::OkStatus();
  };
  def.flops = NoFlops();
  return def;
}

WEIR_REGISTER_OP(ReshapeDef());

}  // namespace
}  // namespace weir::ops
