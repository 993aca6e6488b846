#include "sbp/factor_rule.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"

namespace weir::sbp {
namespace {

// Returns the dimension of `operand` whose major factor is `factor`, or -1.
int MajorDim(const OperandRule& operand, int factor) {
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (!operand.dims[d].empty() && operand.dims[d][0] == factor) return static_cast<int>(d);
  }
  return -1;
}

// A Standing counts the places of `factor` in one operand.
struct Standing {
  int majors = 0;
  int minors = 0;
};

Standing StandingIn(const OperandRule& operand, int factor) {
  Standing standing;
  for (const std::vector<int>& dim : operand.dims) {
    for (size_t i = 0; i < dim.size(); ++i) {
      if (dim[i] == factor) ++(i == 0 ? standing.majors : standing.minors);
    }
  }
  return standing;
}

int NumLacking(const std::vector<OperandRule>& operands, int factor) {
  return static_cast<int>(
      std::count_if(operands.begin(), operands.end(),
                    [&](const OperandRule& operand) { return MajorDim(operand, factor) < 0; }));
}

AxisSignature SplitSignature(const FactorRule& rule, int factor) {
  const Combiner combiner = rule.factors[factor].combiner;
  const bool summed_away = NumLacking(rule.outputs, factor) > 0;
  AxisSignature signature;
  signature.factor = factor;
  for (const OperandRule& input : rule.inputs) {
    int dim = MajorDim(input, factor);
    if (dim >= 0) {
      signature.inputs.push_back(Sbp::S(dim));
    } else {
      signature.inputs.push_back(input.additive && summed_away ? Sbp::P(Combiner::kSum) : Sbp::B());
    }
  }
  for (const OperandRule& output : rule.outputs) {
    int dim = MajorDim(output, factor);
    signature.outputs.push_back(dim >= 0 ? Sbp::S(dim) : Sbp::P(combiner));
  }
  return signature;
}

AxisSignature BroadcastSignature(const FactorRule& rule) {
  AxisSignature signature;
  signature.inputs.assign(rule.inputs.size(), Sbp::B());
  signature.outputs.assign(rule.outputs.size(), Sbp::B());
  return signature;
}

int64_t MinorProduct(const FactorRule& rule, const std::vector<int>& dim_factors) {
  int64_t product = 1;
  for (size_t i = 1; i < dim_factors.size(); ++i) product *= rule.factors[dim_factors[i]].size;
  return product;
}

// Returns whether the units of `dim` begin on units of its major factor.
bool CutsOnFactorUnits(const FactorRule& rule, const std::vector<int>& dim_factors,
                       const TensorDim& dim) {
  int64_t step = DimUnit(rule, dim_factors);
  return dim.unit >= 1 && step >= 1 && dim.unit % step == 0 && dim.size % dim.unit == 0;
}

std::string OperandName(const char* side, size_t index, const TensorDim& dim) {
  return absl::StrCat(side, " ", index, ", dimension ", dim.name);
}

// "heads=32/8"
std::string SizeText(const TensorDim& dim, int64_t unit) {
  return absl::StrCat(dim.name, "=", dim.size, "/", unit);
}

absl::Status CheckSizes(const FactorRule& rule, const std::vector<OperandRule>& operands,
                        const std::vector<TensorType>& types, const char* side) {
  if (operands.size() != types.size()) {
    return Rejected({"W0230", absl::StrCat(side, "s"),
                     absl::StrCat(operands.size(), " operands, as the rule has"),
                     absl::StrCat(types.size()), ""});
  }
  for (size_t i = 0; i < types.size(); ++i) {
    const std::vector<std::vector<int>>& dims = operands[i].dims;
    if (dims.size() != types[i].dims.size()) {
      return Rejected({"W0230", absl::StrCat(side, " ", i),
                       absl::StrCat(dims.size(), " dimensions, as the rule has"), ToText(types[i]),
                       ""});
    }
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t size = 1;
      for (int factor : dims[d]) size *= rule.factors[factor].size;
      if (size != types[i].dims[d].size) {
        return Rejected({"W0231", OperandName(side, i, types[i].dims[d]),
                         absl::StrCat("size ", size, ", the product of its factors"),
                         absl::StrCat(types[i].dims[d].size), ""});
      }
    }
  }
  return absl::OkStatus();
}

// Units holds the number of units of the first dimension seen with a factor; the other dimensions
// must match.
struct Units {
  std::optional<int64_t> count;
  const char* side = "";
  size_t index = 0;
  const TensorDim* dim = nullptr;
};

