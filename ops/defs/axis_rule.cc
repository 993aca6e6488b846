#include "ops/defs/axis_rule.h"

#include <algorithm>

#include "ops/defs/rule_builder.h"

namespace weir {
namespace {

int NewFactor(FactorRule* rule, int64_t size) {
  rule->factors.push_back(Factor{.size = size});
  return static_cast<int>(rule->factors.size()) - 1;
}

}  // namespace

FactorRule WholeAxisRule(const std::vector<TensorType>& inputs,
                         const std::vector<TensorType>& outputs, int axis) {
  FactorRule rule;
  std::vector<int> shared;
  for (const TensorDim& dim : inputs[0].dims) shared.push_back(NewFactor(&rule, dim.size));
  rule.factors[axis].whole = true;
  auto add = [&](const std::vector<TensorType>& types, std::vector<OperandRule>* operands) {
    for (const TensorType& type : types) {
      OperandRule operand;
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

FactorRule WholeRule(const std::vector<TensorType>& inputs,
                     const std::vector<TensorType>& outputs) {
  FactorRule rule;
  auto add = [&](const std::vector<TensorType>& types, std::vector<OperandRule>* operands) {
    for (const TensorType& type : types) {
      OperandRule operand;
      for (const TensorDim& dim : type.dims) {
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

FactorRule LackingAxesRule(const std::vector<TensorType>& inputs,
                           const std::vector<TensorType>& outputs, const TensorType& full,
                           const std::vector<int64_t>& axes) {
  FactorRule rule;
  for (const TensorDim& dim : full.dims) NewFactor(&rule, dim.size);
  auto add = [&](const std::vector<TensorType>& types, std::vector<OperandRule>* operands) {
    for (const TensorType& type : types) {
      OperandRule operand;
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

}  // namespace weir
