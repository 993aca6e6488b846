#include "compiler/explain/rhythm_curve.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"

namespace weir::compiler {
namespace {

constexpr int kBarWidth = 32;
constexpr size_t kRegistersShown = 12;
constexpr size_t kActorsShown = 4;

absl::StatusOr<LogicalPlan> WithRegisters(const LogicalPlan& plan, RegisterChoice registers) {
  LogicalPlan out = plan;
  RuntimeSettings& runtime = out.settings.runtime;
  runtime.registers = registers;
  runtime.debug_register_slots = 0;
  if (registers != RegisterChoice::kSolved) runtime.register_bytes_max = 0;
  WEIR_RETURN_IF_ERROR(ShapeStages(&out));
  return out;
}

RhythmPoint PointOf(const TimedGraph& graph, const RegisterSolution& solution) {
  RhythmPoint point;
  for (const auto& [device, bytes] : RegisterBytes(graph, solution.slots)) {
    point.device_bytes = std::max(point.device_bytes, bytes);
    point.all_bytes += bytes;
  }
  point.micro_batch_ns = solution.micro_batch_ns;
  point.step_ns = solution.times.iteration_ns;
  return point;
}

RhythmPoint Measure(const std::string& name, const LogicalPlan& plan, const StationGraph& graph) {
  absl::StatusOr<RegisterSolution> solution = SolveStations(plan, graph);
  RhythmPoint point;
  if (solution.ok()) point = PointOf(graph.timed, *solution);
  point.name = name;
  if (!solution.ok()) point.refused = std::string(solution.status().message());
  return point;
}

std::string Bar(double share) {
  std::string bar;
  for (int i = 0; i < static_cast<int>(share * kBarWidth + 0.5); ++i) bar += "█";
  return bar;
}

// The bound is for all slot counts, so the graph has no given counts.
PeriodBound BoundOfAllCounts(TimedGraph graph) {
  for (TimedGraph::Register& entry : graph.registers) {
    if (entry.initial_tokens == 0) entry.slots = 0;
  }
  return BoundPeriod(graph);
}

// Returns "the work of stage 0: forward layers.3 21 %, backward layers.3 43 %".
std::string BusiestText(const TimedGraph& graph, const PeriodBound& bound) {
  std::vector<std::pair<int64_t, ActorId>> loads;
  int64_t micro_batches = 1;
  for (ActorId a : bound.busiest)
    micro_batches = std::max(micro_batches, graph.actors[a].acts / graph.actors[a].chunks);
  for (ActorId a : bound.busiest) {
    const TimedGraph::Actor& actor = graph.actors[a];
    // An actor that acts once a step has no part in a micro-batch.
    if (actor.acts / actor.chunks == micro_batches)
      loads.emplace_back(actor.time_ns * actor.chunks, a);
  }
  std::sort(loads.begin(), loads.end(), [](const auto& x, const auto& y) {
    return x.first != y.first ? x.first > y.first : x.second < y.second;
  });
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(loads.size(), kActorsShown); ++i) {
    parts.push_back(absl::StrFormat(
        "%s %.0f %%", graph.actors[loads[i].second].name,
        100.0 * static_cast<double>(loads[i].first) / static_cast<double>(bound.micro_batch_ns)));
  }
  if (loads.size() > kActorsShown)
    parts.push_back(absl::StrCat("and ", loads.size() - kActorsShown, " more"));
  std::string who = bound.is_device && !bound.busiest.empty()
                        ? absl::StrCat("the work of stage ", graph.actors[bound.busiest[0]].device)
                        : "a chain of actors, each of which waits for the one before it";
  return absl::StrCat(who, parts.empty() ? "" : ": ", absl::StrJoin(parts, ", "));
}

// Returns the registers with more than one slot, the largest first.
std::string SlotsText(const TimedGraph& graph, const IdVector<RegisterId, int64_t>& slots) {
  std::vector<RegisterId> several;
  int64_t bytes = 0;
  for (RegisterId r : slots.ids()) {
    if (slots[r] < 2 || graph.registers[r].bytes == 0) continue;
    several.push_back(r);
    bytes += slots[r] * graph.registers[r].bytes;
  }
  std::string text = absl::StrCat(
      "  ", several.size(), " of ", slots.size(), " registers have more than one slot",
      several.empty()
          ? ""
          : absl::StrCat(", ", BytesText(static_cast<double>(bytes)), " over all stages"),
      "\n");
  std::stable_sort(several.begin(), several.end(), [&](RegisterId a, RegisterId b) {
    return slots[a] * graph.registers[a].bytes > slots[b] * graph.registers[b].bytes;
  });
  for (size_t i = 0; i < std::min(several.size(), kRegistersShown); ++i) {
    const TimedGraph::Register& entry = graph.registers[several[i]];
    absl::StrAppendFormat(&text, "    %3d x %-10s %s, stage %d\n", slots[several[i]],
                          BytesText(static_cast<double>(entry.bytes)), entry.name,
                          graph.actors[entry.consumers[0].actor].device);
  }
  if (several.size() > kRegistersShown)
    absl::StrAppend(&text, "    … and ", several.size() - kRegistersShown, " more\n");
  return text;
}

}  // namespace

