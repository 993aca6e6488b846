#include "compiler/search/search_layouts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/job/batch_dim.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/stage_meshes.h"
#include "compiler/search/job_trial.h"
#include "compiler/search/known_rules.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

constexpr size_t kKnownRulesMax = 216;  // six roles on three axes
constexpr int kChangeRounds = 3;
constexpr int kMemoryPrices = 8;
constexpr int kSettingsRounds = 2;
constexpr size_t kRulesWithSettings = 6;
constexpr int64_t kMicroBatchesMax = 64;  // per stage
// A change of the rules must gain this share of the step; less is noise of the estimate.
constexpr double kGain = 1e-4;

class Search {
 public:
  // `hints`: the first rules of `job` and of every candidate.
  Search(const proto::Job& job, size_t hints, const SearchOptions& options,
         std::unique_ptr<JobTrial> trial)
      : job_(job), hints_(hints), options_(options), trial_(std::move(trial)) {}

  absl::StatusOr<SearchReport> Run() {
    WEIR_ASSIGN_OR_RETURN(report_.present, Try(job_, FoundLayouts::Origin::kPresent, ""));
    Keep(report_.present);
    WEIR_RETURN_IF_ERROR(SearchRules(job_));
    for (int round = 0; round < kSettingsRounds && HasFreeSettings(); ++round) {
      const double before = report_.best[0].estimate.step_ns;
      TrySettings();
      const proto::Job settings = report_.best[0].job;
      WEIR_RETURN_IF_ERROR(SearchRules(settings));
      if (report_.best[0].estimate.step_ns >= before * (1 - kGain)) break;
    }
    WEIR_RETURN_IF_ERROR(DropIdleRules());
    TryCut();
    std::erase_if(report_.best,
                  [](const FoundLayouts& found) { return !found.estimate.uses_mesh; });
    if (report_.best.empty())
      return Rejected({"W0920", absl::StrCat("mesh ", trial_->stage_mesh().ToText()),
                       "axes that split some tensor of the job", "no rules that use every axis",
                       "a mesh of fewer devices"});
    if (static_cast<int>(report_.best.size()) > options_.results_max)
      report_.best.resize(options_.results_max);
    return std::move(report_);
  }

 private:
  using Origin = FoundLayouts::Origin;

  bool HasFreeSettings() const {
    return options_.free.micro_batches || options_.free.zero || options_.free.recompute;
  }

  // ---- candidates ----

  absl::StatusOr<FoundLayouts> Try(const proto::Job& variant, Origin origin,
                                   const std::string& name) {
    FoundLayouts found;
    found.job = variant;
    found.rules = RulesOf(variant);
    found.origin = origin;
    found.name = name;
    WEIR_ASSIGN_OR_RETURN(found.estimate, trial_->Estimate(variant));
    ++report_.compiled;
    found.fits = options_.memory_bytes <= 0 || found.estimate.device_bytes <= options_.memory_bytes;
    report_.memory_bounds = report_.memory_bounds || !found.fits;
    return found;
  }

  // Tries a variant that was not tried yet, and keeps it if the compiler takes it.
  std::optional<FoundLayouts> TryNew(const proto::Job& variant, Origin origin,
                                     const std::string& name = "") {
    std::string key;
    for (const RuleEntry& rule : RulesOf(variant)) absl::StrAppend(&key, ToText(rule), ";");
    absl::StrAppend(&key, variant.training().micro_batches(), ";", variant.training().zero_stage(),
                    ";", variant.training().zero_axis(), ";", variant.runtime().recompute_size(),
                    ";", variant.pipeline().cut_size());
    const auto known = tried_.find(key);
    if (known != tried_.end()) return known->second;
    std::optional<FoundLayouts> found;
    if (absl::StatusOr<FoundLayouts> tried = Try(variant, origin, name); tried.ok()) {
      found = *std::move(tried);
      Keep(*found);
    }
    tried_.emplace(std::move(key), found);
    return found;
  }

  static bool Better(const FoundLayouts& a, const FoundLayouts& b) {
    if (a.estimate.uses_mesh != b.estimate.uses_mesh) return a.estimate.uses_mesh;
    if (a.fits != b.fits) return a.fits;
    if (!a.fits) return a.estimate.device_bytes < b.estimate.device_bytes;
    return a.estimate.step_ns < b.estimate.step_ns;
  }

