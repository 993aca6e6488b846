#include "compiler/job/precision_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/job/import_settings.h"
#include "ops/defs/at_positions.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

// Bounds for the time in which nodes find their rules.
constexpr int kRulesMax = 256;
constexpr int kPatternsMax = 256;     // of a rule
constexpr size_t kPatternMax = 1000;  // characters

bool FitsAny(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&name](const std::string& pattern) {
    return FitsPattern(name, pattern, Wildcards::kStarAndQuestionMark);
  });
}

// Text generation runs some ops of the graph as others, which the rules of the graph are for, too.
bool FitsOp(const std::string& op, const PrecisionRule& rule) {
  if (rule.ops.empty() || FitsAny(op, rule.ops)) return true;
  const std::vector<std::string> stands_for = ops::OpsThatRunAs(op);
  return std::any_of(stands_for.begin(), stands_for.end(),
                     [&rule](const std::string& of) { return FitsAny(of, rule.ops); });
}

// Compares the nodes of a call with rules.
class NamesOfCall {
 public:
  NamesOfCall(const Function& function, const ModelCall& call, const std::string& main)
      : function_(function),
        names_{call.name == function.name && call.name.rfind(main + ".", 0) == 0 ? main
                                                                                 : function.name,
               call.name} {}

  // Returns whether all nodes of the call fit the patterns.
  bool FitAll(const PrecisionRule& rule) const {
    return rule.patterns.empty() || FitsAny(names_[0], rule.patterns) ||
           FitsAny(names_[1], rule.patterns);
  }
  bool Fits(const Node& node, const PrecisionRule& rule) const {
    return FitsAny(absl::StrCat(names_[0], "/", node.name), rule.patterns) ||
           FitsAny(absl::StrCat(names_[1], "/", node.name), rule.patterns);
  }

  // Returns the first rule that each node fits; -1: none. Counts the nodes in `uses`.
  std::vector<int> FirstRules(const std::vector<PrecisionRule>& rules,
                              std::vector<PrecisionUse>* uses) const {
    std::vector<int> first(function_.nodes.size(), -1);
    for (size_t r = 0; r < rules.size(); ++r) {
      const bool all = FitAll(rules[r]);
      for (size_t n = 0; n < function_.nodes.size(); ++n) {
        const Node& node = function_.nodes[n];
        if (!FitsOp(node.op, rules[r]) || !(all || Fits(node, rules[r]))) continue;
        ++(*uses)[r].fits;
        if (first[n] >= 0) continue;
        first[n] = static_cast<int>(r);
        ++(*uses)[r].nodes;
      }
    }
    return first;
  }

 private:
  const Function& function_;
  const std::string names_[2];  // of the function and of the call
};

// Returns "precision_of[0] (*norm*)".
std::string NameOf(const PrecisionRule& rule, size_t index) {
  std::vector<std::string> parts = rule.patterns;
  for (const std::string& op : rule.ops) parts.push_back(absl::StrCat("op ", op));
  constexpr size_t kPartsShown = 3;
  const bool cut = parts.size() > kPartsShown;
  if (cut) parts.resize(kPartsShown);
  return absl::StrCat("precision_of[", index, "] (", absl::StrJoin(parts, ", "), cut ? ", …" : "",
                      ")");
}

absl::Status CheckPatterns(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                           const std::string& where) {
  if (patterns.size() > kPatternsMax) {
    return Rejected({"W0861", where, absl::StrCat("at most ", kPatternsMax, " patterns"),
                     absl::StrCat(patterns.size()),
                     "a star in a pattern stands for any characters"});
  }
  for (const std::string& pattern : patterns) {
    if (!pattern.empty() && pattern.size() <= kPatternMax) continue;
    return Rejected({"W0861", where, absl::StrCat("a pattern of 1 to ", kPatternMax, " characters"),
                     absl::StrCat(pattern.size(), " characters"), "\"*norm*\""});
  }
  return absl::OkStatus();
}

absl::Status CheckPrecision(const proto::PrecisionRule& rule, const proto::Training& training,
                            const std::string& where) {
  const DType job = DTypeOf(training.precision()), wanted = DTypeOf(rule.precision());
  if (wanted == DType::kF32 || wanted == job) return absl::OkStatus();
  if (job == DType::kF32 && wanted == DType::kBF16) return absl::OkStatus();
  return Rejected(
      {"W0862", where + ".precision",
       absl::StrCat("F32 or ",
                    job == DType::kF32 ? std::string("BF16")
                                       : proto::Training::Precision_Name(training.precision()),
                    ", as the job computes in ",
                    proto::Training::Precision_Name(training.precision())),
       proto::Training::Precision_Name(rule.precision()), ""});
}

}  // namespace

