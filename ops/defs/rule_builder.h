// A RuleBuilder builds a FactorRule from an einsum-like text and the types of the operands.
//
//   RuleBuilder("... k, k n -> ... n", inputs, outputs).Linear({0}).Linear({1}).Build()
//
//   k        a factor of that letter (a word); the same letter is the same factor
//   ...      all dimensions not named otherwise, one factor each, aligned at the left
//   (g r)    one dimension made of two factors, major to minor
//   1        a dimension of no factor: never split
//
// Sizes come from the dimensions. A factor is called like the first dimension in which it stands
// alone (inputs first, then outputs) unless Named says otherwise. A factor's unit is the least unit
// that respects the units of all dimensions whose major factor it is. Operands that stand in the
// text but are not given (absent optional operands) are dropped. Precondition: types passed the
// op's inference, so sizes agree. Thread rule: values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sbp/factor_rule.h"

namespace weir::ops {

class RuleBuilder {
 public:
  RuleBuilder(const std::string& text, const std::vector<sbp::TensorType>& inputs,
              const std::vector<sbp::TensorType>& outputs);

  RuleBuilder& Whole(const std::string& letter);
  RuleBuilder& Named(const std::string& letter, const std::string& name);
  RuleBuilder& Combine(const std::string& letter, Combiner combiner);
  RuleBuilder& Additive(int input);
  // States that P(sum) of these inputs gives P(sum) of all outputs. Dropped if one of the inputs is
  // absent.
  RuleBuilder& Linear(std::vector<int> inputs);
  sbp::FactorRule Build() const { return rule_; }

 private:
  sbp::FactorRule rule_;
  std::map<std::string, int> letters_;
};

// Completes a rule that was written by hand: sets the unit and, where empty, the name of each
// factor from the dimensions in which the factor stands, as above.
void TakeUnitsAndNames(const std::vector<sbp::TensorType>& inputs,
                       const std::vector<sbp::TensorType>& outputs, sbp::FactorRule* rule);

// Returns the linear group from `inputs` to all outputs.
sbp::LinearGroup ToAllOutputs(std::vector<int> inputs, size_t num_outputs);

}  // namespace weir::ops
