#include "compiler/passes/assign_stages.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/passes/place_calls.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr int64_t kStagesMax = 1024;

double Flops(const Function& function) {
  double total = 1;  // never 0, so that every call counts
  for (const Node& node : function.nodes) {
    const ops::OpDef* def = ops::OpRegistry::Find(node.op);
    if (def == nullptr || !def->flops) continue;
    std::vector<sbp::TensorType> inputs, outputs;
    for (ops::ValueId input : node.inputs) inputs.push_back(function.values[input].type);
    for (ops::ValueId output : node.outputs) outputs.push_back(function.values[output].type);
    total += def->flops(node.attrs, inputs, outputs);
  }
  return total;
}

// Returns contiguous parts whose largest sum is smallest. cost[i] is the cost of call i. Exact, by
// dynamic programming. A later start of the last part makes that part cheaper and the parts before
// it dearer. The best start (the first of equals) is therefore where the two costs cross.
std::vector<int64_t> BalancedCut(const std::vector<double>& cost, int64_t parts) {
  size_t n = cost.size();
  std::vector<double> prefix(n + 1, 0);
  for (size_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + cost[i];
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(parts + 1, std::vector<double>(n + 1, kInfinite));
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (int64_t p = 1; p <= parts; ++p) {
    for (size_t i = p; i <= n; ++i) {
      size_t low = p - 1, high = i - 1;
      while (low < high) {
        size_t middle = (low + high) / 2;
        if (best[p - 1][middle] >= prefix[i] - prefix[middle]) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      if (low > static_cast<size_t>(p) - 1 &&
          prefix[i] - prefix[low - 1] <= std::max(best[p - 1][low], prefix[i] - prefix[low]))
        --low;
      best[p][i] = std::max(best[p - 1][low], prefix[i] - prefix[low]);
      from[p][i] = low;
    }
  }
  std::vector<int64_t> stage(n, 0);
  size_t end = n;
  for (int64_t p = parts; p >= 1; --p) {
    for (size_t i = from[p][end]; i < end; ++i) stage[i] = p - 1;
    end = from[p][end];
  }
  return stage;
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

absl::Status CutCalls(const std::vector<std::string>& cut, const PipelineSchedule& schedule,
                      Module* module) {
  std::vector<ModelCall>& calls = module->model.calls;
  const int64_t num_parts = schedule.num_parts();
  if (cut.empty() || num_parts == 1) {
    std::vector<double> cost;
    for (const ModelCall& call : calls) {
      cost.push_back(
          Flops(module->functions[module->model.functions[call.model_function].forward]));
    }
    std::vector<int64_t> part = BalancedCut(cost, num_parts);
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

absl::Status AssignStages(const std::vector<std::string>& cut, const PipelineSchedule& schedule,
                          Module* module) {
  std::vector<ModelCall>& calls = module->model.calls;
  WEIR_RETURN_IF_ERROR(CheckParts(schedule, static_cast<int64_t>(calls.size())));
  WEIR_RETURN_IF_ERROR(CutCalls(cut, schedule, module));
  for (ModelCall& call : calls) call.stage = schedule.StageOf(call.part);
  return absl::OkStatus();
}

absl::Status AssignStages(const PipelineSettings& pipeline, PipelineSchedule* schedule,
                          Module* module) {
  if (pipeline.places.empty()) return AssignStages(pipeline.cut, *schedule, module);
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