absl::Status CheckPrecisionRules(const proto::Training& training) {
  if (training.precision_of_size() > kRulesMax) {
    return Rejected({"W0861", "training.precision_of",
                     absl::StrCat("at most ", kRulesMax, " rules"),
                     absl::StrCat(training.precision_of_size()), "several patterns in one rule"});
  }
  for (int r = 0; r < training.precision_of_size(); ++r) {
    const proto::PrecisionRule& rule = training.precision_of(r);
    const std::string where = absl::StrCat("training.precision_of[", r, "]");
    if (rule.pattern().empty() && rule.op().empty()) {
      return Rejected({"W0861", where, "a pattern of names, or of operations", "neither",
                       "op: \"*norm*\"; training.precision is for everything"});
    }
    WEIR_RETURN_IF_ERROR(CheckPatterns(rule.pattern(), where + ".pattern"));
    WEIR_RETURN_IF_ERROR(CheckPatterns(rule.op(), where + ".op"));
    WEIR_RETURN_IF_ERROR(CheckPrecision(rule, training, where));
  }
  return absl::OkStatus();
}

void ApplyPrecisionRules(const TrainingSettings& training, const std::string& main,
                         Module* module) {
  const std::vector<PrecisionRule>& rules = training.precision_rules;
  Model& model = module->model;
  for (const PrecisionRule& rule : rules) model.precision_uses.push_back({rule.precision});
  if (rules.empty()) return;
  const size_t num_given = model.functions.size();
  std::vector<char> is_taken(num_given, 0);  // the function itself is that of some calls
  std::map<std::pair<int, std::vector<int>>, int> copies;  // by the first rules of the nodes
  for (ModelCall& call : model.calls) {
    const ModelFunction original = model.functions[call.model_function];
    const std::vector<int> first = NamesOfCall(module->functions[original.forward], call, main)
                                       .FirstRules(rules, &model.precision_uses);
    model.nodes_of_calls += static_cast<int64_t>(first.size());
    const auto [known, is_new] = copies.try_emplace({call.model_function, first}, -1);
    if (is_new) {
      known->second = call.model_function;
      if (is_taken[call.model_function]) {
        module->functions.push_back(module->functions[original.forward]);
        model.functions.push_back(original);
        model.functions.back().forward = static_cast<int>(module->functions.size()) - 1;
        known->second = static_cast<int>(model.functions.size()) - 1;
      }
      is_taken[call.model_function] = 1;
      Function& function = module->functions[model.functions[known->second].forward];
      for (size_t n = 0; n < first.size(); ++n) {
        function.nodes[n].precision.reset();
        if (first[n] >= 0 && rules[first[n]].precision != training.precision)
          function.nodes[n].precision = rules[first[n]].precision;
      }
    }
    call.model_function = known->second;
  }
}

std::string PrecisionText(const LogicalPlan& plan) {
  const TrainingSettings& training = plan.settings.training;
  const Model& model = plan.module.model;
  if (training.precision_rules.empty()) return "";
  int64_t other = 0;
  for (const PrecisionUse& use : model.precision_uses) {
    if (use.precision != training.precision) other += use.nodes;
  }
  std::vector<std::string> parts;
  DType of_rules = training.precision;
  for (size_t r = 0; r < model.precision_uses.size(); ++r) {
    const PrecisionUse& use = model.precision_uses[r];
    if (use.precision == training.precision || use.nodes == 0) continue;
    of_rules = use.precision;
    parts.push_back(absl::StrCat(NameOf(training.precision_rules[r], r), " ", use.nodes));
  }
  std::string text(Name(training.precision));
  if (other == 0) return absl::StrCat(text, " in all operations");
  return absl::StrCat(text, "; ", Name(of_rules), " in ", other, " of ", model.nodes_of_calls,
                      " operations: ", absl::StrJoin(parts, ", "));
}

std::vector<std::string> PrecisionRulesWithoutUse(const LogicalPlan& plan) {
  const std::vector<PrecisionUse>& uses = plan.module.model.precision_uses;
  std::vector<std::string> sentences;
  for (size_t r = 0; r < uses.size(); ++r) {
    if (uses[r].nodes > 0) continue;
    sentences.push_back(Format(
        {"W0860", absl::StrCat("training.", NameOf(plan.settings.training.precision_rules[r], r)),
         "a rule that some operation takes its precision from",
         uses[r].fits == 0
             ? std::string("no operation of the model that fits it")
             : absl::StrCat(uses[r].fits, " that fit it, each of which fits an earlier rule"),
         uses[r].fits == 0 ? "weir plan JOB --layouts, which lists functions and their values"
                           : "the rule for fewer operations in front of the other"}));
  }
  return sentences;
}

}  // namespace weir::compiler
