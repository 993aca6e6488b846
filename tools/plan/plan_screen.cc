#include "tools/plan/plan_screen.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"
#include "tools/plan/plan_sections.h"
#include "tools/plan/plan_summary.h"

namespace weir::plan {
namespace {

constexpr int kLabel = 10;  // characters before the text of a line
constexpr size_t kStagesShown = 4, kDevicesShown = 5, kBoxingsShown = 3, kWarningsShown = 3;
constexpr size_t kWarningLines = 2;  // of each kind

class Screen {
 public:
  Screen(const compiler::LogicalPlan& plan, const sim::StepPrediction& prediction,
         const PlanSummary& summary)
      : plan_(plan), prediction_(prediction), summary_(summary) {}

  std::string Run() && {
    Line("fit", summary_.fit);
    Line("job", summary_.job);
    if (!summary_.precision.empty()) Line("precision", summary_.precision);
    Line("step", summary_.step);
    if (!summary_.time.empty()) Line("time", summary_.time);
    Line("memory", summary_.memory);
    Line("bytes", summary_.bytes);
    if (!summary_.hosts.empty()) Line("hosts", summary_.hosts);
    Stages();
    Devices();
    Boxings();
    Warnings();
    Line("more",
         "--layouts [FUNCTION], --boxings, --schedule, --products, --memory, --actors, or --all of "
         "them; --curve, --json");
    return std::move(text_);
  }

 private:
  void Line(const std::string& label, const std::string& text) {
    absl::StrAppend(
        &text_, WrapText(absl::StrFormat("%-*s%s", kLabel, label, text), kScreenColumns, kLabel),
        "\n");
  }
  // Prints a row below a line with a label. A long row is cut and not broken.
  void Row(const std::string& text) {
    absl::StrAppend(&text_, CutText(absl::StrCat(std::string(kLabel, ' '), text), kScreenColumns),
                    "\n");
  }

  void Stages() {
    const compiler::PipelineSchedule& schedule = plan_.schedule;
    if (schedule.num_stages < 2) return;
    std::string text = absl::StrCat(schedule.num_stages, ", ", compiler::Name(schedule.kind), ": ");
    if (schedule.is_chain()) {
      absl::StrAppendFormat(&text, "bubble %.0f %% if all parts are even",
                            100 * schedule.BubbleFormula(1, 1));
    } else {
      absl::StrAppend(&text, schedule.stages_in_a_row(), " in a row, the others beside them");
    }
    if (plan_.predicted_bubble > 0) {
      absl::StrAppendFormat(&text, ", %s%.0f %% with these costs",
                            schedule.is_chain() ? "" : "bubble ", 100 * plan_.predicted_bubble);
    }
    Line("stages", text);
    const auto shown = std::min<int64_t>(schedule.num_stages, kStagesShown);
    for (int64_t stage = 0; stage < shown; ++stage) {
      std::vector<std::string> parts;
      for (int64_t part = stage; part < schedule.num_parts(); part += schedule.num_stages)
        parts.push_back(CallsText(plan_, part));
      std::vector<int64_t> ranks;
      for (int64_t r = 0; r < plan_.places.mesh(stage).num_ranks(); ++r)
        ranks.push_back(plan_.places.RankAt(stage, r).value());
      Row(absl::StrCat(stage, ": ", ranks.size() == 1 ? "rank " : "ranks ", RangesText(ranks), ", ",
                       absl::StrJoin(parts, "; ")));
    }
    if (shown < schedule.num_stages)
      Row(absl::StrCat("… and ", Plural(schedule.num_stages - shown, "more stage"),
                       " (--schedule)"));
  }

