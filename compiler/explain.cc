// The text of `weir plan`. Stable: the same plan gives the same text.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/lower/rank_lowering.h"
#include "compiler/lower/segments.h"
#include "compiler/play_schedule.h"
#include "compiler/rhythm/play_stations.h"
#include "compiler/rhythm/rhythm_curve.h"
#include "compiler/rhythm/solve_rhythm.h"
#include "compiler/unit_text.h"
#include "runtime/base/status.h"

namespace weir::compiler {
namespace {

std::string Bytes(double bytes) { return BytesText(bytes); }

std::string Plural(int64_t n, const std::string& word) { return absl::StrCat(n, " ", word, n == 1 ? "" : "s"); }

class Explainer {
 public:
  Explainer(const LogicalPlan& plan, const CostModel& costs) : plan_(plan), costs_(costs), module_(plan.module) {}

  absl::StatusOr<std::string> Run() {
    Head();
    Stages();
    Functions();
    WEIR_RETURN_IF_ERROR(Boxings());
    WEIR_ASSIGN_OR_RETURN(std::string time, ExplainRhythm(plan_, costs_));
    absl::StrAppend(&text_, time);
    WEIR_RETURN_IF_ERROR(Ranks());
    return text_;
  }

 private:
  // " · weights updated in steps n with n % 4 == 3 · gradients 1 update old"
  std::string UpdatesText() const {
    const UpdateRate& updates = plan_.updates;
    std::string text;
    if (updates.every > 1) text = absl::StrCat(" · weights updated in steps n with n % ", updates.every, " == ", updates.phase);
    if (updates.delay > 0) absl::StrAppend(&text, " · gradients ", Plural(updates.delay, "update"), " old");
    return text;
  }

  void Head() {
    absl::StrAppend(&text_, "job ", plan_.job.name().empty() ? plan_.job.graph().name() : plan_.job.name(), " · mesh ",
                    plan_.mesh.num_axes() == 0 ? "of one device" : plan_.mesh.ToText(), " · ", Plural(plan_.mesh.num_ranks(), "device"),
                    " · ", Plural(plan_.mesh.num_stages(), "stage"), " · ", plan_.micro_batches, " micro-batch",
                    plan_.micro_batches == 1 ? "" : "es", UpdatesText(), " · ZeRO ", plan_.job.training().zero_stage(), "\n");
    int64_t elements = 0;
    for (const Variable& variable : module_.variables) elements += variable.type.num_elements();
    absl::StrAppend(&text_, Plural(static_cast<int64_t>(module_.variables.size()), "weight"), ", ", elements, " parameters · plan ",
                    plan_.plan_id, "\n");
  }

  void Stages() {
    const PipelineSchedule& schedule = plan_.schedule;
    const bool pipeline = schedule.num_stages > 1;
    absl::StrAppend(&text_, "\nstages", pipeline ? absl::StrCat(" · ", Name(schedule.kind)) : "", "\n");
    for (int64_t stage = 0; stage < schedule.num_stages; ++stage) {
      std::vector<std::string> parts, ranks, in_flight;
      for (int64_t part = stage; part < schedule.num_parts(); part += schedule.num_stages) {
        std::vector<std::string> calls;
        for (const ModelCall& call : module_.model.calls) {
          if (call.part == part) calls.push_back(call.name);
        }
        parts.push_back(absl::StrCat(schedule.virtual_stages > 1 ? absl::StrCat("part ", part, " ") : "", absl::StrJoin(calls, ", ")));
        in_flight.push_back(absl::StrCat(schedule.in_flight[part]));
      }
      for (int64_t r = 0; r < plan_.stage_mesh.num_ranks(); ++r) ranks.push_back(absl::StrCat(plan_.mesh.GlobalRank(stage, r)));
      absl::StrAppend(&text_, "  stage ", stage, ": ", absl::StrJoin(parts, "; "), " on ranks ", absl::StrJoin(ranks, ", "), ", at most ",
                      absl::StrJoin(in_flight, " and "), in_flight == std::vector<std::string>{"1"} ? " micro-batch" : " micro-batches",
                      " in flight\n");
    }
    if (!pipeline) return;
    absl::StrAppendFormat(&text_, "  bubble %s = %.1f %% if parts are even", schedule.FormulaText(), 100 * schedule.BubbleFormula(1, 1));
    if (plan_.mode != PlanMode::kTrain) {
      absl::StrAppend(&text_, "\n");
      return;
    }
    Chart();
  }

