#include "tools/trace/run_diff.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/trace/critical_path.h"
#include "tools/trace/report_text.h"
#include "tools/trace/step_parts.h"
#include "tools/trace/step_paths.h"
#include "tools/trace/wait_roots.h"

namespace weir::trace {
namespace {

constexpr double kSameShare = 0.01;  // of a step: a smaller difference is none
constexpr double kFewMatch = 0.1;    // of all actors; below it, the jobs are hardly one
constexpr size_t kRowIndent = 46;

using Key = std::pair<std::string, std::string>;  // cause, name
using Side = std::optional<double> DiffRow::*;

// DiffRows collects rows of both runs by cause and name.
class DiffRows {
 public:
  void Add(const std::string& cause, const std::string& name, Side side, double ns) {
    DiffRow& row = rows_[{cause, name}];
    row.*side = (row.*side).value_or(0) + ns;
  }
  std::vector<DiffRow> Sorted() && {
    std::vector<DiffRow> sorted;
    for (auto& [key, row] : rows_) {
      std::tie(row.cause, row.name) = key;
      sorted.push_back(std::move(row));
    }
    std::stable_sort(sorted.begin(), sorted.end(), [](const DiffRow& a, const DiffRow& b) {
      return std::abs(a.more_ns()) > std::abs(b.more_ns());
    });
    return sorted;
  }

