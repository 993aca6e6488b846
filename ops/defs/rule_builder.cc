#include "ops/defs/rule_builder.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace weir::ops {
namespace {

using Tokens = std::vector<std::vector<std::string>>;  // per dimension its letters; "..." alone

// Parses one operand: "b (g r) ... 1".
Tokens ParseOperand(const std::string& text) {
  Tokens tokens;
  bool group = false;
  std::string word;
  auto flush = [&] {
    if (word.empty()) return;
    if (group) {
      tokens.back().push_back(word);
    } else {
      tokens.push_back(word == "1" ? std::vector<std::string>{} : std::vector<std::string>{word});
    }
    word.clear();
  };
  for (char c : text) {
    if (c == ' ' || c == '(' || c == ')') {
      flush();
      if (c == '(') tokens.emplace_back();
      if (c != ' ') group = c == '(';
    } else {
      word += c;
    }
  }
  flush();
  return tokens;
}

std::vector<Tokens> ParseSide(const std::string& text) {
  std::vector<Tokens> operands;
  for (size_t begin = 0; begin <= text.size();) {
    size_t comma = std::min(text.find(',', begin), text.size());
    operands.push_back(ParseOperand(text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  return operands;
}

// Replaces "..." by letters "0", "1", ... for the dimensions that the text does not name.
Tokens Expand(const Tokens& tokens, size_t rank) {
  Tokens out;
  for (const auto& dim : tokens) {
    if (dim.size() != 1 || dim[0] != "...") {
      out.push_back(dim);
      continue;
    }
    size_t named = tokens.size() - 1;
    for (size_t d = 0; d + named < rank; ++d) out.push_back({std::to_string(d)});
  }
  out.resize(rank);
  return out;
}

int64_t MinorProduct(const std::vector<int>& dim, const sbp::FactorRule& rule) {
  int64_t product = 1;
  for (size_t i = 1; i < dim.size(); ++i) product *= rule.factors[dim[i]].size;
  return product;
}

void VisitDims(const std::vector<sbp::TensorType>& types,
               const std::vector<sbp::OperandRule>& operands,
               const std::function<void(const sbp::TensorDim&, const std::vector<int>&)>& visit) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t d = 0; d < operands[i].dims.size(); ++d)
      visit(types[i].dims[d], operands[i].dims[d]);
  }
}

}  // namespace

void TakeUnitsAndNames(const std::vector<sbp::TensorType>& inputs,
                       const std::vector<sbp::TensorType>& outputs, sbp::FactorRule* rule) {
  auto visit = [&](const sbp::TensorDim& dim, const std::vector<int>& factors) {
    if (factors.empty()) return;
    sbp::Factor& major = rule->factors[factors[0]];
    if (factors.size() == 1 && major.name.empty()) major.name = dim.name;
    // A cut of the factor is a cut of the dimension at a multiple of the minor factors' product.
    int64_t minor = MinorProduct(factors, *rule);
    major.unit = std::lcm(major.unit, dim.unit / std::gcd(dim.unit, std::max<int64_t>(minor, 1)));
  };
  VisitDims(inputs, rule->inputs, visit);
  VisitDims(outputs, rule->outputs, visit);
}

sbp::LinearGroup ToAllOutputs(std::vector<int> inputs, size_t num_outputs) {
  sbp::LinearGroup group{std::move(inputs), std::vector<int>(num_outputs)};
  std::iota(group.outputs.begin(), group.outputs.end(), 0);
  return group;
}

RuleBuilder::RuleBuilder(const std::string& text, const std::vector<sbp::TensorType>& inputs,
                         const std::vector<sbp::TensorType>& outputs) {
  size_t arrow = text.find("->");
  auto build = [&](const std::string& side, const std::vector<sbp::TensorType>& types,
                   std::vector<sbp::OperandRule>* operands) {
    std::vector<Tokens> all = ParseSide(side);
    for (size_t i = 0; i < types.size() && i < all.size(); ++i) {
      sbp::OperandRule operand;
      for (const auto& dim : Expand(all[i], types[i].dims.size())) {
        std::vector<int> factors;
        for (const std::string& letter : dim) {
          auto [it, added] = letters_.emplace(letter, static_cast<int>(rule_.factors.size()));
          if (added) rule_.factors.push_back(sbp::Factor{});
          factors.push_back(it->second);
        }
        operand.dims.push_back(std::move(factors));
      }
      operands->push_back(std::move(operand));
    }
  };
  build(text.substr(0, arrow), inputs, &rule_.inputs);
  build(text.substr(arrow + 2), outputs, &rule_.outputs);

  // Sizes of factors that stand alone are set first, then the missing sizes in groups. What an
  // output tells of a group may tell another group of an input.
  std::vector<bool> known(rule_.factors.size(), false);
  auto alone = [&](const sbp::TensorDim& dim, const std::vector<int>& factors) {
    if (factors.size() != 1 || known[factors[0]]) return;
    rule_.factors[factors[0]].size = dim.size;
    known[factors[0]] = true;
  };
  auto grouped = [&](const sbp::TensorDim& dim, const std::vector<int>& factors) {
    if (factors.size() < 2) return;
    int missing = -1;
    int64_t rest = 1;
    for (int f : factors) {
      if (known[f]) {
        rest *= rule_.factors[f].size;
      } else if (missing >= 0) {
        return;  // two factors are missing: another dimension must tell one of them
      } else {
        missing = f;
      }
    }
    if (missing < 0) return;
    rule_.factors[missing].size = rest == 0 ? 0 : dim.size / rest;
    known[missing] = true;
  };
  VisitDims(inputs, rule_.inputs, alone);
  VisitDims(outputs, rule_.outputs, alone);
  for (int round = 0; round < 2; ++round) {
    VisitDims(inputs, rule_.inputs, grouped);
    VisitDims(outputs, rule_.outputs, grouped);
  }
  TakeUnitsAndNames(inputs, outputs, &rule_);
}

RuleBuilder& RuleBuilder::Whole(const std::string& letter) {
  rule_.factors[letters_.at(letter)].whole = true;
  return *this;
}

RuleBuilder& RuleBuilder::Named(const std::string& letter, const std::string& name) {
  rule_.factors[letters_.at(letter)].name = name;
  return *this;
}

RuleBuilder& RuleBuilder::Combine(const std::string& letter, Combiner combiner) {
  rule_.factors[letters_.at(letter)].combiner = combiner;
  return *this;
}

RuleBuilder& RuleBuilder::Additive(int input) {
  if (input < static_cast<int>(rule_.inputs.size())) rule_.inputs[input].additive = true;
  return *this;
}

RuleBuilder& RuleBuilder::Linear(std::vector<int> inputs) {
  for (int i : inputs) {
    if (i >= static_cast<int>(rule_.inputs.size())) return *this;
  }
  rule_.linear.push_back(ToAllOutputs(std::move(inputs), rule_.outputs.size()));
  return *this;
}

}  // namespace weir::ops
