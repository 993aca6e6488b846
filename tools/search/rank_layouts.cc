#include "tools/search/rank_layouts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/job/import_graph.h"
#include "compiler/job/mesh_use.h"
#include "compiler/job/stage_meshes.h"
#include "compiler/search/job_trial.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/sim/predict_step.h"
#include "tools/train/memory_budget.h"

namespace weir::search {
namespace {

// The acts that all virtual runs of a search may take together, after the first two rows. A row
// beyond that has the estimate of the search, at the scale of the row that is best by it.
constexpr double kActsMax = 4e5;
// Searches under a bound of memory, each with the estimates held to what the plans of the last
// needed.
constexpr int kMemoryRounds = 3;
constexpr double kMemorySlack = 0.98;
constexpr double kMemoryTolerance = 0.1;

// Figures are what the plan of a job says of a step.
struct Figures {
  Source source = Source::kEstimated;
  double step_ns = 0, device_bytes = 0;
  double acts = 0;        // of the virtual run
  absl::Status mesh_use;  // W0920, as CheckMeshUse says
};

// By the bytes of the job: the present rules are a row of every round.
using KnownFigures = std::map<std::string, Figures>;

bool IsBetter(const RankedLayouts& a, const RankedLayouts& b) {
  if (a.fits != b.fits) return a.fits;
  // The estimates of stages with meshes of their own are about other stages.
  const bool is_estimated = a.source == Source::kEstimated;
  if (compiler::HasStageMeshes(a.found.job) && is_estimated != (b.source == Source::kEstimated))
    return !is_estimated;
  return a.fits ? a.step_ns < b.step_ns : a.device_bytes < b.device_bytes;
}

// Returns the memory of the plan over that of the estimate, of the first row that was planned and
// found.
double PlannedShare(const std::vector<RankedLayouts>& rows) {
  for (const RankedLayouts& row : rows) {
    if (row.row == RankedLayouts::Row::kPresent || row.source == Source::kEstimated ||
        row.found.estimate.device_bytes <= 0)
      continue;
    return row.device_bytes / row.found.estimate.device_bytes;
  }
  return 1;
}

class Ranking {
 public:
  // `known` has figures by the same costs, and gets those found here.
  Ranking(const sim::JobCosts& costs, const RankOptions& options, KnownFigures* known)
      : costs_(costs), options_(options), known_(*known) {}

  void Add(const compiler::FoundLayouts& found, RankedLayouts::Row row) {
    for (RankedLayouts& known : rows_) {
      if (known.found.estimate.step_ns != found.estimate.step_ns ||
          known.found.estimate.device_bytes != found.estimate.device_bytes ||
          (compiler::HasStageMeshes(found.job) && known.found.rules != found.rules))
        continue;
      // Fewer rules that say the same are easier to read.
      if (known.row == RankedLayouts::Row::kKnown && row == RankedLayouts::Row::kFound &&
          found.rules.size() < known.found.rules.size()) {
        const std::string name = known.found.name;
        known.found = found;
        known.found.name = name;
      }
      return;
    }
    RankedLayouts& ranked = rows_.emplace_back();
    ranked.found = found;
    ranked.row = row;
  }

  // Predicts the rows in their order, as far as the acts reach. The first row that was found is the
  // best by the estimate.
  absl::Status Predict() {
    std::optional<size_t> scale;
    for (size_t i = 0; i < rows_.size(); ++i) {
      RankedLayouts& row = rows_[i];
      if (!scale.has_value() && row.row == RankedLayouts::Row::kFound) scale = i;
      row.device_bytes = row.found.estimate.device_bytes;
      row.step_ns = row.found.estimate.step_ns;
      if (i < 2 || HasActsLeft()) {
        WEIR_RETURN_IF_ERROR(PredictRow(&row));
      } else if (scale.has_value()) {
        const RankedLayouts& best = rows_[*scale];
        row.step_ns *= best.step_ns / best.found.estimate.step_ns;
        row.device_bytes *= best.device_bytes / best.found.estimate.device_bytes;
      }
      HoldToMemory(&row);
    }
    std::stable_sort(rows_.begin(), rows_.end(), IsBetter);
    // On stages with meshes of their own, plans decide what is best.
    for (size_t i = 0; i < rows_.size() && compiler::HasStageMeshes(rows_[0].found.job); ++i) {
      if (!rows_[0].fits || rows_[0].source != Source::kEstimated) break;
      WEIR_RETURN_IF_ERROR(PredictRow(&rows_[0]));
      HoldToMemory(&rows_[0]);
      std::stable_sort(rows_.begin(), rows_.end(), IsBetter);
    }
    return absl::OkStatus();
  }

