#include "tools/plan/plan_sections.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/explain/rhythm_curve.h"
#include "compiler/rhythm/play_schedule.h"
#include "compiler/rhythm/play_stations.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"
#include "tools/plan/boxing_costs.h"
#include "tools/plan/layout_list.h"

namespace weir::plan {
namespace {

constexpr size_t kChartColumnsMax = kSectionColumns - 4;

std::string Wrapped(const std::string& text) {
  return WrapText(text, kSectionColumns, /*hanging=*/4);
}

// Divides "layers.11" into ("layers.", 11). A name without a number has -1.
std::pair<std::string, int64_t> DivideAtNumber(const std::string& name) {
  size_t digits = name.size();
  while (digits > 0 && absl::ascii_isdigit(name[digits - 1])) --digits;
  if (digits == name.size() || name.size() - digits > 9) return {name, -1};
  return {name.substr(0, digits), std::stoll(name.substr(digits))};
}

// Returns " · weights updated in steps n with n % 4 == 3 · gradients 1 update old".
std::string UpdatesText(const UpdateRate& updates) {
  std::string text;
  if (updates.every > 1)
    text = absl::StrCat(" · weights updated in steps n with n % ", updates.every,
                        " == ", updates.phase);
  if (updates.delay > 0)
    absl::StrAppend(&text, " · gradients ", Plural(updates.delay, "update"), " old");
  return text;
}

// ---- layouts ----

// Prints a tensor on one line if it fits; else the layout and its reason follow on the next line.
void Tensor(const TensorLayout& tensor, std::string* text) {
  const std::string what =
      absl::StrFormat("  %-32s %-14s %s", tensor.name, tensor.what, tensor.type);
  const std::string layout = absl::StrCat(tensor.layout, "  ", tensor.reason);
  const std::string line = absl::StrFormat("%-78s %s", what, layout);
  if (NumCharacters(line) <= kSectionColumns) {
    absl::StrAppend(text, line, "\n");
  } else {
    absl::StrAppend(text, Wrapped(what), "\n",
                    WrapText(absl::StrCat("      ", layout), kSectionColumns, /*hanging=*/2), "\n");
  }
}

// ---- schedule ----

// Returns the stages that a stage of placed calls reads: ", after stages 0 and 1".
std::string ReadsText(const compiler::PipelineSchedule& schedule, int64_t stage) {
  if (!schedule.is_placed() || schedule.stages_before[stage].empty()) return "";
  const std::vector<int64_t>& before = schedule.stages_before[stage];
  return absl::StrCat(before.size() == 1 ? ", after stage " : ", after stages ",
                      absl::StrJoin(before, " and "));
}

std::string StagesText(const compiler::LogicalPlan& plan) {
  const compiler::PipelineSchedule& schedule = plan.schedule;
  std::string text = absl::StrCat(
      "\nstages", schedule.num_stages > 1 ? absl::StrCat(" · ", compiler::Name(schedule.kind)) : "",
      "\n");
  for (int64_t stage = 0; stage < schedule.num_stages; ++stage) {
    std::vector<std::string> parts, in_flight;
    std::vector<int64_t> ranks;
    for (int64_t part = stage; part < schedule.num_parts(); part += schedule.num_stages) {
      parts.push_back(
          absl::StrCat(schedule.virtual_stages > 1 ? absl::StrCat("part ", part, " ") : "",
                       CallsText(plan, part)));
      in_flight.push_back(absl::StrCat(schedule.in_flight[part]));
    }
    for (int64_t r = 0; r < plan.places.mesh(stage).num_ranks(); ++r)
      ranks.push_back(plan.places.RankAt(stage, r).value());
    absl::StrAppend(
        &text,
        Wrapped(absl::StrCat(
            "  stage ", stage, ": ", absl::StrJoin(parts, "; "), " on ",
            ranks.size() == 1 ? "rank " : "ranks ", RangesText(ranks), ", at most ",
            absl::StrJoin(in_flight, " and "),
            in_flight == std::vector<std::string>{"1"} ? " micro-batch" : " micro-batches",
            " in flight", ReadsText(schedule, stage))),
        "\n");
  }
  return text;
}

// Draws a step as planned, with the costs that the plan was made with.
std::string ChartText(const compiler::LogicalPlan& plan, const compiler::CostModel& costs) {
  const compiler::PipelineSchedule& schedule = plan.schedule;
  std::string text =
      schedule.is_chain()
          ? absl::StrFormat("  bubble %s = %.1f %% if parts are even", schedule.FormulaText(),
                            100 * schedule.BubbleFormula(1, 1))
          : absl::StrCat("  no formula for the bubble: ", schedule.stages_in_a_row(), " of ",
                         schedule.num_stages, " stages are in a row");
  if (plan.mode != compiler::PlanMode::kTrain) return text + "\n";
  absl::StatusOr<compiler::StationGraph> graph = BuildStationGraph(plan, costs);
  absl::StatusOr<compiler::RegisterSolution> solution =
      graph.ok() ? SolveStations(plan, *graph) : graph.status();
  if (!solution.ok()) return text + "\n";
  const compiler::StationPlay played = PlayStations(schedule, *graph, solution->slots);
  absl::StrAppendFormat(
      &text, "; played with the costs of this plan %.1f %%%s\n", 100 * played.play.bubble,
      played.transfers == compiler::Transfers::kCounted ? "" : ", transfers not counted");
  const compiler::ScheduleChart chart = DrawSchedule(played.play, kChartColumnsMax);
  if (chart.text.empty()) return text;
  absl::StrAppend(
      &text,
      Wrapped(absl::StrCat(
          "  a column is ", TimeText(chart.column),
          ", a part's forward pass on average: F forward, ",
          schedule.splits_backward() ? "B gradients of inputs, W of weights" : "B backward",
          schedule.virtual_stages > 1 ? ", f and b of a stage's later parts" : "",
          chart.numbered ? ", with the micro-batch's last digit" : "")),
      "\n", chart.text);
  return text;
}

// ---- actors ----

std::string RankText(const proto::RankPlan& lowered) {
  std::map<std::string, int> actors;
  std::map<int, int> slots;
  int64_t weights = 0, optimiser = 0, delayed = 0, kernels = 0;
  std::set<int> of_gradients;  // registers with delayed gradients
  for (const proto::StateSpec& state : lowered.state()) {
    if (state.has_token()) of_gradients.insert(state.token().register_id());
  }
  for (const proto::ActorSpec& actor : lowered.actor()) {
    actors[actor.kind() == proto::ActorSpec::SEND         ? "send"
           : actor.kind() == proto::ActorSpec::SOURCE     ? "source"
           : actor.kind() == proto::ActorSpec::SINK       ? "sink"
           : actor.kind() == proto::ActorSpec::COLLECTIVE ? "collective"
                                                          : "compute"]++;
    if (actor.program() >= 0) kernels += lowered.program(actor.program()).call_size();
  }
  for (const proto::RegisterSpec& spec : lowered.registers()) {
    slots[spec.slots()]++;
    if (spec.side() == proto::RegisterSpec::OUTBOUND) continue;
    if (spec.initial_tokens() > 0)
      (of_gradients.count(spec.id()) > 0 ? delayed : weights) += spec.stride() * spec.slots();
  }
  for (const proto::StateSpec& state : lowered.state()) {
    if (state.state_class() != proto::StateSpec::OPTIMIZER_SLOT) continue;
    int64_t elements = 1;
    for (int64_t size : state.slice().shape()) elements *= size;
    optimiser += elements * 4;
  }
  std::vector<std::string> parts, counts;
  for (const auto& [kind, count] : actors) parts.push_back(absl::StrCat(count, " ", kind));
  for (const auto& [n, count] : slots)
    counts.push_back(absl::StrCat(count, " of ", Plural(n, "slot")));
  const auto bytes = [](int64_t count) { return BytesText(static_cast<double>(count)); };
  const int64_t registers =
      lowered.arena_bytes() - weights - optimiser - delayed - lowered.scratch_bytes();
  return absl::StrCat(
      Wrapped(absl::StrCat("  rank ", lowered.rank(), " (", lowered.device(),
                           "): ", Plural(lowered.actor_size(), "actor"), " (",
                           absl::StrJoin(parts, ", "), ") running ", Plural(kernels, "kernel"),
                           "; ", Plural(lowered.registers_size(), "register"), " (",
                           absl::StrJoin(counts, ", "), ")")),
      "\n",
      Wrapped(absl::StrCat(
          "    memory ", bytes(lowered.arena_bytes()), ": weights ", bytes(weights), ", optimiser ",
          bytes(optimiser), delayed > 0 ? absl::StrCat(", delayed gradients ", bytes(delayed)) : "",
          ", registers ", bytes(registers), ", scratch ", bytes(lowered.scratch_bytes()))),
      "\n");
}

}  // namespace

std::string RangesText(std::vector<int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> ranges;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    ranges.push_back(
        end - i == 1 ? absl::StrCat(numbers[i])
                     : absl::StrCat(numbers[i], end - i == 2 ? ", " : " to ", numbers[end - 1]));
    i = end;
  }
  return absl::StrJoin(ranges, ", ");
}

