// The rules of a job as values: what a search tries, and what a person reads. The job's message has
// the same rules (proto/job.proto).
// Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/layout_rules.h"
#include "compiler/search/layout_problem.h"
#include "proto/job.pb.h"
#include "sbp/mesh.h"

namespace weir::compiler {

struct RuleEntry {
  std::string dim;
  std::string axis;
  RuleScope scope = RuleScope::kAll;
  friend bool operator==(const RuleEntry&, const RuleEntry&) = default;
};
using RuleList = std::vector<RuleEntry>;  // earlier rules win

RuleList RulesOf(const proto::Job& job);
void SetRules(const RuleList& rules, proto::Job* job);

// Returns "batch -> dp", "sequence -> sp (activations)".
std::string ToText(const RuleEntry& rule);
// Returns one line for each axis of several devices: "dp  batch", "tp  heads > ffn > sequence*". An
// earlier dimension wins; a star is a rule for activations alone, a ring one for parameters alone.
// An axis without a rule has "nothing".
std::vector<std::string> AxisLines(const RuleList& rules, const sbp::Mesh& mesh);

// Returns rules with which propagate-layouts chooses what `choice`, a solution of `problem`,
// chooses, as far as rules can say it. On each axis there is a rule for each dimension that some
// node splits. A rule stands before another if a node that could split either splits its dimension;
// where nodes disagree, the dearer node decides. A rule is about activations alone if some
// parameter has the dimension and none is split by it.
RuleList FindRules(const LayoutProblem& problem, const std::vector<FunctionCalls>& functions,
                   const std::vector<int>& choice, const sbp::Mesh& mesh);

}  // namespace weir::compiler