  // Of a step as it is planned, with the costs that it is planned with.
  void Chart() {
    constexpr size_t kColumnsMax = 116;
    const PipelineSchedule& schedule = plan_.schedule;
    absl::StatusOr<StationGraph> graph = BuildStationGraph(plan_, costs_);
    absl::StatusOr<RegisterSolution> solution = graph.ok() ? SolveStations(plan_, *graph) : graph.status();
    if (!solution.ok()) {
      absl::StrAppend(&text_, "\n");
      return;
    }
    const StationPlay played = PlayStations(schedule, *graph, solution->slots);
    absl::StrAppendFormat(&text_, "; played with the costs of this plan %.1f %%%s\n", 100 * played.play.bubble,
                          played.transfers == Transfers::kCounted ? "" : ", transfers not counted");
    const ScheduleChart chart = DrawSchedule(played.play, kColumnsMax);
    if (chart.text.empty()) return;
    absl::StrAppend(&text_, "  a column is ", TimeText(std::llround(chart.column)), ", a part's forward pass on average: F forward, ",
                    schedule.splits_backward() ? "B gradients of inputs, W of weights" : "B backward",
                    schedule.virtual_stages > 1 ? ", f and b of a stage's later parts" : "",
                    chart.numbered ? ", with the micro-batch's last digit" : "", "\n", chart.text);
  }

  void Functions() {
    std::map<int, std::vector<std::string>> callers;
    for (const ProgramItem& item : module_.items) {
      if (item.kind == ItemKind::kCall) callers[item.function].push_back(item.name);
    }
    absl::StrAppend(&text_, "\nfunctions: every tensor with its layout, and why\n");
    for (const auto& [index, names] : callers) {
      const Function& function = module_.functions[index];
      absl::StrAppend(&text_, "\n", names.size() == 1 ? names[0] : absl::StrCat(names[0], " and ", names.size() - 1, " more"), "\n");
      for (const Arg& arg : function.args) Tensor(function, arg.value, arg.kind == ArgKind::kParameter ? "weight" : "input");
      for (const Node& node : function.nodes) {
        for (size_t i = 0; i < node.outputs.size(); ++i) Tensor(function, node.outputs[i], i == 0 ? node.op : "");
      }
    }
  }

  void Tensor(const Function& function, ValueId value, const std::string& op) {
    const Value& v = function.values[value];
    absl::StrAppendFormat(&text_, "  %-22s %-20s %-40s %-26s", v.name, op, ToText(v.type), ToText(v.layout, plan_.stage_mesh));
    if (!v.why.empty()) absl::StrAppend(&text_, " ", v.why);
    absl::StrAppend(&text_, "\n");
  }

  // Of all that is counted over the steps from one update to the next.
  std::string PerText() const { return plan_.updates.every > 1 ? absl::StrCat(" in ", plan_.updates.every, " steps") : " a step"; }

