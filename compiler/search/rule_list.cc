#include "compiler/search/rule_list.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir::compiler {
namespace {

// The rules for one axis, found from the choices of nodes and borders.
class AxisRules {
 public:
  AxisRules(const LayoutProblem& problem, const std::vector<FunctionCalls>& functions,
            const std::vector<int>& choice, int axis)
      : problem_(problem), functions_(functions), choice_(choice), axis_(axis) {}

  // Returns the dimensions to split, in order.
  std::vector<std::string> Find() {
    for (size_t v = 0; v < problem_.nodes.size(); ++v) AddSplits(problem_.nodes[v], Chosen(v));
    for (size_t b = 0; b < problem_.borders.size(); ++b) AddSplit(BorderDim(b));
    for (size_t v = 0; v < problem_.nodes.size(); ++v) AddOrders(problem_.nodes[v], Chosen(v));
    for (size_t b = 0; b < problem_.borders.size(); ++b) {
      const std::string first = BorderDim(b);
      for (const std::string& dim : problem_.borders[b].dims) Prefer(first, dim, kBorderWeight);
    }
    return Ordered();
  }

  bool SplitsParameters(const std::string& dim) const { return of_parameters_.count(dim) > 0; }

 private:
  // A border is worth less than any node, whose time is at least that of a kernel.
  static constexpr double kBorderWeight = 1e-3;

  const sbp::AxisSignature& Chosen(size_t v) const {
    const NodeChoices& node = problem_.nodes[v];
    return node.signatures[node.choices[choice_[v]][axis_]];
  }

  // Returns the name of the dimension that a border splits; empty: none.
  std::string BorderDim(size_t b) const {
    const BorderChoices& border = problem_.borders[b];
    const sbp::Sbp& sbp =
        border.choices[choice_[problem_.first_border + static_cast<int>(b)]][axis_];
    return sbp.is_split() ? border.dims[sbp.axis] : "";
  }

  void AddSplit(const std::string& dim) {
    if (!dim.empty() && std::find(splits_.begin(), splits_.end(), dim) == splits_.end())
      splits_.push_back(dim);
  }

  void AddSplits(const NodeChoices& node, const sbp::AxisSignature& chosen) {
    if (chosen.factor < 0) return;
    AddSplit(node.rule.factors[chosen.factor].name);
    const Function& function = *functions_[node.use].function;
    for (int p : node.parameters) {
      if (!chosen.inputs[p].is_split()) continue;
      const ops::ValueId value = function.nodes[node.node].inputs[p];
      const std::string& dim = function.values[value].type.dims[chosen.inputs[p].axis].name;
      AddSplit(dim);
      of_parameters_.insert(dim);
    }
  }

  void Prefer(const std::string& first, const std::string& other, double weight) {
    if (!first.empty() && first != other) before_[{first, other}] += weight;
  }

  // The chosen factor comes before the others that the node could split as well. A signature that
  // moves parameters is out of the question whatever the rules say.
  void AddOrders(const NodeChoices& node, const sbp::AxisSignature& chosen) {
    if (chosen.factor < 0) return;
    for (size_t s = 0; s < node.signatures.size(); ++s) {
      const sbp::AxisSignature& other = node.signatures[s];
      if (!node.usable[s] || other.factor < 0 || other.factor == chosen.factor) continue;
      const bool moves = std::any_of(node.parameters.begin(), node.parameters.end(),
                                     [&](int p) { return !(other.inputs[p] == chosen.inputs[p]); });
      if (!moves) {
        Prefer(node.rule.factors[chosen.factor].name, node.rule.factors[other.factor].name,
               node.weight);
      }
    }
  }

  // Next comes the dimension that the least weight wants later.
  std::vector<std::string> Ordered() const {
    std::vector<std::string> left = splits_, ordered;
    while (!left.empty()) {
      size_t best = 0;
      double best_weight = -1;
      for (size_t i = 0; i < left.size(); ++i) {
        double weight = 0;
        for (const std::string& other : left) {
          const auto found = before_.find({other, left[i]});
          if (found != before_.end()) weight += found->second;
        }
        if (best_weight >= 0 && weight >= best_weight) continue;
        best = i;
        best_weight = weight;
      }
      ordered.push_back(left[best]);
      left.erase(left.begin() + static_cast<int64_t>(best));
    }
    return ordered;
  }