absl::StatusOr<std::vector<RhythmPoint>> CompareRegisterChoices(const LogicalPlan& plan,
                                                                const CostModel& costs) {
  std::vector<RhythmPoint> points;
  for (const RegisterChoice registers :
       {RegisterChoice::kOne, RegisterChoice::kTwo, RegisterChoice::kTwiceStages,
        RegisterChoice::kSchedule, RegisterChoice::kSolved}) {
    WEIR_ASSIGN_OR_RETURN(LogicalPlan changed, WithRegisters(plan, registers));
    changed.settings.runtime.register_bytes_max = 0;
    WEIR_ASSIGN_OR_RETURN(StationGraph graph, BuildStationGraph(changed, costs));
    points.push_back(Measure(Name(registers), changed, graph));
  }
  const RuntimeSettings& runtime = plan.settings.runtime;
  if (runtime.debug_register_slots > 0 || runtime.register_bytes_max > 0) {
    WEIR_ASSIGN_OR_RETURN(StationGraph graph, BuildStationGraph(plan, costs));
    points.push_back(Measure("this job", plan, graph));
  }
  return points;
}

absl::StatusOr<std::vector<RhythmPoint>> RegisterCurve(const LogicalPlan& plan,
                                                       const CostModel& costs, int points_max) {
  WEIR_ASSIGN_OR_RETURN(LogicalPlan changed, WithRegisters(plan, RegisterChoice::kSolved));
  WEIR_ASSIGN_OR_RETURN(StationGraph graph, BuildStationGraph(changed, costs));
  WEIR_ASSIGN_OR_RETURN(std::vector<CurvePoint> curve, MemoryCurve(graph.timed, points_max));
  std::vector<RhythmPoint> points;
  for (const CurvePoint& at : curve) {
    SolveOptions options;
    options.micro_batch_ns = at.micro_batch_ns;
    WEIR_ASSIGN_OR_RETURN(RegisterSolution solution, SolveRegisters(graph.timed, options));
    points.push_back(PointOf(graph.timed, solution));
  }
  return points;
}

std::string CurveText(const std::vector<RhythmPoint>& choices,
                      const std::vector<RhythmPoint>& curve) {
  int64_t best = 0;
  for (const auto* list : {&choices, &curve}) {
    for (const RhythmPoint& point : *list) {
      if (point.refused.empty() && (best == 0 || point.step_ns < best)) best = point.step_ns;
    }
  }
  std::string text;
  auto row = [&](const std::string& name, const RhythmPoint& point) {
    if (!point.refused.empty()) {
      absl::StrAppendFormat(&text, "  %-14s cannot run: %s\n", name, point.refused);
      return;
    }
    const double share =
        static_cast<double>(best) / static_cast<double>(std::max<int64_t>(1, point.step_ns));
    absl::StrAppendFormat(&text, "  %-14s %12s %12s %12s %12s %6.1f %% %s\n", name,
                          BytesText(static_cast<double>(point.device_bytes)),
                          BytesText(static_cast<double>(point.all_bytes)),
                          TimeText(point.micro_batch_ns), TimeText(point.step_ns), 100 * share,
                          Bar(share));
  };
  absl::StrAppendFormat(&text, "  %-14s %12s %12s %12s %12s %8s\n", "", "registers", "all stages",
                        "micro-batch", "step", "speed");
  for (const RhythmPoint& point : choices) row(point.name, point);
  absl::StrAppend(&text,
                  "\nsolved, from the least memory that runs to the least at which the busiest "
                  "device never waits\n");
  for (const RhythmPoint& point : curve) row("", point);
  return text;
}

absl::StatusOr<std::string> ExplainRhythm(const LogicalPlan& plan, const CostModel& costs) {
  WEIR_ASSIGN_OR_RETURN(StationGraph graph, BuildStationGraph(plan, costs));
  WEIR_ASSIGN_OR_RETURN(RegisterSolution solution, SolveStations(plan, graph));
  const PeriodBound bound = BoundOfAllCounts(graph.timed);
  const RuntimeSettings& runtime = plan.settings.runtime;
  std::string text =
      absl::StrCat("\ntimes as planned by the costs of kernels and links; registers ",
                   runtime.debug_register_slots > 0
                       ? absl::StrCat("of ", runtime.debug_register_slots, " slots each")
                       : absl::StrCat("by ", Name(runtime.registers)),
                   "\n");
  absl::StrAppend(&text, "  a micro-batch every ", TimeText(solution.micro_batch_ns), ", ",
                  plan.updates.every > 1 ? absl::StrCat(plan.updates.every, " steps") : "a step",
                  " in ", TimeText(solution.times.iteration_ns), "\n");
  absl::StrAppend(&text, "  no choice of register counts takes less than ",
                  TimeText(bound.micro_batch_ns), " per micro-batch; the bound is ",
                  BusiestText(graph.timed, bound), "\n");
  RhythmPoint point = PointOf(graph.timed, solution);
  absl::StrAppend(&text, "  registers take ", BytesText(static_cast<double>(point.device_bytes)),
                  " on the fullest device");
  if (runtime.registers == RegisterChoice::kSolved && runtime.debug_register_slots == 0) {
    absl::StrAppend(&text, ", ", BytesText(static_cast<double>(solution.bytes)),
                    " over all stages, where no counts with this period take less than ",
                    BytesText(solution.bytes_bound));
  }
  absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, SlotsText(graph.timed, solution.slots));
  return text;
}

}  // namespace weir::compiler