absl::Status CheckFactorUnits(const FactorRule& rule, int factor,
                              const std::vector<OperandRule>& operands,
                              const std::vector<TensorType>& types, const char* side,
                              Units* units) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < operands[i].dims.size(); ++d) {
      const std::vector<int>& dim_factors = operands[i].dims[d];
      if (dim_factors.empty() || dim_factors[0] != factor) continue;
      const TensorDim& dim = types[i].dims[d];
      if (!CutsOnFactorUnits(rule, dim_factors, dim)) {
        int64_t unit = DimUnit(rule, dim_factors);
        return Rejected({"W0232", OperandName(side, i, dim),
                         absl::StrCat("a unit that ", unit, " divides"), SizeText(dim, dim.unit),
                         SizeText(dim, unit)});
      }
      int64_t count = dim.size / dim.unit;
      if (!units->count.has_value()) *units = Units{count, side, i, &dim};
      if (*units->count != count) {
        bool divides = *units->count > 0 && dim.size % *units->count == 0;
        return Rejected({"W0232", OperandName(side, i, dim),
                         absl::StrCat(*units->count, " units, as ",
                                      OperandName(units->side, units->index, *units->dim), " has"),
                         SizeText(dim, dim.unit),
                         divides ? SizeText(dim, dim.size / *units->count) : ""});
      }
    }
  }
  return absl::OkStatus();
}

std::string JoinText(const std::vector<Sbp>& list) {
  return absl::StrJoin(list, ", ",
                       [](std::string* out, const Sbp& sbp) { out->append(ToText(sbp)); });
}

std::vector<Layout> JoinSide(const std::vector<AxisSignature>& per_mesh_axis,
                             const std::vector<Sbp> AxisSignature::*side) {
  std::vector<Layout> layouts;
  for (const AxisSignature& signature : per_mesh_axis) {
    const std::vector<Sbp>& list = signature.*side;
    layouts.resize(std::max(layouts.size(), list.size()));
    for (size_t i = 0; i < list.size(); ++i) layouts[i].push_back(list[i]);
  }
  return layouts;
}

}  // namespace

std::string AxisSignature::ToText() const {
  return absl::StrCat(JoinText(inputs), " -> ", JoinText(outputs));
}

bool IsSplittable(const FactorRule& rule, int factor) {
  if (rule.factors[factor].whole) return false;
  bool stands = false;
  for (const std::vector<OperandRule>* side : {&rule.inputs, &rule.outputs}) {
    for (const OperandRule& operand : *side) {
      Standing standing = StandingIn(operand, factor);
      if (standing.minors > 0 || standing.majors > 1) return false;
      stands = stands || standing.majors == 1;
    }
  }
  if (!stands) return false;
  // An input is added once to outputs. If the factor is summed away, the input becomes P(sum),
  // which is wrong for an output that keeps the factor and for a combiner other than the sum.
  const int lacking = NumLacking(rule.outputs, factor);
  for (const OperandRule& input : rule.inputs) {
    if (!input.additive || MajorDim(input, factor) >= 0 || lacking == 0) continue;
    if (lacking < static_cast<int>(rule.outputs.size())) return false;
    if (rule.factors[factor].combiner != Combiner::kSum) return false;
  }
  return true;
}

std::vector<AxisSignature> LegalSignatures(const FactorRule& rule) {
  std::vector<AxisSignature> signatures = {BroadcastSignature(rule)};
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    int factor = static_cast<int>(f);
    if (IsSplittable(rule, factor)) signatures.push_back(SplitSignature(rule, factor));
  }
  for (size_t g = 0; g < rule.linear.size(); ++g) {
    AxisSignature signature = BroadcastSignature(rule);
    signature.linear = static_cast<int>(g);
    for (int input : rule.linear[g].inputs) signature.inputs[input] = Sbp::P(Combiner::kSum);
    for (int output : rule.linear[g].outputs) signature.outputs[output] = Sbp::P(Combiner::kSum);
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

int64_t DimUnit(const FactorRule& rule, const std::vector<int>& dim_factors) {
  return dim_factors.empty() ? 1
                             : rule.factors[dim_factors[0]].unit * MinorProduct(rule, dim_factors);
}

bool UnitsAgree(const FactorRule& rule, int factor, const std::vector<TensorType>& inputs,
                const std::vector<TensorType>& outputs) {
  Units units;
  return CheckFactorUnits(rule, factor, rule.inputs, inputs, "input", &units).ok() &&
         CheckFactorUnits(rule, factor, rule.outputs, outputs, "output", &units).ok();
}

absl::Status CheckUnits(const FactorRule& rule, const std::vector<TensorType>& inputs,
                        const std::vector<TensorType>& outputs) {
  WEIR_RETURN_IF_ERROR(CheckSizes(rule, rule.inputs, inputs, "input"));
  WEIR_RETURN_IF_ERROR(CheckSizes(rule, rule.outputs, outputs, "output"));
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    int factor = static_cast<int>(f);
    if (!IsSplittable(rule, factor)) continue;
    Units units;
    WEIR_RETURN_IF_ERROR(CheckFactorUnits(rule, factor, rule.inputs, inputs, "input", &units));
    WEIR_RETURN_IF_ERROR(CheckFactorUnits(rule, factor, rule.outputs, outputs, "output", &units));
  }
  return absl::OkStatus();
}

Signature Join(const std::vector<AxisSignature>& per_mesh_axis) {
  return Signature{JoinSide(per_mesh_axis, &AxisSignature::inputs),
                   JoinSide(per_mesh_axis, &AxisSignature::outputs)};
}

}  // namespace weir::sbp