 private:
  std::map<Key, DiffRow> rows_;
};

// Adds the mean path of the typical steps; returns the mean of these steps.
double AddPath(const RecordedRun& run, Side side, DiffRows* rows) {
  const size_t first = run.times.FirstSteady();
  std::vector<int64_t> left_out;
  for (const size_t place : run.times.Outliers()) left_out.push_back(run.times.steps[place].step);
  const CriticalPath path =
      FindCriticalPath(run, run.times.steps[first].step, run.last_step, left_out);
  const double steps = static_cast<double>(run.times.steps.size() - first - left_out.size());
  for (const PathGroup& group : GroupSegments(run, path.segments))
    rows->Add(PathCauseName(group.cause), group.name, side, static_cast<double>(group.ns) / steps);
  return path.step_ns;
}

void AddRoots(const RecordedRun& run, Side side, DiffRows* rows) {
  for (const WaitRoot& root : FindWaitRoots(run))
    rows->Add(Name(root.kind), root.name, side, root.ns_per_step);
}

std::vector<DiffRow> DiffParts(const RecordedRun& a, const RecordedRun& b) {
  std::vector<DiffRow> rows;
  const std::vector<StepPart> of_b = FindStepParts(b);
  for (const StepPart& part : FindStepParts(a)) {
    DiffRow& row = rows.emplace_back();
    row.cause = Name(part.kind);
    row.a_ns = part.ns_per_step;
    for (const StepPart& other : of_b) {
      if (other.kind == part.kind) row.b_ns = other.ns_per_step;
    }
  }
  return rows;
}

// Returns the number of the ranks of a run, those included for which others stand.
int64_t NumRanks(const RecordedRun& run) {
  int64_t ranks = 0;
  for (const RecordedRank& rank : run.ranks) ranks += rank.stands_for.size();
  return ranks;
}

std::vector<StepDiff> DiffSteps(const RecordedRun& a, const RecordedRun& b) {
  std::map<int64_t, StepDiff> steps;
  for (const StepTime& step : a.times.steps) steps[step.step].a_ns = step.ns();
  for (const StepTime& step : b.times.steps) steps[step.step].b_ns = step.ns();
  std::vector<StepDiff> sorted;
  for (auto& [number, step] : steps) {
    step.step = number;
    sorted.push_back(step);
  }
  return sorted;
}

// ActorWork is the acts of one actor in the steady steps.
struct ActorWork {
  Key row;  // function of all layers, phase
  double ns_per_step = 0;
  int64_t acts = 0;
  double ns = 0;
};
using ActorName = std::tuple<RankId, std::string, std::string>;  // rank, name, phase

std::map<ActorName, ActorWork> WorkOf(const RecordedRun& run) {
  std::map<ActorName, ActorWork> work;
  const size_t first = run.times.FirstSteady();
  const double steps = static_cast<double>(run.times.steps.size() - first);
  for (const RecordedActorId id : run.actors.ids()) {
    const RecordedActor& actor = run.actors[id];
    ActorWork& sum = work[{run.ranks[actor.rank_index].rank, actor.name, actor.phase}];
    sum.row = {LayerFamily(actor.function), actor.phase};
    for (size_t i = 0; i < actor.acts.size(); ++i) {
      const RecordedAct* act = run.Act(id, actor.first_act + static_cast<int64_t>(i));
      if (act == nullptr || act->step < run.times.steps[first].step) continue;
      ++sum.acts;
      sum.ns += static_cast<double>(act->end - act->start);
    }
    sum.ns_per_step = sum.ns / steps;
  }
  return work;
}

// WorkRow sums the actors of one row.
struct WorkRow {
  WorkDiff diff;
  double a_ns = 0, b_ns = 0;  // of all acts
  int64_t a_acts = 0, b_acts = 0;
  std::set<RankId> ranks;  // of matched actors
};

void DiffWork(const RecordedRun& a, const RecordedRun& b, RunDiff* diff) {
  std::map<ActorName, ActorWork> of_b = WorkOf(b);
  std::map<Key, WorkRow> rows;
  for (const auto& [name, work] : WorkOf(a)) {
    WorkRow& row = rows[work.row];
    const auto other = of_b.find(name);
    if (other == of_b.end()) {
      ++row.diff.only_a;
      continue;
    }
    ++row.diff.matched;
    row.ranks.insert(std::get<RankId>(name));
    row.diff.a_ns += work.ns_per_step;
    row.diff.b_ns += other->second.ns_per_step;
    row.a_ns += work.ns;
    row.b_ns += other->second.ns;
    row.a_acts += work.acts;
    row.b_acts += other->second.acts;
    of_b.erase(other);
  }
  for (const auto& [name, work] : of_b) ++rows[work.row].diff.only_b;
  for (auto& [key, row] : rows) {
    std::tie(row.diff.name, row.diff.phase) = key;
    const double ranks = static_cast<double>(std::max<size_t>(1, row.ranks.size()));
    row.diff.a_ns /= ranks;
    row.diff.b_ns /= ranks;
    row.diff.a_act_ns = row.a_ns / static_cast<double>(std::max<int64_t>(1, row.a_acts));
    row.diff.b_act_ns = row.b_ns / static_cast<double>(std::max<int64_t>(1, row.b_acts));
    diff->matched += row.diff.matched;
    diff->only_a += row.diff.only_a;
    diff->only_b += row.diff.only_b;
    diff->work.push_back(std::move(row.diff));
  }
  std::stable_sort(diff->work.begin(), diff->work.end(), [](const WorkDiff& x, const WorkDiff& y) {
    return std::abs(x.more_ns()) > std::abs(y.more_ns());
  });
}

std::string Milliseconds(std::optional<double> ns) {
  return ns.has_value() ? MillisecondsText(*ns) : "-";
}

void AppendTable(const std::string& title, const std::vector<DiffRow>& rows, size_t rows_max,
                 std::string* text) {
  absl::StrAppend(text, "\n", title, "\n");
  absl::StrAppendFormat(text, "  %12s  %12s  %12s  cause\n", "A", "B", "B - A");
  size_t shown = 0;
  for (const DiffRow& row : rows) {
    if (shown == rows_max) break;
    ++shown;
    AppendLine(absl::StrFormat("  %12s  %12s  %+9.3f ms  %s%s", Milliseconds(row.a_ns),
                               Milliseconds(row.b_ns), row.more_ns() * 1e-6, row.cause,
                               row.name.empty() ? "" : absl::StrCat(" `", row.name, "`")),
               kRowIndent, text);
  }
  if (shown < rows.size()) absl::StrAppend(text, "  ", rows.size() - shown, " more rows\n");
}

}  // namespace

RunDiff CompareRuns(const RecordedRun& a, const RecordedRun& b) {
  RunDiff diff;
  diff.a_ranks = NumRanks(a);
  diff.b_ranks = NumRanks(b);
  diff.steps = DiffSteps(a, b);
  diff.parts = DiffParts(a, b);
  DiffRows path, waits;
  diff.a_step_ns = AddPath(a, &DiffRow::a_ns, &path);
  diff.b_step_ns = AddPath(b, &DiffRow::b_ns, &path);
  diff.path = std::move(path).Sorted();
  AddRoots(a, &DiffRow::a_ns, &waits);
  AddRoots(b, &DiffRow::b_ns, &waits);
  diff.waits = std::move(waits).Sorted();
  DiffWork(a, b, &diff);
  return diff;
}

std::string Verdict(const RunDiff& diff, const std::string& a_name, const std::string& b_name) {
  const double more = diff.b_step_ns - diff.a_step_ns;
  const std::string times = absl::StrCat(MillisecondsText(diff.a_step_ns), " in ", a_name, " and ",
                                         MillisecondsText(diff.b_step_ns), " in ", b_name);
  std::string text;
  if (std::abs(more) < kSameShare * diff.a_step_ns) {
    text = absl::StrCat("a step takes the same time, within 1 %: ", times);
  } else {
    text = absl::StrFormat("a step takes %s: %.1f %% %s", times,
                           std::abs(more) / std::max(diff.a_step_ns, 1.0) * 100,
                           more > 0 ? "longer" : "shorter");
    for (const DiffRow& row : diff.path) {  // the largest difference that goes the same way
      if (row.more_ns() * more <= 0) continue;
      absl::StrAppendFormat(&text, ". Most of all, on the critical path: %s%s, %+.3f ms", row.cause,
                            row.name.empty() ? "" : absl::StrCat(" `", row.name, "`"),
                            row.more_ns() * 1e-6);
      break;
    }
  }
  if (static_cast<double>(diff.matched) <
      kFewMatch * static_cast<double>(diff.matched + diff.only_a + diff.only_b)) {
    absl::StrAppend(&text, ". ", diff.matched == 0 ? "No" : "Hardly a",
                    " plan node has the same name and rank in both: are these runs of one job?");
  }
  return text;
}

std::string ToText(const RunDiff& diff, const std::string& a_name, const std::string& b_name,
                   size_t rows_max) {
  std::string text = absl::StrCat("A: ", a_name, "\nB: ", b_name, "\n");
  AppendLine(Verdict(diff, a_name, b_name), 2, &text);
  AppendLine(absl::StrCat(diff.matched, " actors match by name and rank; only A has ", diff.only_a,
                          ", only B ", diff.only_b),
             2, &text);
  AppendTable("parts of a step, mean over all queues", diff.parts, diff.parts.size(), &text);
  AppendTable("critical path of a step: these rows add up to the difference", diff.path, rows_max,
              &text);
  AppendTable("what devices really waited for, mean over all queues", diff.waits, rows_max, &text);
  absl::StrAppend(&text, "\nacts of matching actors, per step and rank\n");
  absl::StrAppendFormat(&text, "  %12s  %12s  %12s  function\n", "A", "B", "B - A");
  for (size_t i = 0; i < diff.work.size() && i < rows_max; ++i) {
    const WorkDiff& row = diff.work[i];
    AppendLine(
        absl::StrFormat("  %12s  %12s  %+9.3f ms  `%s`, %s", MillisecondsText(row.a_ns),
                        MillisecondsText(row.b_ns), row.more_ns() * 1e-6, row.name, row.phase),
        kRowIndent, &text);
  }
  if (rows_max < diff.work.size())
    absl::StrAppend(&text, "  ", diff.work.size() - rows_max, " more rows\n");
  return text;
}

}  // namespace weir::trace