  // Returns whether candidates of one estimate count as the same layouts. On stages with meshes of
  // their own, rules that mean the same on the largest mesh may differ on the others.
  bool MayBeOne(const FoundLayouts& a, const FoundLayouts& b) const {
    return !HasStageMeshes(job_) || a.rules == b.rules;
  }

  void Keep(const FoundLayouts& found) {
    std::vector<FoundLayouts>& best = report_.best;
    for (FoundLayouts& other : best) {
      if (other.estimate.step_ns != found.estimate.step_ns ||
          other.estimate.device_bytes != found.estimate.device_bytes || !MayBeOne(other, found))
        continue;
      // The two estimates are equal, and fewer rules are easier to read.
      if (found.rules.size() < other.rules.size()) other = found;
      return;
    }
    best.insert(std::upper_bound(best.begin(), best.end(), found, Better), found);
    if (best.size() > kKept) best.pop_back();
  }

  // Returns a job with the hints, and then with those of `rules` that are about other dimensions or
  // axes.
  proto::Job WithRules(const proto::Job& settings, const RuleList& rules) const {
    RuleList all = RulesOf(job_);
    all.resize(hints_);
    for (const RuleEntry& rule : rules) {
      const bool is_hinted = std::any_of(
          all.begin(), all.begin() + static_cast<int64_t>(hints_),
          [&](const RuleEntry& hint) { return hint.dim == rule.dim && hint.axis == rule.axis; });
      if (!is_hinted) all.push_back(rule);
    }
    proto::Job variant = settings;
    SetRules(all, &variant);
    return variant;
  }

  // ---- rules ----

  // Searches rules for a job with these settings.
  absl::Status SearchRules(const proto::Job& settings) {
    WEIR_RETURN_IF_ERROR(ReadModel(settings));
    std::optional<FoundLayouts> best;
    for (const NamedRules& known :
         KnownRules(roles_, functions_, trial_->stage_mesh(), ZeroAxis(), kKnownRulesMax)) {
      std::optional<FoundLayouts> found =
          TryNew(WithRules(settings, known.rules), Origin::kKnown, known.name);
      if (found.has_value() && (!best.has_value() || Better(*found, *best)))
        best = std::move(found);
    }
    if (!report_.known.has_value()) report_.known = std::move(best);
    WEIR_ASSIGN_OR_RETURN(std::optional<FoundLayouts> solved, Solve(settings, 0));
    if (solved.has_value() && !solved->fits) WEIR_RETURN_IF_ERROR(SolveWithin(settings, *solved));
    Change();
    return absl::OkStatus();
  }

  // The axis over which ZeRO splits states, or -1.
  int ZeroAxis() const { return problem_options_.zero_stage > 0 ? problem_options_.zero_axis : -1; }

  // Compiles the model with a rule for each dimension of a loss over classes, so that the functions
  // have the ops with which such a dimension can be split.
  absl::Status ReadModel(const proto::Job& settings) {
    proto::Job variant = settings;
    RuleList rules;
    for (const sbp::MeshAxis& axis : trial_->stage_mesh().axes()) {
      for (const std::string& dim : class_dims_) rules.push_back({dim, axis.name});
    }
    SetRules(rules, &variant);
    variant.clear_layout();
    WEIR_ASSIGN_OR_RETURN(plan_, trial_->Compile(variant));
    if (class_dims_.empty() && !rules_read_) {
      rules_read_ = true;
      for (const Function& function : plan_->module.functions) {
        for (const Node& node : function.nodes) {
          if (node.op != "softmax_cross_entropy") continue;
          class_dims_.push_back(function.values[node.inputs[0]].type.dims.back().name);
        }
      }
      if (!class_dims_.empty()) return ReadModel(settings);
    }
    functions_ = trial_->CallsOf(*plan_);
    WEIR_ASSIGN_OR_RETURN(problem_options_.dims, ImportDims(settings));
    problem_options_.costs = options_.costs;
    problem_options_.boxings = trial_->boxings();
    problem_options_.mesh = trial_->stage_mesh();
    problem_options_.micro_batches = static_cast<double>(plan_->micro_batches);
    problem_options_.zero_stage = settings.training().zero_stage();
    problem_options_.states = StatesOfWeight(plan_->settings.training);
    problem_options_.zero_axis = trial_->stage_mesh().AxisIndex(plan_->settings.training.zero_axis);
    problem_options_.stages = static_cast<double>(trial_->num_stages());
    problem_options_.kept =
        static_cast<double>(std::min(plan_->micro_batches, trial_->num_stages()));
    if (!roles_.batch.empty()) return absl::OkStatus();
    WEIR_ASSIGN_OR_RETURN(const std::string batch, BatchDim(settings, problem_options_.dims));
    problem_options_.ns_per_byte = 0;
    WEIR_ASSIGN_OR_RETURN(problem_without_price_, MakeLayoutProblem(functions_, problem_options_));
    std::vector<sbp::TensorType> inputs;
    for (const ModelValue& value : plan_->module.model.values) {
      if (value.call < 0) inputs.push_back(value.type);
    }
    roles_ = RolesOf(*problem_without_price_, batch, inputs);
    if (options_.free.micro_batches) report_.batch_statistics = BatchStatistics();
    return absl::OkStatus();
  }