  bool HasActsLeft() const { return acts_ < kActsMax; }
  // Returns the acts of a virtual run, on average over those so far.
  double ActsOfRow() const { return acts_ / static_cast<double>(std::max<int64_t>(1, runs_)); }

  absl::StatusOr<Figures> FiguresOf(const proto::Job& job) {
    std::string key = job.SerializeAsString();
    if (const auto known = known_.find(key); known != known_.end()) {
      CountRun(known->second.acts);
      return known->second;
    }
    compiler::CompileOptions options;
    options.mode = compiler::ModeOf(job);
    options.costs = &costs_.model();
    WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> plan,
                          compiler::CompileJob(job, options));
    Figures figures;
    figures.mesh_use = compiler::CheckMeshUse(*plan);
    const sim::StepPrediction prediction = sim::PredictStep(*plan, costs_);
    if (prediction.step_ns > 0) {
      figures.step_ns = prediction.step_ns;
      figures.source = prediction.report.has_value() ? Source::kSimulated : Source::kPlanned;
    }
    figures.acts =
        prediction.report.has_value() ? static_cast<double>(prediction.report->acts) : kActsMax;
    CountRun(figures.acts);
    WEIR_ASSIGN_OR_RETURN(const train::MemoryNeed need, train::NeedOf(*plan));
    figures.device_bytes = static_cast<double>(need.bytes);
    known_.emplace(std::move(key), figures);
    return figures;
  }

  // W0920 of the first rules found whose plan leaves an axis of the mesh unused.
  const absl::Status& mesh_use() const { return mesh_use_; }

  // Returns the rows in their order after Predict.
  std::vector<RankedLayouts> TakeRows() && { return std::move(rows_); }

 private:
  void CountRun(double acts) {
    ++runs_;
    acts_ += acts;
  }

  absl::Status PredictRow(RankedLayouts* row) {
    const absl::StatusOr<Figures> figures = FiguresOf(row->found.job);
    if (!figures.ok()) {
      // The present job must compile; of a result, the reason is in its figures.
      if (row->row == RankedLayouts::Row::kPresent) return figures.status();
      row->fits = false;
      return absl::OkStatus();
    }
    if (figures->step_ns > 0) row->step_ns = figures->step_ns;
    row->source = figures->source;
    row->device_bytes = figures->device_bytes;
    // A run would refuse these rules. The search has looked at equal stages alone.
    if (row->row != RankedLayouts::Row::kPresent && !figures->mesh_use.ok()) {
      row->fits = false;
      mesh_use_.Update(figures->mesh_use);
    }
    return absl::OkStatus();
  }

  void HoldToMemory(RankedLayouts* row) const {
    row->fits =
        row->fits && (options_.memory_bytes <= 0 || row->device_bytes <= options_.memory_bytes);
  }

