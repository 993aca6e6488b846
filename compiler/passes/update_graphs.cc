#include "compiler/passes/update_graphs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ops/defs/type_text.h"
#include "runtime/base/schedule.h"

namespace weir::compiler {
namespace {

using ops::ValueId;
using TypeAndLayout = std::pair<sbp::TensorType, sbp::Layout>;

// The coefficients of the iteration of Newton and Schulz: x becomes a x + b (x x^T) x +
// c (x x^T)^2 x, which moves all singular values towards 1 within a few rounds.
constexpr double kNewtonA = 3.4445, kNewtonB = -4.7750, kNewtonC = 2.0315;

const sbp::TensorType& Scalar() {
  static const auto* const kType = new sbp::TensorType{DType::kF32, {}};
  return *kType;
}

// Returns the type without dimension `d`.
sbp::TensorType Without(sbp::TensorType type, int d) {
  type.dims.erase(type.dims.begin() + d);
  return type;
}

// Returns the layout of a sum over dimension `d` of a tensor.
sbp::Layout SummedOver(sbp::Layout layout, int d) {
  for (sbp::Sbp& sbp : layout) {
    if (!sbp.is_split()) continue;
    if (sbp.axis == d) {
      sbp = sbp::Sbp::P();
    } else if (sbp.axis > d) {
      --sbp.axis;
    }
  }
  return layout;
}

sbp::Layout Merged(sbp::Layout layout) {
  for (sbp::Sbp& sbp : layout) {
    if (sbp.is_partial()) sbp = sbp::Sbp::B();
  }
  return layout;
}

sbp::Layout WithSplits(sbp::Layout layout, int d) {
  for (sbp::Sbp& sbp : layout) {
    if (sbp.is_split()) sbp = sbp::Sbp::S(d);
  }
  return layout;
}

// A FlatWeight is a weight as a matrix: of its first dimension by all others, in their order.
class FlatWeight {
 public:
  explicit FlatWeight(const sbp::TensorType& weight) : matrix_(weight) {
    if (weight.dims.size() == 2) return;
    // The units of the columns are those of the first dimension that has more than one element: a
    // split of either is a split of the other.
    sbp::TensorDim columns{"columns", 1, 1};
    for (size_t d = 1; d < weight.dims.size(); ++d) {
      const sbp::TensorDim& dim = weight.dims[d];
      if (columns.size == 1) {
        major_ = static_cast<int>(d);
        columns.unit = dim.unit;
      } else {
        columns.unit *= dim.size;
      }
      columns.size *= dim.size;
    }
    matrix_.dims = {weight.dims[0], columns};
  }

  const sbp::TensorType& matrix() const { return matrix_; }
  int64_t rows() const { return matrix_.dims[0].size; }
  int64_t columns() const { return matrix_.dims[1].size; }
  // Returns the dimension of the weight whose split is a split of dimension `d` of the matrix.
  int DimOf(int d) const { return d == 0 ? 0 : major_; }

 private:
  sbp::TensorType matrix_;
  int major_ = 1;
};

class UpdateGraph {
 public:
  UpdateGraph(const LogicalPlan& plan, const Variable& variable, ValueId gradient, ValueId scale,
              ValueId weight, FunctionBuilder* builder)
      : plan_(plan),
        variable_(variable),
        gradient_(gradient),
        scale_(scale),
        weight_(weight),
        builder_(*builder),
        whole_(sbp::Broadcast(plan.stage_mesh)),
        slot_(variable.type, variable.layout) {
    plan.updates.ToAttributes(&updates_);
    LearningRateSchedule rates = plan.settings.training.learning_rates;
    if (variable.group >= 0) {
      const double factor = plan.settings.training.groups[variable.group].rate;
      rates.learning_rate *= factor;
      rates.min_learning_rate *= factor;
    }
    rates_ = updates_;
    rates.ToAttributes(&rates_);
  }

