#include "tools/search/rank_layouts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/sim/predict_step.h"

namespace weir::search {
namespace {

// The acts that all virtual runs of a search may take together, after the first two rows. A row
// beyond that has the estimate of the search, at the scale of the second row.
constexpr double kActsMax = 2e6;

class Ranking {
 public:
  Ranking(const sim::JobCosts& costs, const RankOptions& options)
      : costs_(costs), options_(options) {}

  void Add(const compiler::FoundLayouts& found, RankedLayouts::Row row) {
    for (const RankedLayouts& known : rows_) {
      if (known.found.estimate.step_ns == found.estimate.step_ns &&
          known.found.estimate.device_bytes == found.estimate.device_bytes)
        return;
    }
    RankedLayouts& ranked = rows_.emplace_back();
    ranked.found = found;
    ranked.row = row;
  }

  // Predicts the rows in their order, as far as the acts reach.
  absl::Status Predict() {
    for (size_t i = 0; i < rows_.size(); ++i) {
      RankedLayouts& row = rows_[i];
      row.device_bytes = row.found.estimate.device_bytes;
      row.step_ns = row.found.estimate.step_ns;
      if (i < 2 || acts_ < kActsMax) {
        WEIR_RETURN_IF_ERROR(PredictRow(&row));
      } else {
        // The second row is the best by the estimate, so at its scale the others come after it.
        const RankedLayouts& scale = rows_[1];
        row.step_ns *= scale.step_ns / scale.found.estimate.step_ns;
        row.device_bytes *= scale.device_bytes / scale.found.estimate.device_bytes;
      }
      row.fits = options_.memory_bytes <= 0 || row.device_bytes <= options_.memory_bytes;
    }
    return absl::OkStatus();
  }

  std::vector<RankedLayouts> Sorted() && {
    std::stable_sort(rows_.begin(), rows_.end(),
                     [](const RankedLayouts& a, const RankedLayouts& b) {
                       if (a.fits != b.fits) return a.fits;
                       return a.fits ? a.step_ns < b.step_ns : a.device_bytes < b.device_bytes;
                     });
    return std::move(rows_);
  }

 private:
  absl::Status PredictRow(RankedLayouts* row) {
    compiler::CompileOptions options;
    options.costs = &costs_.model();
    absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
        compiler::CompileJob(row->found.job, options);
    if (!plan.ok()) {
      // The present job must compile; of a result, the reason is in its figures.
      if (row->row == RankedLayouts::Row::kPresent) return plan.status();
      row->fits = false;
      return absl::OkStatus();
    }
    const sim::StepPrediction prediction = sim::PredictStep(**plan, costs_);
    if (prediction.step_ns > 0) {
      row->step_ns = prediction.step_ns;
      row->source = prediction.report.has_value() ? RankedLayouts::Source::kSimulated
                                                  : RankedLayouts::Source::kPlanned;
    }
    row->device_bytes = 0;
    if (prediction.report.has_value()) {
      acts_ += static_cast<double>(prediction.report->acts);
      for (const sim::SimulateReport::Device& device : prediction.report->devices)
        row->device_bytes = std::max(row->device_bytes, device.arena_bytes);
      return absl::OkStatus();
    }
    acts_ = kActsMax;
    for (int64_t stage = 0; stage < (*plan)->places.size(); ++stage) {
      WEIR_ASSIGN_OR_RETURN(const proto::RankPlan lowered,
                            compiler::LowerForRank(**plan, (*plan)->places.RankAt(stage, 0)));
      row->device_bytes = std::max(row->device_bytes, static_cast<double>(lowered.arena_bytes()));
    }
    return absl::OkStatus();
  }

  const sim::JobCosts& costs_;
  const RankOptions& options_;
  std::vector<RankedLayouts> rows_;
  double acts_ = 0;
};

}  // namespace

const RankedLayouts& RankedSearch::present() const {
  return *std::find_if(rows.begin(), rows.end(), [](const RankedLayouts& row) {
    return row.row == RankedLayouts::Row::kPresent;
  });
}

absl::StatusOr<RankedSearch> RankLayouts(const proto::Job& job, const sim::JobCosts& costs,
                                         const RankOptions& options) {
  compiler::SearchOptions search;
  search.costs = &costs.model();
  search.memory_bytes = options.memory_bytes;
  search.free = options.free;
  search.results_max = options.top;
  WEIR_ASSIGN_OR_RETURN(const compiler::SearchReport report, compiler::SearchLayouts(job, search));
  Ranking ranking(costs, options);
  ranking.Add(report.present, RankedLayouts::Row::kPresent);
  ranking.Add(report.best[0], RankedLayouts::Row::kFound);
  if (report.known.has_value()) ranking.Add(*report.known, RankedLayouts::Row::kKnown);
  for (const compiler::FoundLayouts& found : report.best)
    ranking.Add(found, RankedLayouts::Row::kFound);
  WEIR_RETURN_IF_ERROR(ranking.Predict());
  RankedSearch ranked;
  ranked.rows = std::move(ranking).Sorted();
  ranked.compiled = report.compiled;
  ranked.solved = report.solved;
  ranked.batch_statistics = report.batch_statistics;
  ranked.exact = report.exact;
  ranked.memory_bytes = options.memory_bytes;
  for (const proto::MeshAxisSpec& axis : job.mesh().axis()) ranked.devices *= axis.size();
  const RankedLayouts& first = ranked.rows[0];
  if (!first.fits) {
    return Rejected({"W0991", absl::StrCat("memory of a device, --memory"),
                     absl::StrCat("at least ", BytesText(first.device_bytes),
                                  ", which the smallest layouts found need"),
                     BytesText(options.memory_bytes),
                     "more devices (--mesh), or settings that stay free (weir search --help)"});
  }
  if (first.row != RankedLayouts::Row::kPresent) {
    WEIR_ASSIGN_OR_RETURN(ranked.savings, compiler::SavingsOf(first.found, job, search));
  }
  return ranked;
}

}  // namespace weir::search