std::string CallsText(const compiler::LogicalPlan& plan, int64_t part) {
  std::vector<std::string> texts;
  std::string first, last;  // calls that follow each other
  std::pair<std::string, int64_t> end;
  const auto finish = [&] {
    if (!first.empty()) texts.push_back(first == last ? first : absl::StrCat(first, " to ", last));
  };
  for (const compiler::ModelCall& call : plan.module.model.calls) {
    if (call.part != part) continue;
    const auto divided = DivideAtNumber(call.name);
    const bool goes_on = !first.empty() && divided.second >= 0 && divided.first == end.first &&
                         divided.second == end.second + 1;
    if (!goes_on) {
      finish();
      first = call.name;
    }
    last = call.name;
    end = divided;
  }
  finish();
  return absl::StrJoin(texts, ", ");
}

std::string JobHead(const compiler::LogicalPlan& plan) {
  int64_t weights = 0, elements = 0;
  for (const compiler::Variable& variable : plan.module.variables) {
    if (!variable.slot_of.empty()) continue;
    ++weights;
    elements += variable.type.num_elements();
  }
  return absl::StrCat(
      "job ", plan.job->name().empty() ? plan.job->graph().name() : plan.job->name(), " · mesh ",
      plan.mesh.num_axes() == 0 ? "of one device" : plan.mesh_text, " · ",
      Plural(plan.places.num_ranks(), "device"), " · ", Plural(plan.places.size(), "stage"), " · ",
      Plural(plan.micro_batches, "micro-batch"), UpdatesText(plan.updates), " · ZeRO ",
      plan.settings.training.zero_stage, "\n", Plural(weights, "weight"), ", ",
      Plural(elements, "parameter"), " · plan ", plan.plan_id, "\n");
}