  ValueId Add(const SgdSettings& sgd) {
    Attributes attrs = rates_;
    attrs.Set("momentum", sgd.momentum);
    attrs.Set("weight_decay", Decay(sgd.weight_decay));
    if (sgd.momentum == 0) return builder_.Emit("sgd", {gradient_, scale_}, {slot_}, attrs)[0];
    return InPlace("sgd", attrs, {"momentum"});
  }

  ValueId Add(const AdamWSettings& adamw) {
    Attributes attrs = rates_;
    attrs.Set("beta1", adamw.beta1);
    attrs.Set("beta2", adamw.beta2);
    attrs.Set("epsilon", adamw.epsilon);
    attrs.Set("weight_decay", Decay(adamw.weight_decay));
    return InPlace("adamw", attrs, {"adam_m", "adam_v"});
  }

  ValueId Add(const LionSettings& lion) {
    Attributes attrs = rates_;
    attrs.Set("beta1", lion.beta1);
    attrs.Set("beta2", lion.beta2);
    attrs.Set("weight_decay", Decay(lion.weight_decay));
    return InPlace("lion", attrs, {"lion_momentum"});
  }

  ValueId Add(const LambSettings& lamb) {
    Attributes attrs = updates_;
    attrs.Set("beta1", lamb.beta1);
    attrs.Set("beta2", lamb.beta2);
    attrs.Set("epsilon", lamb.epsilon);
    attrs.Set("weight_decay", Decay(lamb.weight_decay));
    const std::vector<ValueId> out =
        builder_.Emit("adam_direction", {gradient_, scale_, weight_}, {slot_, slot_, slot_}, attrs);
    builder_.MarkState(out[1], "lamb_m");
    builder_.MarkState(out[2], "lamb_v");
    Attributes step = rates_;
    step.Set("by", std::string("lamb"));
    return StepByNorms(out[0], step);
  }

  ValueId Add(const AdafactorSettings& adafactor) {
    Attributes attrs{{"epsilon1", adafactor.epsilon1}};
    std::vector<ValueId> operands = {gradient_, scale_};
    const int rank = static_cast<int>(variable_.type.dims.size());
    const ValueId squares = builder_.Emit("mul", {gradient_, gradient_}, {slot_}, {})[0];
    if (rank < 2) {
      operands.push_back(Moment(adafactor, squares, slot_, 1, "adafactor_v"));
    } else {
      const TypeAndLayout rows = SumOver(squares, slot_, rank - 1);
      operands.push_back(Moment(adafactor, sum_, rows, SizeOf(rank - 1), "adafactor_rows"));
      const ValueId of_rows = operands.back();
      const TypeAndLayout columns = SumOver(squares, slot_, rank - 2);
      operands.push_back(Moment(adafactor, sum_, columns, SizeOf(rank - 2), "adafactor_columns"));
      SumOver(of_rows, rows, rank - 2);
      operands.push_back(sum_);
      attrs.Set("count", static_cast<double>(SizeOf(rank - 2)));
    }
    const ValueId direction = builder_.Emit("adafactor_direction", operands, {slot_}, attrs)[0];
    Attributes step = rates_;
    step.Set("by", std::string("adafactor"));
    step.Set("count", static_cast<double>(variable_.type.num_elements()));
    step.Set("epsilon2", adafactor.epsilon2);
    step.Set("clip_threshold", adafactor.clip_threshold);
    step.Set("weight_decay", Decay(adafactor.weight_decay));
    return StepByNorms(direction, step);
  }

  ValueId Add(const MuonSettings& muon) {
    const size_t rank = variable_.type.dims.size();
    if (rank < 2 || (rank > 2 && !muon.flattens)) return Add(muon.others);
    const FlatWeight flat(variable_.type);
    Attributes attrs = updates_;
    attrs.Set("momentum", muon.momentum);
    attrs.Set("nesterov", muon.nesterov);
    const std::vector<ValueId> out =
        builder_.Emit("momentum_direction", {gradient_, scale_}, {slot_, slot_}, attrs);
    builder_.MarkState(out[1], "muon_momentum");
    const ValueId direction = Orthogonal(muon, flat, out[0]);
    const auto rows = static_cast<double>(flat.rows()),
               columns = static_cast<double>(flat.columns());
    Attributes step = rates_;
    step.Set("by", std::string("plain"));
    step.Set("factor", muon.adjusts_rms ? 0.2 * std::sqrt(std::max(rows, columns))
                                        : std::sqrt(std::max(1.0, rows / columns)));
    step.Set("weight_decay", Decay(muon.weight_decay));
    return builder_.Emit("weight_step", {direction, scale_}, {slot_}, step)[0];
  }