  const LayoutProblem& problem_;
  const std::vector<FunctionCalls>& functions_;
  const std::vector<int>& choice_;
  const int axis_;
  std::vector<std::string> splits_;  // in the order of nodes
  std::set<std::string> of_parameters_;
  std::map<std::pair<std::string, std::string>, double> before_;
};

std::set<std::string> DimsOfParameters(const std::vector<FunctionCalls>& functions) {
  std::set<std::string> dims;
  for (const FunctionCalls& use : functions) {
    for (const Arg& arg : use.function->args) {
      if (arg.kind != ArgKind::kParameter) continue;
      for (const sbp::TensorDim& dim : use.function->values[arg.value].type.dims)
        dims.insert(dim.name);
    }
  }
  return dims;
}

}  // namespace

RuleList RulesOf(const proto::Job& job) {
  RuleList rules;
  for (const proto::Rule& rule : job.rule()) {
    const RuleScope scope = rule.scope() == proto::Rule::ACTIVATIONS  ? RuleScope::kActivations
                            : rule.scope() == proto::Rule::PARAMETERS ? RuleScope::kParameters
                                                                      : RuleScope::kAll;
    rules.push_back({rule.dim(), rule.axis(), scope});
  }
  return rules;
}

void SetRules(const RuleList& rules, proto::Job* job) {
  job->clear_rule();
  for (const RuleEntry& entry : rules) {
    proto::Rule* const rule = job->add_rule();
    rule->set_dim(entry.dim);
    rule->set_axis(entry.axis);
    if (entry.scope == RuleScope::kActivations) rule->set_scope(proto::Rule::ACTIVATIONS);
    if (entry.scope == RuleScope::kParameters) rule->set_scope(proto::Rule::PARAMETERS);
  }
}

std::string ToText(const RuleEntry& rule) {
  return absl::StrCat(rule.dim, " -> ", rule.axis,
                      rule.scope == RuleScope::kActivations  ? " (activations)"
                      : rule.scope == RuleScope::kParameters ? " (parameters)"
                                                             : "");
}

std::vector<std::string> AxisLines(const RuleList& rules, const sbp::Mesh& mesh) {
  std::vector<std::string> lines;
  size_t width = 0;
  for (const sbp::MeshAxis& axis : mesh.axes()) width = std::max(width, axis.name.size());
  for (const sbp::MeshAxis& axis : mesh.axes()) {
    if (axis.size == 1 || axis.name == sbp::kPipelineAxis) continue;
    std::vector<std::string> dims;
    for (const RuleEntry& rule : rules) {
      if (rule.axis != axis.name) continue;
      dims.push_back(absl::StrCat(rule.dim, rule.scope == RuleScope::kActivations  ? "*"
                                            : rule.scope == RuleScope::kParameters ? "°"
                                                                                   : ""));
    }
    lines.push_back(absl::StrCat(axis.name, std::string(width - axis.name.size() + 2, ' '),
                                 dims.empty() ? "nothing" : absl::StrJoin(dims, " > ")));
  }
  return lines;
}

RuleList FindRules(const LayoutProblem& problem, const std::vector<FunctionCalls>& functions,
                   const std::vector<int>& choice, const sbp::Mesh& mesh) {
  const std::set<std::string> with_parameters = DimsOfParameters(functions);
  RuleList rules;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (mesh.size(axis) == 1) continue;
    AxisRules of_axis(problem, functions, choice, axis);
    for (const std::string& dim : of_axis.Find()) {
      const bool activations = with_parameters.count(dim) > 0 && !of_axis.SplitsParameters(dim);
      rules.push_back(
          {dim, mesh.axes()[axis].name, activations ? RuleScope::kActivations : RuleScope::kAll});
    }
  }
  return rules;
}

}  // namespace weir::compiler