  // One line per boxing: method, layouts, bytes a step over all links and on the busiest link.
  void Boxing(const std::string& name, const std::vector<TensorType>& types, const std::vector<std::vector<BoxingStep>>& steps,
              int64_t times, const std::string& repeat) {
    int64_t total = 0;
    std::map<std::pair<int64_t, int64_t>, int64_t> links;
    std::vector<std::string> methods;
    for (size_t k = 0; k < steps[0].size(); ++k) {
      methods.push_back(Name(steps[0][k].method));
      std::vector<BoxingStep> now;
      for (const auto& list : steps) now.push_back(list[k]);
      for (int64_t rank = 0; rank < plan_.mesh.num_ranks(); ++rank) {
        for (const auto& [peer, pieces] : BuildExchange(types, now, plan_.mesh, rank).sends) {
          for (const Piece& piece : pieces) {
            int64_t bytes = piece.src.volume() * SizeOf(types[piece.tensor].dtype) * times;
            total += bytes;
            links[{rank, peer}] += bytes;
          }
        }
      }
    }
    int64_t worst = 0;
    std::pair<int64_t, int64_t> busiest{0, 0};
    for (const auto& [link, bytes] : links) {
      if (bytes > worst) {
        worst = bytes;
        busiest = link;
      }
    }
    sum_ += total;
    absl::StrAppend(&text_, "  ", name, ": ", absl::StrJoin(methods, " + "), ", ", Bytes(static_cast<double>(total)), PerText(), repeat);
    if (worst > 0) absl::StrAppend(&text_, ", busiest link ", busiest.first, " -> ", busiest.second, " ", Bytes(static_cast<double>(worst)));
    absl::StrAppend(&text_, "\n");
  }

  absl::Status Boxings() {
    absl::StrAppend(&text_, "\nboxings\n");
    std::map<std::pair<int, int64_t>, int64_t> calls;  // by (function, stage)
    for (const ProgramItem& item : module_.items) {
      if (item.kind == ItemKind::kCall && !item.inputs.empty()) {
        int value = item.outputs.empty() ? item.inputs[0] : item.outputs[0];
        calls[{item.function, module_.values[value].stage}] += TimesPerUpdate(plan_, item.rate);
      }
    }
    for (const auto& [key, times] : calls) {
      const Function& function = module_.functions[key.first];
      WEIR_ASSIGN_OR_RETURN(SegmentedFunction segmented, CutSegments(function, plan_.mesh));
      for (TransferBundle& bundle : segmented.transfers) {
        std::vector<TensorType> types;
        std::vector<std::string> names;
        for (size_t k = 0; k < bundle.nodes.size(); ++k) {
          const Node& node = function.nodes[bundle.nodes[k]];
          const Value& from = function.values[node.inputs[0]];
          types.push_back(from.type);
          names.push_back(absl::StrCat(from.name, " ", ToText(from.layout, plan_.stage_mesh), " -> ",
                                       ToText(function.values[node.outputs[0]].layout, plan_.stage_mesh)));
          for (BoxingStep& step : bundle.steps[k]) step.from.stage = step.to.stage = key.second;
        }
        std::string place = plan_.mesh.num_stages() > 1 ? absl::StrCat(", stage ", key.second) : "";
        Boxing(absl::StrCat("in ", function.name, place, ": ", absl::StrJoin(names, "; ")), types, bundle.steps, times,
               absl::StrCat(" (", times, " times)"));
      }
    }
    for (const ProgramItem& item : module_.items) {
      if (item.kind != ItemKind::kBoxing) continue;
      std::vector<TensorType> types;
      std::vector<std::vector<BoxingStep>> steps;
      for (size_t i = 0; i < item.inputs.size(); ++i) {
        const ProgramValue& from = module_.values[item.inputs[i]];
        const ProgramValue& to = module_.values[item.outputs[i]];
        types.push_back(from.type);
        WEIR_ASSIGN_OR_RETURN(std::vector<BoxingStep> list,
                              PlanBoxing(from.type, {from.layout, from.stage}, {to.layout, to.stage}, plan_.mesh));
        steps.push_back(std::move(list));
      }
      const ProgramValue& from = module_.values[item.inputs[0]];
      const ProgramValue& to = module_.values[item.outputs[0]];
      std::string stages = from.stage == to.stage ? "" : absl::StrCat(", stage ", from.stage, " -> ", to.stage);
      const int64_t times = TimesPerUpdate(plan_, item.rate);
      Boxing(absl::StrCat(item.name, " ", ToText(from.layout, plan_.stage_mesh), " -> ", ToText(to.layout, plan_.stage_mesh), stages), types,
             steps, times, times > 1 ? absl::StrCat(" (", times, " times)") : "");
    }
    absl::StrAppend(&text_, "  together ", Bytes(static_cast<double>(sum_)), PerText(), "\n");
    return absl::OkStatus();
  }