  // Tries the rules of the exact solution at a price of memory.
  absl::StatusOr<std::optional<FoundLayouts>> Solve(const proto::Job& settings,
                                                    double ns_per_byte) {
    std::optional<LayoutProblem> made;
    if (ns_per_byte == 0) made = std::exchange(problem_without_price_, std::nullopt);
    if (!made.has_value()) {
      problem_options_.ns_per_byte = ns_per_byte;
      WEIR_ASSIGN_OR_RETURN(made, MakeLayoutProblem(functions_, problem_options_));
    }
    const LayoutProblem& problem = *made;
    const MinSumSolution solution = SolveMinSum(problem.problem);
    ++report_.solved;
    report_.exact = report_.exact && solution.exact;
    return TryNew(
        WithRules(settings, FindRules(problem, functions_, solution.choice, trial_->stage_mesh())),
        Origin::kSolved);
  }

  // Looks for the lowest price of memory at which the solution fits.
  absl::Status SolveWithin(const proto::Job& settings, const FoundLayouts& without_price) {
    // At this price the memory costs as much as the whole step.
    double high =
        without_price.estimate.step_ns / std::max(1.0, without_price.estimate.device_bytes);
    double low = 0;
    for (int price = 0; price < kMemoryPrices; ++price) {
      const double between = low == 0 ? high : std::sqrt(low * high);
      WEIR_ASSIGN_OR_RETURN(const std::optional<FoundLayouts> found, Solve(settings, between));
      const bool fits = found.has_value() && found->fits;
      if (fits) {
        high = between;
        if (low == 0) low = between / 1024;
      } else if (low == 0) {
        high *= 16;
      } else {
        low = between;
      }
    }
    return absl::OkStatus();
  }

  // Makes small changes of the best rules as long as they gain.
  void Change() {
    for (int round = 0; round < kChangeRounds; ++round) {
      const FoundLayouts from = report_.best[0];
      for (const RuleList& changed : ChangesOf(from.rules))
        TryNew(WithRules(from.job, changed), Origin::kChanged);
      if (!Better(report_.best[0], from) ||
          report_.best[0].estimate.step_ns > from.estimate.step_ns * (1 - kGain))
        return;
    }
  }

  std::vector<RuleList> ChangesOf(const RuleList& rules) const {
    std::vector<RuleList> all;
    const sbp::Mesh& mesh = trial_->stage_mesh();
    const auto first = static_cast<int64_t>(hints_);
    for (size_t i = hints_; i < rules.size(); ++i) {
      RuleList& without = all.emplace_back(rules);
      without.erase(without.begin() + static_cast<int64_t>(i));
      if (i + 1 < rules.size() && rules[i].axis == rules[i + 1].axis) {
        RuleList& swapped = all.emplace_back(rules);
        std::swap(swapped[i], swapped[i + 1]);
      }
      if (IsOfParameter(functions_, rules[i].dim)) {
        RuleScope& scope = all.emplace_back(rules)[i].scope;
        scope = scope == RuleScope::kAll ? RuleScope::kActivations : RuleScope::kAll;
      }
    }
    std::vector<std::string> dims = roles_.inner;
    dims.push_back(roles_.batch);
    if (!roles_.sequence.empty()) dims.push_back(roles_.sequence);
    dims.insert(dims.end(), roles_.others.begin(), roles_.others.end());
    for (const sbp::MeshAxis& axis : mesh.axes()) {
      if (axis.size == 1) continue;
      for (const std::string& dim : dims) {
        const bool has = std::any_of(rules.begin(), rules.end(), [&](const RuleEntry& rule) {
          return rule.axis == axis.name && rule.dim == dim;
        });
        if (has) continue;
        all.emplace_back(rules).push_back({dim, axis.name});
        all.emplace_back(rules).insert(all.back().begin() + first, {dim, axis.name});
      }
    }
    return all;
  }

