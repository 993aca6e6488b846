// Rules that people write by hand, for any model: every axis of the mesh gets one of a few roles.
//
//   role        the axis splits
//   data        the batch
//   tensor      the inner dimensions: heads, ffn, vocab; Megatron's pairs of products
//   tensor+seq  the same, and the sequence of activations where no inner dimension is split
//   ulysses     the sequence, and the inner dimensions of activations where the sequence is whole
//   sequence    the sequence alone
//   nothing     nothing: the devices do the same
//
// The roles are told from the model's own rules: inner dimensions are those that some op can split
// and that no tensor between functions has. Thread rule: pure functions.
#pragma once

#include <string>
#include <vector>

#include "compiler/search/rule_list.h"

namespace weir::compiler {

// The dimensions that rules of a model may speak of.
struct DimRoles {
  std::string batch;
  std::string sequence;            // empty: the inputs have no second dimension
  std::vector<std::string> inner;  // in the order of the nodes that split them
  std::vector<std::string> others;
};

// `inputs`: the types that data feeds.
DimRoles RolesOf(const LayoutProblem& problem, const std::string& batch,
                 const std::vector<sbp::TensorType>& inputs);

struct NamedRules {
  std::string name;  // "dp data, tp tensor+seq"
  RuleList rules;
};

// Returns the rules of all combinations of roles, at most `count_max`: those that come first in the
// table go first. Only `zero_axis` may split nothing, because a job in which an axis splits no
// tensor is refused (W0920); -1: ZeRO splits no states.
std::vector<NamedRules> KnownRules(const DimRoles& roles,
                                   const std::vector<FunctionCalls>& functions,
                                   const sbp::Mesh& mesh, int zero_axis, size_t count_max);

// Returns whether a parameter of the functions has the dimension.
bool IsOfParameter(const std::vector<FunctionCalls>& functions, const std::string& dim);

}  // namespace weir::compiler