 private:
  int64_t SizeOf(int d) const { return variable_.type.dims[d].size; }

  // Returns the decay of this weight.
  double Decay(double of_optimizer) const {
    const TrainingSettings& training = plan_.settings.training;
    if (variable_.group >= 0 && training.groups[variable_.group].weight_decay.has_value())
      return *training.groups[variable_.group].weight_decay;
    return variable_.decay ? of_optimizer : 0.0;
  }

  // An op that updates the weight element by element, with states like the weight.
  ValueId InPlace(const std::string& op, const Attributes& attrs,
                  const std::vector<std::string>& states) {
    const std::vector<ValueId> out = builder_.Emit(
        op, {gradient_, scale_}, std::vector<TypeAndLayout>(states.size() + 1, slot_), attrs);
    for (size_t i = 0; i < states.size(); ++i) builder_.MarkState(out[i + 1], states[i]);
    return out[0];
  }

  // Returns the sum of the squares of a tensor in the layout of the weight, on every device.
  ValueId Squares(ValueId value) {
    sbp::Layout layout = variable_.layout;
    for (sbp::Sbp& sbp : layout) sbp = sbp.is_split() ? sbp::Sbp::P() : sbp::Sbp::B();
    return builder_.Boxed(builder_.Emit("sum_squares", {value}, {{Scalar(), layout}}, {})[0],
                          whole_);
  }

  ValueId StepByNorms(ValueId direction, const Attributes& attrs) {
    const ValueId of_weight = Squares(weight_), of_direction = Squares(direction);
    return builder_.Emit("weight_step", {direction, scale_, of_weight, of_direction}, {slot_},
                         attrs)[0];
  }

  // Sets sum_ to the sum of `value` over dimension `d`, merged, and returns what the sum is.
  TypeAndLayout SumOver(ValueId value, const TypeAndLayout& of, int d) {
    const sbp::TensorType type = Without(of.first, d);
    const sbp::Layout partial = SummedOver(of.second, d);
    sum_ = builder_.Emit("reduce_sum", {value}, {{type, partial}},
                         {{"axes", std::vector<int64_t>{d}}})[0];
    sum_ = builder_.Boxed(sum_, Merged(partial));
    return {type, Merged(partial)};
  }

  // Returns the decaying mean of squares of which `squares` has sums of `count`.
  ValueId Moment(const AdafactorSettings& adafactor, ValueId squares, const TypeAndLayout& is,
                 int64_t count, const std::string& state) {
    Attributes attrs = updates_;
    attrs.Set("beta2_decay", adafactor.beta2_decay);
    attrs.Set("count", static_cast<double>(count));
    const std::vector<ValueId> out =
        builder_.Emit("moment_of_squares", {squares, scale_}, {is, is}, attrs);
    builder_.MarkState(out[1], state);
    return out[0];
  }