  // Drops rules of the best results that change nothing, and results that are then alike.
  absl::Status DropIdleRules() {
    std::vector<FoundLayouts>& best = report_.best;
    std::set<std::string> known;  // the jobs of the results that are done
    while (known.size() < std::min(best.size(), static_cast<size_t>(options_.results_max))) {
      const size_t done = known.size();
      FoundLayouts& found = best[done];
      for (size_t i = found.rules.size(); found.origin != Origin::kPresent && i-- > hints_;) {
        RuleList fewer = found.rules;
        fewer.erase(fewer.begin() + static_cast<int64_t>(i));
        const absl::StatusOr<FoundLayouts> without =
            Try(WithRules(found.job, fewer), found.origin, found.name);
        if (!without.ok() || without->estimate.step_ns != found.estimate.step_ns ||
            without->estimate.device_bytes != found.estimate.device_bytes ||
            !without->estimate.uses_mesh)
          continue;
        found = *without;
      }
      if (!known.insert(found.job.SerializeAsString()).second)
        best.erase(best.begin() + static_cast<std::ptrdiff_t>(done));
    }
    return absl::OkStatus();
  }

  // ---- settings ----

  // Returns the first operation that takes statistics over the samples of a micro-batch, as batch
  // normalisation does, or "". Another number of micro-batches would be another computation.
  std::string BatchStatistics() const {
    for (const Function& function : plan_->module.functions) {
      for (const Node& node : function.nodes) {
        if (node.op != "reduce_variance") continue;
        const std::vector<sbp::TensorDim>& dims = function.values[node.inputs[0]].type.dims;
        const std::vector<int64_t> axes = node.attrs.Ints("axes");
        for (size_t axis = 0; axis < dims.size(); ++axis) {
          const bool reduced = axes.empty() || std::find(axes.begin(), axes.end(),
                                                         static_cast<int64_t>(axis)) != axes.end();
          if (reduced && dims[axis].name == roles_.batch)
            return absl::StrCat(function.name, "/", node.name);
        }
      }
    }
    return "";
  }