  const sim::JobCosts& costs_;
  const RankOptions& options_;
  KnownFigures& known_;
  std::vector<RankedLayouts> rows_;
  absl::Status mesh_use_;
  double acts_ = 0;
  int64_t runs_ = 0;
};

// Fills in the savings of rows[0]: from virtual runs if that row has one and all choices can have
// one, else from estimates. `acts_of_row`: of a virtual run of a row.
absl::Status AddSavings(const proto::Job& job, const sim::JobCosts& costs,
                        const RankOptions& options, double acts_of_row, KnownFigures* known,
                        RankedSearch* ranked) {
  const RankedLayouts& first = ranked->rows[0];
  const std::vector<compiler::ChoiceTakenBack> choices = compiler::ChoicesOf(first.found.job, job);
  Ranking runs(costs, options, known);
  // Runs that would be too many in the end are not begun: their figures would be dropped.
  bool are_simulated = first.source == Source::kSimulated &&
                       acts_of_row * static_cast<double>(choices.size()) < kActsMax;
  for (const compiler::ChoiceTakenBack& choice : choices) {
    if (!are_simulated) break;
    const absl::StatusOr<Figures> figures = runs.FiguresOf(choice.job);
    if (!figures.ok()) continue;
    are_simulated = figures->source == Source::kSimulated && runs.HasActsLeft();
    ranked->savings.push_back({choice.choice, figures->step_ns - first.step_ns,
                               figures->device_bytes - first.device_bytes});
  }
  ranked->savings_source = Source::kSimulated;
  if (are_simulated) return absl::OkStatus();
  ranked->savings_source = Source::kEstimated;
  ranked->savings.clear();
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::JobTrial> trial,
                        compiler::JobTrial::Create(job, &costs.model()));
  for (const compiler::ChoiceTakenBack& choice : choices) {
    const absl::StatusOr<compiler::StepEstimate> estimate = trial->Estimate(choice.job);
    if (!estimate.ok()) continue;
    ranked->savings.push_back({choice.choice, estimate->step_ns - first.found.estimate.step_ns,
                               estimate->device_bytes - first.found.estimate.device_bytes});
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(Source source) {
  switch (source) {
    case Source::kSimulated: return "simulated";
    case Source::kPlanned: return "planned";
    case Source::kEstimated: return "estimated";
  }
  return "";
}

const RankedLayouts* RankedSearch::Find(RankedLayouts::Row row) const {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [row](const RankedLayouts& other) { return other.row == row; });
  return found == rows.end() ? nullptr : &*found;
}

absl::StatusOr<RankedSearch> RankLayouts(const proto::Job& job, const sim::JobCosts& costs,
                                         const RankOptions& options) {
  compiler::SearchOptions search;
  search.costs = &costs.model();
  search.memory_bytes = options.memory_bytes;
  search.free = options.free;
  search.results_max = options.top;
  RankedSearch ranked;
  ranked.memory_bytes = options.memory_bytes;
  ranked.devices = compiler::NumDevices(job, compiler::kDevicesMax);
  KnownFigures known;
  double acts_of_row = 0;
  absl::Status mesh_use;
  for (int round = 0; round < kMemoryRounds; ++round) {
    WEIR_ASSIGN_OR_RETURN(const compiler::SearchReport report,
                          compiler::SearchLayouts(job, search));
    Ranking ranking(costs, options, &known);
    const bool has_present = options.beside == RankOptions::Beside::kPresentAndKnown;
    if (has_present) {
      ranking.Add(report.present, RankedLayouts::Row::kPresent);
      ranking.Add(report.best[0], RankedLayouts::Row::kFound);
    }
    if (report.known.has_value()) ranking.Add(*report.known, RankedLayouts::Row::kKnown);
    for (const compiler::FoundLayouts& found : report.best)
      ranking.Add(found, RankedLayouts::Row::kFound);
    WEIR_RETURN_IF_ERROR(ranking.Predict());
    acts_of_row = ranking.ActsOfRow();
    mesh_use.Update(ranking.mesh_use());
    std::vector<RankedLayouts> rows = std::move(ranking).TakeRows();
    ranked.compiled += report.compiled;
    ranked.solved += report.solved;
    ranked.batch_statistics = report.batch_statistics;
    ranked.exact = ranked.exact && report.exact;
    const double planned = PlannedShare(rows);
    const bool is_hopeless = !report.best[0].fits && !rows[0].fits;
    if (ranked.rows.empty() || IsBetter(rows[0], ranked.rows[0])) ranked.rows = std::move(rows);
    // Another search helps if the plans need more than there is, or if the estimates have refused
    // what the plans may have room for; not if even the smallest layouts need too much.
    // The plans of a job that is too large for a virtual run take too long for the latter.
    const bool refused =
        ranked.rows[0].source == Source::kSimulated &&
        planned * search.memory_bytes < (1 - kMemoryTolerance) * options.memory_bytes;
    if (!report.memory_bounds || is_hopeless || (ranked.rows[0].fits && !refused)) break;
    search.memory_bytes = kMemorySlack * options.memory_bytes / planned;
  }
  const RankedLayouts& first = ranked.rows[0];
  const bool is_too_large = options.memory_bytes > 0 && first.device_bytes > options.memory_bytes;
  if (!first.fits && !is_too_large) WEIR_RETURN_IF_ERROR(mesh_use);
  if (!first.fits && options.if_nothing_fits == RankOptions::IfNothingFits::kIsAnError) {
    return Rejected({"W0991", absl::StrCat("memory of a device, ", options.memory_of),
                     absl::StrCat("at least ", BytesText(first.device_bytes),
                                  ", which the smallest layouts found need"),
                     BytesText(options.memory_bytes),
                     "more devices (--mesh), or settings that stay free (weir search --help)"});
  }
  if (options.beside == RankOptions::Beside::kPresentAndKnown &&
      first.row != RankedLayouts::Row::kPresent)
    WEIR_RETURN_IF_ERROR(AddSavings(job, costs, options, acts_of_row, &known, &ranked));
  return ranked;
}

}  // namespace weir::search