absl::StatusOr<std::string> LayoutsSection(const compiler::LogicalPlan& plan,
                                           const std::string& function) {
  std::set<std::string> names;
  std::string text = function.empty()
                         ? "\nlayouts: every tensor, how it lies on the mesh, and why\n"
                         : absl::StrCat("\nlayouts of ", function, "\n");
  bool found = false;
  for (const FunctionLayouts& layouts : ListLayouts(plan)) {
    const std::string& name = layouts.function;
    names.insert(name);
    // The gradient of a function belongs to that function.
    if (!function.empty() && name != function && name.substr(0, name.find('.')) != function)
      continue;
    found = true;
    absl::StrAppend(&text, "\n", layouts.first_call,
                    layouts.calls == 1 ? "" : absl::StrCat(" and ", layouts.calls - 1, " more"),
                    " (function ", name, ")\n");
    for (const TensorLayout& tensor : layouts.tensors) Tensor(tensor, &text);
  }
  if (found) return text;
  std::string nearest = Nearest(function, names);
  if (nearest.empty()) nearest = absl::StrJoin(names, ", ");
  return Rejected({"W0941", "--layouts", "a function of the plan",
                   absl::StrCat("\"", function, "\""), nearest});
}

absl::StatusOr<std::string> BoxingsSection(const compiler::LogicalPlan& plan) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<BoxingCost> costs, CostsOfBoxings(plan));
  std::string text = "\nboxings: what each sends in a step over all links\n";
  double sum = 0;
  for (const BoxingCost& cost : costs) {
    sum += cost.bytes;
    std::string line = absl::StrFormat("  %10s  %s: %s %s", BytesText(cost.bytes), cost.name,
                                       cost.method, cost.layouts);
    if (!cost.stages.empty()) absl::StrAppend(&line, ", ", cost.stages);
    if (cost.times > 1) absl::StrAppend(&line, ", ", cost.times, " times");
    if (cost.link_bytes > 0)
      absl::StrAppend(&line, ", busiest link ", cost.from, " -> ", cost.to, " ",
                      BytesText(cost.link_bytes));
    if (cost.bytes_between_hosts > 0)
      absl::StrAppend(&line, ", between hosts ", BytesText(cost.bytes_between_hosts));
    if (!cost.cause.empty()) absl::StrAppend(&line, "; why: ", cost.cause);
    absl::StrAppend(&text, WrapText(line, kSectionColumns, /*hanging=*/2), "\n");
  }
  absl::StrAppendFormat(&text, "  %10s  in total%s\n", BytesText(sum),
                        plan.updates.every > 1 ? ", a mean over the steps of an update" : "");
  return text;
}