  std::vector<int64_t> MicroBatches() const {
    if (!options_.free.micro_batches || !report_.batch_statistics.empty())
      return {job_.training().micro_batches()};
    const auto dims = ImportDimTable(job_);
    if (!dims.ok() || dims->count(roles_.batch) == 0) return {job_.training().micro_batches()};
    const int64_t batch = dims->at(roles_.batch).size;
    std::vector<int64_t> counts;
    for (int64_t n = 1; n <= std::min(batch, kMicroBatchesMax * trial_->num_stages()); n *= 2) {
      if (batch % n == 0) counts.push_back(n);
      // With a pipeline, whole rounds of the stages.
      if (trial_->num_stages() > 1 && batch % (n * trial_->num_stages()) == 0)
        counts.push_back(n * trial_->num_stages());
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
  }

  // Returns the axis over which ZeRO splits states: the job's; or else the largest axis of the
  // batch.
  std::string ZeroAxisOf(const proto::Job& variant) const {
    if (!variant.training().zero_axis().empty()) return variant.training().zero_axis();
    const sbp::Mesh& mesh = trial_->stage_mesh();
    if (mesh.AxisIndex("dp") >= 0) return "";
    std::string best;
    int64_t best_size = 1;
    for (const RuleEntry& rule : RulesOf(variant)) {
      const int axis = mesh.AxisIndex(rule.axis);
      if (rule.dim != roles_.batch || axis < 0 || mesh.size(axis) <= best_size) continue;
      best = rule.axis;
      best_size = mesh.size(axis);
    }
    return best;
  }

  // Tries the best rules with all free settings.
  void TrySettings() {
    std::vector<proto::Job> bases;
    for (const FoundLayouts& found : report_.best) {
      if (bases.size() >= kRulesWithSettings) break;
      const bool new_rules = std::none_of(bases.begin(), bases.end(), [&](const proto::Job& base) {
        return RulesOf(base) == found.rules;
      });
      if (new_rules) bases.push_back(found.job);
    }
    const std::vector<int> zero_stages = options_.free.zero
                                             ? std::vector<int>{0, 1, 2, 3}
                                             : std::vector<int>{job_.training().zero_stage()};
    for (const proto::Job& base : bases) {
      for (int64_t micro_batches : MicroBatches()) {
        for (int zero : zero_stages) {
          proto::Job variant = base;
          variant.mutable_training()->set_micro_batches(micro_batches);
          variant.mutable_training()->set_zero_stage(zero);
          if (zero > 0) {
            if (const std::string axis = ZeroAxisOf(base); !axis.empty())
              variant.mutable_training()->set_zero_axis(axis);
          }
          TryNew(variant, Origin::kChanged);
          if (!options_.free.recompute) continue;
          RecomputeCalls(&variant);
          TryNew(variant, Origin::kChanged);
        }
      }
    }
  }

  // Keeps only the inputs of functions that the model calls more than once.
  void RecomputeCalls(proto::Job* variant) const {
    variant->mutable_runtime()->clear_recompute();
    std::map<std::string, int> calls;
    for (const ModelCall& call : trial_->calls()) ++calls[trial_->FunctionOf(call)];
    for (const proto::Function& function : job_.graph().function()) {
      const auto found = calls.find(function.name());
      if (found != calls.end() && found->second > 1)
        variant->mutable_runtime()->add_recompute()->set_function(function.name());
    }
  }

  void TryCut() {
    if (!options_.free.cut || trial_->num_stages() == 1) return;
    const FoundLayouts from = report_.best[0];
    const absl::StatusOr<std::vector<std::string>> cut = trial_->BestCut(from.job);
    if (!cut.ok() || cut->empty()) return;
    proto::Job variant = from.job;
    for (const std::string& name : *cut) variant.mutable_pipeline()->add_cut(name);
    absl::StatusOr<FoundLayouts> found = Try(variant, from.origin, from.name);
    if (found.ok() && Better(*found, from) &&
        found->estimate.step_ns < from.estimate.step_ns * (1 - kGain))
      report_.best.insert(report_.best.begin(), *std::move(found));
  }

  static constexpr size_t kKept = 32;

  const proto::Job& job_;
  const size_t hints_;
  const SearchOptions& options_;
  const std::unique_ptr<JobTrial> trial_;
  SearchReport report_;
  std::map<std::string, std::optional<FoundLayouts>> tried_;
  std::unique_ptr<LogicalPlan> plan_;  // of ReadModel
  std::vector<FunctionCalls> functions_;
  LayoutProblemOptions problem_options_;
  std::optional<LayoutProblem> problem_without_price_;  // of the model just read, until solved
  DimRoles roles_;
  std::vector<std::string> class_dims_;
  bool rules_read_ = false;
};

}  // namespace

FreeSettings SettingsLeftFree(const proto::Job& job) {
  FreeSettings free;
  free.cut =
      job.pipeline().cut_size() == 0 && job.pipeline().place_size() == 0 && !HasStageMeshes(job);
  if (job.graph().without_loss()) return free;  // the others are settings of a training
  free.micro_batches = job.training().micro_batches() <= 1;
  free.zero = job.training().zero_stage() == 0;
  free.recompute =
      job.runtime().recompute_size() == 0 &&
      std::none_of(job.graph().function().begin(), job.graph().function().end(),
                   [](const proto::Function& function) { return function.has_keep(); });
  return free;
}