  // Prints a row for ranks with the same figures.
  void Devices() {
    if (summary_.devices.size() < 2) return;
    std::map<std::string, std::vector<int64_t>> ranks;
    std::vector<std::string> order;
    for (const PlanSummary::Device& device : summary_.devices) {
      const std::string figures =
          absl::StrFormat("%9.0f %% %7.0f %% %7.0f %%   %9s", 100 * device.compute,
                          100 * device.transfer, 100 * device.waiting, BytesText(device.bytes));
      if (ranks[figures].empty()) order.push_back(figures);
      ranks[figures].push_back(device.rank.value());
    }
    const sim::SimulateReport& report = *prediction_.report;
    Line("devices", "computing packing  waiting      memory  ranks");
    const size_t shown =
        std::min(order.size(), order.size() == kDevicesShown + 1 ? order.size() : kDevicesShown);
    for (size_t i = 0; i < shown; ++i) {
      std::string row = absl::StrCat(order[i], "  ", RangesText(ranks[order[i]]));
      if (report.ranks_simulated < report.ranks) absl::StrAppend(&row, " for all of its stage");
      absl::StrAppend(
          &text_, CutText(absl::StrCat(std::string(kLabel - 2, ' '), row), kScreenColumns), "\n");
    }
    if (shown < order.size())
      Row(absl::StrCat("… and ", Plural(static_cast<int64_t>(order.size() - shown), "more kind"),
                       " of ranks (weir sim)"));
  }

  void Boxings() {
    const double sum = summary_.bytes_per_step;
    if (sum == 0) return;
    const size_t shown = std::min(summary_.boxings.size(), kBoxingsShown);
    Line("boxings",
         absl::StrCat("the ", shown == 1 ? "costliest" : absl::StrCat(shown, " costliest"), " of ",
                      summary_.boxings.size(), ", and why each is there"));
    for (size_t i = 0; i < shown; ++i) {
      const BoxingCost& boxing = summary_.boxings[i];
      Row(absl::StrFormat("%3.0f %%  %9s  %s of %s%s", 100 * boxing.bytes / sum,
                          BytesText(boxing.bytes), boxing.method, boxing.name,
                          boxing.times > 1 ? absl::StrCat(", ", boxing.times, " times") : ""));
      const std::string stages = boxing.stages.empty() ? "" : absl::StrCat(", ", boxing.stages);
      const std::string why =
          boxing.cause.empty() && !stages.empty() ? "another stage reads it" : boxing.cause;
      Row(absl::StrCat("                  ", boxing.layouts, stages,
                       why.empty() ? "" : absl::StrCat("; why: ", why)));
    }
  }

  void Warnings() {
    const std::vector<std::string>& warnings = summary_.warnings;
    if (warnings.empty()) return Line("warnings", "none");
    const size_t shown = std::min(warnings.size(), kWarningsShown);
    for (size_t i = 0; i < shown; ++i) {
      const std::string wrapped =
          WrapText(absl::StrFormat("%-*s%s", kLabel, i == 0 ? "warnings" : "", warnings[i]),
                   kScreenColumns, i == 0 ? kLabel : 0);
      std::vector<std::string> lines = absl::StrSplit(wrapped, '\n');
      if (lines.size() > kWarningLines) {
        lines.resize(kWarningLines);
        lines.back() = CutText(absl::StrCat(lines.back(), " …"), kScreenColumns);
      }
      absl::StrAppend(&text_, absl::StrJoin(lines, "\n"), "\n");
    }
    if (shown < warnings.size()) Row(absl::StrCat("… and ", warnings.size() - shown, " more"));
  }

  const compiler::LogicalPlan& plan_;
  const sim::StepPrediction& prediction_;
  const PlanSummary& summary_;
  std::string text_;
};

}  // namespace

absl::StatusOr<std::string> PlanScreen(const compiler::LogicalPlan& plan,
                                       const sim::JobCosts& costs,
                                       const sim::StepPrediction& prediction,
                                       const train::NeedAndPlans& memory,
                                       const PlacedAxes& placed) {
  WEIR_ASSIGN_OR_RETURN(const PlanSummary summary,
                        Summarize(plan, costs, prediction, memory, placed));
  return Screen(plan, prediction, summary).Run();
}

}  // namespace weir::plan
