#include "compiler/search/known_rules.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace weir::compiler {
namespace {

enum class Role : uint8_t { kData, kTensor, kTensorSequence, kUlysses, kSequence, kNothing };
constexpr Role kRoles[] = {Role::kData,    Role::kTensor,   Role::kTensorSequence,
                           Role::kUlysses, Role::kSequence, Role::kNothing};

const char* Name(Role role) {
  switch (role) {
    case Role::kData: return "data";
    case Role::kTensor: return "tensor";
    case Role::kTensorSequence: return "tensor+seq";
    case Role::kUlysses: return "ulysses";
    case Role::kSequence: return "sequence";
    case Role::kNothing: return "nothing";
  }
  return "";
}

bool NeedsSequence(Role role) {
  return role == Role::kTensorSequence || role == Role::kUlysses || role == Role::kSequence;
}

// Returns the narrowest scope in which a rule leaves parameters whole.
RuleScope ForActivations(const std::vector<FunctionCalls>& functions, const std::string& dim) {
  return IsOfParameter(functions, dim) ? RuleScope::kActivations : RuleScope::kAll;
}

void AddRole(Role role, const std::string& axis, const DimRoles& roles,
             const std::vector<FunctionCalls>& functions, RuleList* rules) {
  const auto add_inner = [&](bool activations) {
    for (const std::string& dim : roles.inner)
      rules->push_back({dim, axis, activations ? ForActivations(functions, dim) : RuleScope::kAll});
  };
  const auto add_sequence = [&] {
    rules->push_back({roles.sequence, axis, ForActivations(functions, roles.sequence)});
  };
  switch (role) {
    case Role::kData: rules->push_back({roles.batch, axis, RuleScope::kAll}); break;
    case Role::kTensor: add_inner(false); break;
    case Role::kTensorSequence:
      add_inner(false);
      add_sequence();
      break;
    case Role::kUlysses:
      add_sequence();
      add_inner(true);
      break;
    case Role::kSequence: add_sequence(); break;
    case Role::kNothing: break;
  }
}

}  // namespace

bool IsOfParameter(const std::vector<FunctionCalls>& functions, const std::string& dim) {
  for (const FunctionCalls& use : functions) {
    for (const Arg& arg : use.function->args) {
      if (arg.kind != ArgKind::kParameter) continue;
      for (const sbp::TensorDim& of : use.function->values[arg.value].type.dims) {
        if (of.name == dim) return true;
      }
    }
  }
  return false;
}

DimRoles RolesOf(const LayoutProblem& problem, const std::string& batch,
                 const std::vector<sbp::TensorType>& inputs) {
  DimRoles roles;
  roles.batch = batch;
  for (const sbp::TensorType& type : inputs) {
    if (roles.sequence.empty() && type.dims.size() > 1 && type.dims[0].name == batch &&
        type.dtype == DType::kI32)
      roles.sequence = type.dims[1].name;
  }
  std::set<std::string> between;
  for (const BorderChoices& border : problem.borders)
    between.insert(border.dims.begin(), border.dims.end());
  std::set<std::string> seen{batch, roles.sequence};
  for (const NodeChoices& node : problem.nodes) {
    for (size_t s = 0; s < node.signatures.size(); ++s) {
      if (!node.usable[s] || node.signatures[s].factor < 0) continue;
      const std::string& dim = node.rule.factors[node.signatures[s].factor].name;
      if (!seen.insert(dim).second) continue;
      (between.count(dim) > 0 ? roles.others : roles.inner).push_back(dim);
    }
  }
  return roles;
}

std::vector<NamedRules> KnownRules(const DimRoles& roles,
                                   const std::vector<FunctionCalls>& functions,
                                   const sbp::Mesh& mesh, int zero_axis, size_t count_max) {
  std::vector<NamedRules> all{{"", {}}};
  for (const sbp::MeshAxis& axis : mesh.axes()) {
    if (axis.size == 1) continue;
    std::vector<NamedRules> longer;
    for (const NamedRules& before : all) {
      for (Role role : kRoles) {
        if (NeedsSequence(role) && roles.sequence.empty()) continue;
        if (role == Role::kNothing && mesh.AxisIndex(axis.name) != zero_axis) continue;
        NamedRules& with = longer.emplace_back(before);
        absl::StrAppend(&with.name, with.name.empty() ? "" : ", ", axis.name, " ", Name(role));
        AddRole(role, axis.name, roles, functions, &with.rules);
      }
    }
    all = std::move(longer);
  }
  if (all.size() > count_max) all.resize(count_max);
  return all;
}

}  // namespace weir::compiler