std::vector<ChoiceTakenBack> ChoicesOf(const proto::Job& found, const proto::Job& before) {
  std::vector<ChoiceTakenBack> choices;
  const auto take_back = [&](std::string choice) {
    choices.push_back({std::move(choice), found});
    return &choices.back().job;
  };
  const RuleList rules_before = RulesOf(before), rules_found = RulesOf(found);
  const sbp::Mesh mesh = LargestMeshOf(before);
  for (const sbp::MeshAxis& axis : mesh.axes()) {
    if (axis.size == 1 || axis.name == sbp::kPipelineAxis) continue;
    RuleList had, without, has;
    for (const RuleEntry& rule : rules_before)
      if (rule.axis == axis.name) had.push_back(rule);
    for (const RuleEntry& rule : rules_found)
      (rule.axis == axis.name ? has : without).push_back(rule);
    if (had == has) continue;
    without.insert(without.end(), had.begin(), had.end());
    SetRules(without, take_back(absl::StrCat("rules of ", axis.name)));
  }
  const proto::Training &had = before.training(), &has = found.training();
  // 0 micro-batches are 1.
  const int64_t batches = std::max<int64_t>(1, has.micro_batches()),
                batches_before = std::max<int64_t>(1, had.micro_batches());
  if (batches != batches_before) {
    take_back(absl::StrCat(batches, batches == 1 ? " micro-batch" : " micro-batches",
                           " instead of ", batches_before))
        ->mutable_training()
        ->set_micro_batches(had.micro_batches());
  }
  if (has.zero_stage() != had.zero_stage()) {
    take_back(absl::StrCat("ZeRO stage ", has.zero_stage(), " instead of ", had.zero_stage()))
        ->mutable_training()
        ->set_zero_stage(had.zero_stage());
  }
  if (found.runtime().recompute_size() != before.runtime().recompute_size()) {
    *take_back("recomputation of repeated functions")->mutable_runtime()->mutable_recompute() =
        before.runtime().recompute();
  }
  if (found.pipeline().cut_size() != before.pipeline().cut_size()) {
    *take_back("the cut of the pipeline")->mutable_pipeline()->mutable_cut() =
        before.pipeline().cut();
  }
  return choices;
}

namespace {

// Says why a search needs the loss of a job (W0416), which the job may otherwise do without.
absl::Status OfSearch(const absl::Status& flaw) {
  std::optional<Problem> problem = ProblemOf(flaw);
  if (!problem.has_value() || problem->code != "W0416") return flaw;
  absl::StrAppend(&problem->expected,
                  ", as the search for rules compares the times of training steps");
  problem->hint = absl::StrCat(
      "rules in the job and rules: WRITTEN, for a job that does not train; "
      "or ",
      problem->hint);
  return ErrorOf(flaw.code(), *problem);
}

// The rules that a search finds are for all stages (W0459).
absl::Status CheckRulesAreOfAllStages(const proto::Job& job) {
  for (const proto::Rule& rule : job.rule()) {
    if (rule.stage_size() == 0) continue;
    return Rejected({"W0459", absl::StrCat("rule ", rule.dim(), " -> ", rule.axis()),
                     "rules for all stages: a search finds rules that all stages share",
                     absl::StrCat("a rule for stage ", rule.stage(0)),
                     "remove rule.stage, keep rules: WRITTEN, or search for a mesh without pp"});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SearchReport> SearchLayouts(const proto::Job& job, const SearchOptions& options) {
  absl::StatusOr<std::unique_ptr<JobTrial>> made = JobTrial::Create(job, options.costs);
  if (!made.ok()) return OfSearch(made.status());
  std::unique_ptr<JobTrial> trial = *std::move(made);
  if (trial->num_stages() > 1) WEIR_RETURN_IF_ERROR(CheckRulesAreOfAllStages(job));
  proto::Job as_written = job;
  as_written.clear_rules();
  const size_t hints = job.rules() == proto::Job::AUTO ? RulesOf(job).size() : 0;
  const sbp::Mesh& mesh = trial->stage_mesh();
  if (mesh.num_ranks() * trial->num_stages() == 1) {
    return Rejected({"W0990",
                     mesh.num_axes() == 0 ? "the mesh" : absl::StrCat("mesh ", mesh.ToText()),
                     "several devices to lay the model over", "one", "--mesh dp=2,tp=4"});
  }
  return Search(as_written, hints, options, std::move(trial)).Run();
}

}  // namespace weir::compiler
