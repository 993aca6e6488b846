#include "compiler/passes/assign_stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/passes/place_calls.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kStagesMax = 1024;

// Returns the number of parts into which the rules split a node along an axis: as many as the axis
// has devices, or as a dimension that a rule names has units.
int64_t PartsAlong(const Function& function, const Node& node,
                   const std::vector<char>& is_parameter, int axis, const LayoutRules& rules) {
  const bool has_parameter = std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
    return input >= 0 && is_parameter[input] != 0;
  });
  int64_t parts = 1;
  for (const std::vector<ops::ValueId>* values : {&node.inputs, &node.outputs}) {
    for (const ops::ValueId value : *values) {
      if (value < 0) continue;
      for (const sbp::TensorDim& dim : function.values[value].type.dims) {
        if (rules.Find(dim.name, axis, RuleScope::kActivations) < 0 &&
            (!has_parameter || rules.Find(dim.name, axis, RuleScope::kParameters) < 0))
          continue;
        parts = std::max(parts, std::min(rules.stage_mesh().size(axis), dim.size / dim.unit));
      }
    }
  }
  return parts;
}

// Returns the operations of a device in a function. `rules` are those of the device's stage; null:
// the operations of all devices.
double Flops(const Function& function, const LayoutRules* rules) {
  std::vector<char> is_parameter(function.values.size(), 0);
  for (const Arg& arg : function.args)
    is_parameter[arg.value] = arg.kind == ArgKind::kParameter ? 1 : 0;
  double total = 1;  // never 0, so that every call counts
  for (const Node& node : function.nodes) {
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    if (def == nullptr || !def->flops) continue;
    std::vector<sbp::TensorType> inputs, outputs;
    for (ops::ValueId input : node.inputs) inputs.push_back(function.values[input].type);
    for (ops::ValueId output : node.outputs) outputs.push_back(function.values[output].type);
    int64_t parts = 1;
    for (int axis = 0; rules != nullptr && axis < rules->stage_mesh().num_axes(); ++axis)
      parts *= PartsAlong(function, node, is_parameter, axis, *rules);
    total += def->flops(node.attrs, inputs, outputs) / static_cast<double>(parts);
  }
  return total;
}

// CallCosts has the cost of each call on the stage of each part.
class CallCosts {
 public:
  CallCosts(const Module& module, const LayoutRules& rules, const PipelineSchedule& schedule) {
    const bool are_alike = rules.FirstWithMeshOf(0) < 0;
    for (int64_t stage = 0; stage < schedule.num_stages; ++stage) {
      // On stages of one mesh, parts of calls are alike.
      const int64_t first = are_alike ? 0 : rules.FirstWithRulesOf(stage);
      like_.push_back(first);
      sums_.emplace_back();
      if (first == stage) sums_.back() = SumsOf(module, are_alike ? nullptr : &rules, stage);
    }
    num_calls_ = module.model.calls.size();
  }

  size_t num_calls() const { return num_calls_; }
  // Returns the cost of the calls from `begin` to below `end` on a stage.
  double Of(int64_t stage, size_t begin, size_t end) const {
    const std::vector<double>& sums = sums_[like_[stage]];
    return sums[end] - sums[begin];
  }

 private:
  static std::vector<double> SumsOf(const Module& module, const LayoutRules* rules, int64_t stage) {
    std::optional<LayoutRules> of_stage;
    if (rules != nullptr) of_stage = rules->OnStage(stage);
    std::map<int, double> known;  // by function
    std::vector<double> sums = {0};
    for (const ModelCall& call : module.model.calls) {
      const auto [cost, is_new] = known.try_emplace(call.model_function, 0);
      if (is_new) {
        const int forward = module.model.functions[call.model_function].forward;
        cost->second =
            Flops(module.functions[forward], of_stage.has_value() ? &*of_stage : nullptr);
      }
      sums.push_back(sums.back() + cost->second);
    }
    return sums;
  }

  size_t num_calls_ = 0;
  std::vector<int64_t> like_;              // by stage: the first stage with equal costs
  std::vector<std::vector<double>> sums_;  // by stage, over the calls before each call
};

