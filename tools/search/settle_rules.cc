#include "tools/search/settle_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/job/stage_meshes.h"
#include "compiler/search/rule_list.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/train/memory_budget.h"

namespace weir::search {
namespace {

// Rules that are predicted, besides the best of the usual.
constexpr int kRulesPredicted = 3;

struct Bound {
  double bytes = 0;  // of a device; 0: none
  std::string text;  // what bounds
  bool is_of_machine = false;
};

// Returns the least memory of the cluster's devices; 0: the cluster says nothing of it.
double DeviceBytesOf(const proto::Cluster& cluster) {
  double least = 0;
  for (const auto& device : cluster.device()) {
    const double bytes = device.memory_bytes();
    if (bytes > 0 && (least == 0 || bytes < least)) least = bytes;
  }
  return least;
}

// Returns the bound that `weir plan` and `weir train` hold the job to.
Bound BoundOf(const proto::Job& job, const sim::JobCosts& costs, MachineMemory machine) {
  const train::MemoryBudget budget = train::BudgetOf(job);
  const auto of_job = static_cast<double>(budget.device_bytes);
  const double of_cluster =
      costs.source() == sim::JobCosts::Source::kFile ? DeviceBytesOf(costs.cluster()) : 0;
  if (of_job > 0 && (of_cluster <= 0 || of_job <= of_cluster))
    return {of_job, "runtime.memory_bytes_max", false};
  if (of_cluster > 0) return {of_cluster, "that of a device of the cluster", false};
  if (machine == MachineMemory::kIgnored) return {};
  const int64_t all = compiler::NumDevices(job, compiler::kDevicesMax),
                of_host = job.mesh().devices_per_host();
  const int64_t here = of_host > 1 ? std::min(all, of_host) : all;
  return {static_cast<double>(budget.machine_bytes) / static_cast<double>(here),
          absl::StrCat("the part of each of ", here, " devices in the memory of ", budget.machine),
          true};
}

}  // namespace

bool IsSearched(const proto::Job& job) {
  const sbp::Mesh mesh = compiler::LargestMeshOf(job);
  return job.rules() == proto::Job::AUTO &&
         std::any_of(mesh.axes().begin(), mesh.axes().end(), [](const sbp::MeshAxis& axis) {
           return axis.size > 1 && axis.name != sbp::kPipelineAxis;
         });
}

absl::StatusOr<std::optional<SettledRules>> SettleRules(const sim::JobCosts& costs,
                                                        MachineMemory machine, proto::Job* job) {
  if (!IsSearched(*job)) {
    job->clear_rules();
    return std::nullopt;
  }
  const Bound bound = BoundOf(*job, costs, machine);
  RankOptions options;
  options.memory_bytes = bound.bytes;
  options.memory_of = bound.text;
  options.top = kRulesPredicted;
  options.beside = RankOptions::Beside::kKnown;
  options.if_nothing_fits = RankOptions::IfNothingFits::kIsAResult;
  WEIR_ASSIGN_OR_RETURN(RankedSearch ranked, RankLayouts(*job, costs, options));
  if (!ranked.rows[0].fits && bound.is_of_machine && machine == MachineMemory::kShould) {
    options.memory_bytes = 0;
    WEIR_ASSIGN_OR_RETURN(ranked, RankLayouts(*job, costs, options));
  }
  const RankedLayouts& best = ranked.rows[0];
  if (!best.fits) {
    return Rejected(
        {"W0761", absl::StrCat("rules: AUTO on mesh ", compiler::LargestMeshOf(*job).ToText()),
         absl::StrCat("rules with which a device needs at most ", BytesText(bound.bytes), " (",
                      bound.text, ")"),
         absl::StrCat("at least ", BytesText(best.device_bytes), ", which the smallest of ",
                      ranked.compiled, " need"),
         "weir search, which also changes micro-batches, ZeRO and recomputation; more devices; "
         "training.zero_stage=3; training.micro_batches"});
  }
  SettledRules settled;
  settled.hints = static_cast<size_t>(job->rule_size());
  settled.mesh = compiler::LargestMeshOf(*job);
  if (const RankedLayouts* usual = ranked.Find(RankedLayouts::Row::kKnown); usual != nullptr)
    settled.usual = *usual;
  settled.best = std::move(ranked.rows[0]);
  *job = settled.best.found.job;
  return settled;
}

std::string SettledText(const SettledRules& settled) {
  std::vector<std::string> axes;
  for (const std::string& line : compiler::AxisLines(settled.best.found.rules, settled.mesh)) {
    const size_t space = line.find(' ');
    axes.push_back(absl::StrCat(line.substr(0, space), " ",
                                absl::StripLeadingAsciiWhitespace(line.substr(space))));
  }
  const RankedLayouts& best = settled.best;
  const std::string text = absl::StrCat("rules found: ", absl::StrJoin(axes, "; "), "; a step of ",
                                        TimeText(best.step_ns), " (", Name(best.source), ")");
  if (!settled.usual.has_value()) return text;
  const RankedLayouts& usual = *settled.usual;
  if (best.row == RankedLayouts::Row::kKnown)
    return absl::StrCat(text, ", the best of the usual rules (", usual.found.name, ")");
  const std::string known = absl::StrCat("the best of the usual rules (", usual.found.name, ")");
  if (!usual.fits) return absl::StrCat(text, "; ", known, " do not fit the memory");
  if (usual.source != best.source || usual.step_ns <= 0) return text;
  const double share = (1 - best.step_ns / usual.step_ns) * 100;
  if (share < 0.05) return absl::StrCat(text, ", as long as with ", known);
  return absl::StrCat(text, absl::StrFormat(", %.1f %% less than with ", share), known);
}

std::string RulesToPaste(const SettledRules& settled) {
  std::string text;
  for (const compiler::RuleEntry& rule : settled.best.found.rules) {
    absl::StrAppend(&text, "rule { dim: \"", rule.dim, "\" axis: \"", rule.axis, "\"",
                    rule.scope == compiler::RuleScope::kActivations  ? " scope: ACTIVATIONS"
                    : rule.scope == compiler::RuleScope::kParameters ? " scope: PARAMETERS"
                                                                     : "",
                    " }\n");
  }
  return text;
}

}  // namespace weir::search