  // Returns `direction` with its singular values near 1. The longer dimension is split over all
  // axes that split the matrix, so that each device multiplies its part, and the products of the
  // matrix with itself, which are as small as the shorter dimension, are summed over the devices.
  ValueId Orthogonal(const MuonSettings& muon, const FlatWeight& flat, ValueId direction) {
    const bool is_matrix = variable_.type.dims.size() == 2;
    // A split of columns that are one element would be a split of no dimension of the weight.
    const bool is_wide = flat.rows() <= flat.columns() && (is_matrix || flat.columns() > 1);
    const int longer = is_wide ? 1 : 0, of_weight = flat.DimOf(longer);
    const ValueId squares = Squares(direction);
    sbp::Layout layout = variable_.layout, partial = whole_;
    for (size_t axis = 0; axis < layout.size(); ++axis) {
      if (!layout[axis].is_split()) continue;
      if (!is_matrix || layout[axis].axis != of_weight) layout[axis] = sbp::Sbp::S(of_weight);
      partial[axis] = sbp::Sbp::P();
    }
    const TypeAndLayout weight{variable_.type, layout};
    const TypeAndLayout matrix{flat.matrix(), is_matrix ? layout : WithSplits(layout, longer)};
    ValueId x = builder_.Boxed(direction, layout);
    if (!is_matrix) x = Reshaped(x, matrix);
    x = builder_.Emit("unit_norm", {x, squares}, {matrix}, {{"epsilon", muon.epsilon}})[0];
    sbp::TensorType product_type = matrix.first;
    product_type.dims[longer] = product_type.dims[1 - longer];
    const TypeAndLayout product{product_type, whole_};
    for (int64_t i = 0; i < muon.iterations; ++i) {
      ValueId gram =
          builder_.Emit(is_wide ? "matmul" : "matmul_grad_w", {x, x}, {{product_type, partial}},
                        is_wide ? Attributes{{"transpose_w", true}} : Attributes{})[0];
      gram = builder_.Boxed(gram, whole_);
      const ValueId square = builder_.Emit("matmul", {gram, gram}, {product}, {})[0];
      const ValueId sum =
          builder_.Emit("add", {Scaled(gram, product, kNewtonB), Scaled(square, product, kNewtonC)},
                        {product}, {})[0];
      const ValueId turned = builder_.Emit(
          "matmul", is_wide ? std::vector<ValueId>{sum, x} : std::vector<ValueId>{x, sum}, {matrix},
          {})[0];
      x = builder_.Emit("add", {Scaled(x, matrix, kNewtonA), turned}, {matrix}, {})[0];
    }
    if (!is_matrix) x = Reshaped(x, weight);
    return builder_.Boxed(x, variable_.layout);
  }

  ValueId Reshaped(ValueId value, const TypeAndLayout& to) {
    return builder_.Emit("reshape", {value}, {to}, {{"to", ops::DimsText(to.first.dims)}})[0];
  }

  ValueId Scaled(ValueId value, const TypeAndLayout& is, double factor) {
    return builder_.Emit("scale", {value}, {is}, {{"factor", factor}})[0];
  }

  const LogicalPlan& plan_;
  const Variable& variable_;
  const ValueId gradient_, scale_, weight_;
  FunctionBuilder& builder_;
  const sbp::Layout whole_;
  const TypeAndLayout slot_;
  Attributes updates_, rates_;  // of ops without and with a learning rate
  ValueId sum_ = -1;
};

}  // namespace

bool UpdateReadsWeight(const LogicalPlan& plan, const Variable& variable) {
  const OptimizerSettings& optimizer = OptimizerOf(plan.settings.training, variable.group);
  return std::holds_alternative<LambSettings>(optimizer) ||
         std::holds_alternative<AdafactorSettings>(optimizer);
}

ValueId AddUpdateOf(const LogicalPlan& plan, const Variable& variable, ValueId gradient,
                    ValueId scale, ValueId weight, FunctionBuilder* builder) {
  UpdateGraph graph(plan, variable, gradient, scale, weight, builder);
  return std::visit([&graph](const auto& settings) { return graph.Add(settings); },
                    OptimizerOf(plan.settings.training, variable.group));
}

void AddAverageOf(const LogicalPlan& plan, const Variable& variable, ValueId updated, ValueId scale,
                  FunctionBuilder* builder) {
  Attributes attrs{{"average_decay", *plan.settings.training.average_decay}};
  plan.updates.ToAttributes(&attrs);
  const ValueId average = builder->Emit("weight_average", {updated, scale},
                                        {{variable.type, variable.layout}}, attrs)[0];
  builder->MarkState(average, kAverageState);
}

}  // namespace weir::compiler
