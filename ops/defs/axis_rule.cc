#include "ops/defs/axis_rule.h"

#include <algorithm>

#include "ops/defs/rule_builder.h"

namespace weir::ops {
namespace {

int NewFactor(sbp::FactorRule* rule, int64_t size) {
  rule->factors.push_back(sbp::Factor{.size = size});
  return static_cast<int>(rule->factors.size()) - 1;
}

}  // namespace

sbp::FactorRule WholeAxisRule(const std::vector<sbp::TensorType>& inputs,
                              const std::vector<sbp::TensorType>& outputs, int axis) {
  sbp::FactorRule rule;
  std::vector<int> shared;
  for (const sbp::TensorDim& dim : inputs[0].dims) shared.push_back(NewFactor(&rule, dim.size));
  rule.factors[axis].whole = true;
  auto add = [&](const std::vector<sbp::TensorType>& types,
                 std::vector<sbp::OperandRule>* operands) {
    for (const sbp::TensorType& type : types) {
      sbp::OperandRule operand;
      for (int f : shared) operand.dims.push_back({f});
      if (!operands->empty() || operands == &rule.outputs) {
        int own = NewFactor(&rule, type.dims[axis].size);
        rule.factors[own].whole = true;
        operand.dims[axis] = {own};
      }
      operands->push_back(std::move(operand));
    }
  };
  add(inputs, &rule.inputs);
  add(outputs, &rule.outputs);
  TakeUnitsAndNames(inputs, outputs, &rule);
  return rule;
}

sbp::FactorRule WholeRule(const std::vector<sbp::TensorType>& inputs,
                          const std::vector<sbp::TensorType>& outputs) {
  sbp::FactorRule rule;
  auto add = [&](const std::vector<sbp::TensorType>& types,
                 std::vector<sbp::OperandRule>* operands) {
    for (const sbp::TensorType& type : types) {
      sbp::OperandRule operand;
      for (const sbp::TensorDim& dim : type.dims) {
        int own = NewFactor(&rule, dim.size);
        rule.factors[own].whole = true;
        operand.dims.push_back({own});
      }
      operands->push_back(std::move(operand));
    }
  };
  add(inputs, &rule.inputs);
  add(outputs, &rule.outputs);
  TakeUnitsAndNames(inputs, outputs, &rule);
  return rule;
}

sbp::FactorRule LackingAxesRule(const std::vector<sbp::TensorType>& inputs,
                                const std::vector<sbp::TensorType>& outputs,
                                const sbp::TensorType& full, const std::vector<int64_t>& axes) {
  sbp::FactorRule rule;
  for (const sbp::TensorDim& dim : full.dims) NewFactor(&rule, dim.size);
  auto add = [&](const std::vector<sbp::TensorType>& types,
                 std::vector<sbp::OperandRule>* operands) {
    for (const sbp::TensorType& type : types) {
      sbp::OperandRule operand;
      bool lacks = type.dims.size() < full.dims.size();
      for (size_t d = 0; d < full.dims.size(); ++d) {
        bool named =
            axes.empty() || std::count(axes.begin(), axes.end(), static_cast<int64_t>(d)) > 0;
        if (!lacks || !named) operand.dims.push_back({static_cast<int>(d)});
      }
      operands->push_back(std::move(operand));
    }
  };
  add(inputs, &rule.inputs);
  add(outputs, &rule.outputs);
  TakeUnitsAndNames(inputs, outputs, &rule);
  return rule;
}

}  // namespace weir::ops