absl::StatusOr<std::string> ScheduleSection(const compiler::LogicalPlan& plan,
                                            const compiler::CostModel& costs) {
  std::string text = StagesText(plan);
  if (plan.schedule.num_stages > 1) absl::StrAppend(&text, ChartText(plan, costs));
  WEIR_ASSIGN_OR_RETURN(const std::string rhythm, ExplainRhythm(plan, costs));
  return text + WrapText(rhythm, kSectionColumns, /*hanging=*/2);
}

absl::StatusOr<std::string> ActorsSection(const compiler::LogicalPlan& plan) {
  std::string text = "\nactors and memory of each rank\n";
  // Each rank of a large mesh takes long, and the ranks are alike.
  const int64_t shown = std::min<int64_t>(
      plan.places.num_ranks(), std::clamp<int64_t>(16384 / plan.places.num_ranks(), 1, 64));
  for (int64_t rank = 0; rank < shown; ++rank) {
    WEIR_ASSIGN_OR_RETURN(const proto::RankPlan lowered,
                          compiler::LowerForRank(plan, RankId(rank)));
    absl::StrAppend(&text, RankText(lowered));
  }
  if (shown < plan.places.num_ranks())
    absl::StrAppend(&text, "  … and ", Plural(plan.places.num_ranks() - shown, "more rank"), "\n");
  return text;
}

absl::StatusOr<std::string> ExplainPlan(const compiler::LogicalPlan& plan,
                                        const compiler::CostModel* costs) {
  const compiler::PeakCosts defaults;
  const compiler::CostModel& used = costs != nullptr ? *costs : defaults;
  WEIR_ASSIGN_OR_RETURN(const std::string layouts, LayoutsSection(plan, ""));
  WEIR_ASSIGN_OR_RETURN(const std::string boxings, BoxingsSection(plan));
  WEIR_ASSIGN_OR_RETURN(const std::string schedule, ScheduleSection(plan, used));
  WEIR_ASSIGN_OR_RETURN(const std::string actors, ActorsSection(plan));
  return absl::StrCat(WrapText(JobHead(plan), kSectionColumns), layouts, boxings, schedule, actors);
}

}  // namespace weir::plan