// Returns contiguous parts whose largest cost is smallest. Exact, by dynamic programming. The
// search for the start of a part goes backwards and ends where the part alone costs more than the
// parts before it: from there on, an earlier start makes nothing cheaper. Of equals, the earlier
// start counts. The search looks at two starts at least, because a cheap call may vanish in a sum:
// so two starts may be equal where the part alone is the costliest, and a job keeps its cut.
std::vector<int64_t> BalancedCut(const CallCosts& costs, const PipelineSchedule& schedule) {
  const size_t n = costs.num_calls();
  const int64_t parts = schedule.num_parts();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(n + 1, 0));
  std::vector<double> best(n + 1, kInfinite);  // of the first i calls in the parts so far
  best[0] = 0;
  for (int64_t p = 1; p <= parts; ++p) {
    std::vector<double> longer(n + 1, kInfinite);
    for (size_t i = p; i <= n; ++i) {
      for (size_t begin = i; begin-- > static_cast<size_t>(p) - 1;) {
        const double last = costs.Of(schedule.StageOf(p - 1), begin, i);
        if (const double most = std::max(best[begin], last); most <= longer[i]) {
          longer[i] = most;
          from[p][i] = begin;
        }
        if (last > best[begin] && begin + 1 < i) break;
      }
    }
    best = std::move(longer);
  }
  std::vector<int64_t> part_of(n, 0);
  size_t end = n;
  for (int64_t p = parts; p >= 1; --p) {
    for (size_t i = from[p][end]; i < end; ++i) part_of[i] = p - 1;
    end = from[p][end];
  }
  return part_of;
}

// Returns why the cut has this many parts, for messages.
std::string PartsText(const PipelineSchedule& schedule) {
  return schedule.virtual_stages == 1
             ? absl::StrCat("pp=", schedule.num_stages)
             : absl::StrCat(schedule.virtual_stages,
                            " parts on each stage of pp=", schedule.num_stages);
}

absl::Status CheckParts(const PipelineSchedule& schedule, int64_t num_calls) {
  const int64_t parts_max = std::min<int64_t>(kStagesMax, num_calls);
  if (schedule.num_parts() <= parts_max) return absl::OkStatus();
  const char* what = schedule.virtual_stages == 1 ? " stage" : " part";
  std::string expected = absl::StrCat("at most ", parts_max, what, parts_max == 1 ? "" : "s");
  std::string more;
  if (num_calls <= kStagesMax) {
    absl::StrAppend(&expected, ", as main has ", num_calls, num_calls == 1 ? " call" : " calls",
                    " (all nodes between two calls count as one)");
    more =
        "; for more, move layers into functions that main calls: only calls lie on stages of their "
        "own";
  }
  if (schedule.virtual_stages == 1) {
    return Rejected({"W0470", "mesh axis pp", expected, absl::StrCat(schedule.num_stages),
                     absl::StrCat("pp=", parts_max, more)});
  }
  return Rejected({"W0470", "pipeline.virtual_stages", expected,
                   absl::StrCat(schedule.num_parts(), ": ", PartsText(schedule)),
                   parts_max >= 2 * schedule.num_stages
                       ? absl::StrCat("pipeline.virtual_stages=", parts_max / schedule.num_stages)
                       : absl::StrCat("another schedule, or fewer stages", more)});
}