  absl::Status Ranks() {
    absl::StrAppend(&text_, "\nranks\n");
    // Each rank of a large mesh takes long, and they are alike.
    int64_t shown = std::min<int64_t>(plan_.mesh.num_ranks(), std::clamp<int64_t>(16384 / plan_.mesh.num_ranks(), 1, 64));
    for (int64_t rank = 0; rank < shown; ++rank) {
      WEIR_ASSIGN_OR_RETURN(RankPlan lowered, LowerForRank(plan_, rank));
      std::map<std::string, int> actors;
      std::map<int, int> slots;
      int64_t weights = 0, optimiser = 0, delayed = 0, kernels = 0;
      std::set<int> of_gradients;  // registers that gradients lag in
      for (const StateSpec& state : lowered.state()) {
        if (state.has_token()) of_gradients.insert(state.token().register_id());
      }
      for (const ActorSpec& actor : lowered.actor()) {
        actors[actor.kind() == ActorSpec::SEND ? "send" : actor.kind() == ActorSpec::SOURCE ? "source" : actor.kind() == ActorSpec::SINK ? "sink" : "compute"]++;
        if (actor.program() >= 0) kernels += lowered.program(actor.program()).call_size();
      }
      for (const RegisterSpec& spec : lowered.registers()) {
        slots[spec.slots()]++;
        if (spec.side() == RegisterSpec::OUTBOUND) continue;
        if (spec.initial_tokens() > 0) (of_gradients.count(spec.id()) > 0 ? delayed : weights) += spec.stride() * spec.slots();
      }
      for (const StateSpec& state : lowered.state()) {
        if (state.name().find('/') != std::string::npos && !state.has_token()) {
          int64_t elements = 1;
          for (int64_t size : state.slice().shape()) elements *= size;
          optimiser += elements * 4;
        }
      }
      std::vector<std::string> parts, counts;
      for (const auto& [kind, count] : actors) parts.push_back(absl::StrCat(count, " ", kind));
      for (const auto& [n, count] : slots) counts.push_back(absl::StrCat(count, " of ", Plural(n, "slot")));
      absl::StrAppend(&text_, "  rank ", rank, " (", lowered.device(), "): ", Plural(lowered.actor_size(), "actor"), " (",
                      absl::StrJoin(parts, ", "), ") running ", Plural(kernels, "kernel"), "; ", Plural(lowered.registers_size(), "register"), " (",
                      absl::StrJoin(counts, ", "), ")\n    memory ", Bytes(static_cast<double>(lowered.arena_bytes())), ": weights ",
                      Bytes(static_cast<double>(weights)), ", optimiser ", Bytes(static_cast<double>(optimiser)),
                      delayed > 0 ? absl::StrCat(", delayed gradients ", Bytes(static_cast<double>(delayed))) : "", ", registers ",
                      Bytes(static_cast<double>(lowered.arena_bytes() - weights - optimiser - delayed - lowered.scratch_bytes())), ", scratch ", Bytes(static_cast<double>(lowered.scratch_bytes())), "\n");
    }
    if (shown < plan_.mesh.num_ranks()) absl::StrAppend(&text_, "  … and ", plan_.mesh.num_ranks() - shown, " more ranks\n");
    return absl::OkStatus();
  }

  const LogicalPlan& plan_;
  const CostModel& costs_;
  const Module& module_;
  std::string text_;
  int64_t sum_ = 0;
};

}  // namespace

absl::StatusOr<std::string> ExplainPlan(const LogicalPlan& plan, const CostModel* costs) {
  const PeakCosts defaults;
  return Explainer(plan, costs != nullptr ? *costs : defaults).Run();
}

}  // namespace weir::compiler