absl::Status CutCalls(const std::vector<std::string>& cut, const LayoutRules& rules,
                      const PipelineSchedule& schedule, Module* module) {
  std::vector<ModelCall>& calls = module->model.calls;
  const int64_t num_parts = schedule.num_parts();
  if (cut.empty() || num_parts == 1) {
    const std::vector<int64_t> part = BalancedCut(CallCosts(*module, rules, schedule), schedule);
    for (size_t i = 0; i < calls.size(); ++i) calls[i].part = part[i];
    return absl::OkStatus();
  }
  if (static_cast<int64_t>(cut.size()) != num_parts - 1) {
    return Rejected({"W0471", "pipeline.cut",
                     absl::StrCat(num_parts - 1, num_parts == 2 ? " cut for " : " cuts for ",
                                  PartsText(schedule)),
                     absl::StrCat(cut.size()),
                     "one call name per later part, or none for a balanced cut"});
  }
  std::vector<std::string> names;
  for (const ModelCall& call : calls) names.push_back(call.name);
  size_t position = 0;
  int64_t part = 0;
  for (const std::string& first : cut) {
    size_t at = std::find(names.begin(), names.end(), first) - names.begin();
    if (at < names.size() && at <= position) {
      return Rejected({"W0472", "pipeline.cut",
                       "call names in the order of main, none of them the first call",
                       absl::StrCat("\"", first, "\" after \"", names[position], "\""),
                       absl::StrCat("the order ", absl::StrJoin(names, ", "))});
    }
    if (at == names.size()) {
      std::string near = Nearest(first, names);
      return Rejected({"W0472", "pipeline.cut", "the name of a call of main",
                       absl::StrCat("\"", first, "\""),
                       near.empty() ? absl::StrCat("one of ", absl::StrJoin(names, ", "))
                                    : absl::StrCat("\"", near, "\"")});
    }
    for (; position < at; ++position) calls[position].part = part;
    ++part;
  }
  for (; position < calls.size(); ++position) calls[position].part = part;
  return absl::OkStatus();
}

}  // namespace

absl::Status AssignStages(const std::vector<std::string>& cut, const LayoutRules& rules,
                          const PipelineSchedule& schedule, Module* module) {
  std::vector<ModelCall>& calls = module->model.calls;
  WEIR_RETURN_IF_ERROR(CheckParts(schedule, static_cast<int64_t>(calls.size())));
  WEIR_RETURN_IF_ERROR(CutCalls(cut, rules, schedule, module));
  for (ModelCall& call : calls) call.stage = schedule.StageOf(call.part);
  return absl::OkStatus();
}

absl::Status AssignStages(const PipelineSettings& pipeline, const LayoutRules& rules,
                          PipelineSchedule* schedule, Module* module) {
  if (pipeline.places.empty()) return AssignStages(pipeline.cut, rules, *schedule, module);
  return PlaceCalls(pipeline.places, schedule, module);
}

void GiveStagesTheirFunctions(const LayoutRules& rules, Module* module) {
  if (!rules.DifferByStage()) return;
  Model& model = module->model;
  std::map<std::pair<int, int64_t>, int> copies;  // by the model's function and stage
  for (ModelCall& call : model.calls) {
    const int64_t stage = rules.FirstWithRulesOf(call.stage);
    const ModelFunction original = model.functions[call.model_function];
    int64_t& has = module->functions[original.forward].rules_of_stage;
    if (has < 0) has = stage;
    if (has == stage) continue;
    const auto [known, is_new] = copies.try_emplace({call.model_function, stage}, -1);
    if (is_new) {
      Function copy = module->functions[original.forward];
      copy.name = LayoutRules::NameOnStage(copy.name, stage);
      copy.rules_of_stage = stage;
      module->functions.push_back(std::move(copy));
      model.functions.push_back(original);
      model.functions.back().forward = static_cast<int>(module->functions.size()) - 1;
      known->second = static_cast<int>(model.functions.size()) - 1;
    }
    call.model_function = known->second;
  }
}

std::string CallsText(const Module& module) {
  const Model& model = module.model;
  std::string text = "calls\n";
  for (const ModelCall& call : model.calls) {
    const auto names = [&model](std::string* out, int value) {
      absl::StrAppend(out, "%", model.values[value].name);
    };
    absl::StrAppend(&text, "  ", absl::StrJoin(call.results, ", ", names), " = ", call.name, "(",
                    absl::StrJoin(call.args, ", ", names), ") by ",
                    module.functions[model.functions[call.model_function].forward].name, ", part ",
                    call.part, " on stage ", call.stage, "\n");
  }
  return text;
}

}  // namespace weir::compiler
