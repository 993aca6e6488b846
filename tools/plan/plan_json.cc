#include "tools/plan/plan_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "compiler/explain/memory_view.h"
#include "runtime/base/status.h"
#include "tools/plan/layout_list.h"
#include "tools/plan/plan_sections.h"
#include "tools/plan/plan_summary.h"

namespace weir::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMemoryColumns = 72, kTensorsShown = 10;

// Returns the memory view as JSON: each tensor, its time and its reason, as `weir plan` draws them.
Json MemoryJson(const compiler::MemoryView& view) {
  Json columns = Json::array(), largest = Json::array();
  for (const auto& column : view.columns)
    columns.push_back({{"alive_bytes", column.bytes}, {"phase", std::string(1, column.phase)}});
  for (const auto& tensor : view.largest) {
    largest.push_back({{"name", tensor.name},
                       {"bytes", tensor.bytes},
                       {"slots", tensor.slots},
                       {"held_slots", tensor.held},
                       {"from", tensor.from},
                       {"until", tensor.until},
                       {"alive_ns", tensor.alive_ns},
                       {"shares_with", tensor.sharers},
                       {"why", tensor.why}});
  }
  return {{"weight_bytes", view.weight_bytes},     {"optimiser_bytes", view.optimiser_bytes},
          {"register_bytes", view.register_bytes}, {"landing_bytes", view.landing_bytes},
          {"scratch_bytes", view.scratch_bytes},   {"unshared_bytes", view.unshared_bytes},
          {"most_alive_bytes", view.most_bytes},   {"most_alive_ns", view.most_ns},
          {"iteration_ns", view.iteration_ns},     {"over_the_step", std::move(columns)},
          {"largest", std::move(largest)}};
}

Json RankJson(const proto::RankPlan& plan) {
  Json states = Json::array();
  for (const proto::StateSpec& state : plan.state()) {
    const proto::TensorSliceProto& slice = state.slice();
    Json entry = {{"name", state.name()}, {"layout", state.layout()}, {"dtype", slice.dtype()}};
    entry["shape"] = std::vector<int64_t>(slice.shape().begin(), slice.shape().end());
    entry["offset"] = std::vector<int64_t>(slice.offset().begin(), slice.offset().end());
    entry["owner"] = state.owner();
    states.push_back(entry);
  }
  int64_t sent = 0;
  for (const proto::RegisterSpec& spec : plan.registers()) {
    if (spec.side() == proto::RegisterSpec::OUTBOUND) sent += spec.bytes() * spec.tokens_per_step();
  }
  return {{"rank", plan.rank()},
          {"device", plan.device()},
          {"stage", plan.stage()},
          {"actors", plan.actor_size()},
          {"registers", plan.registers_size()},
          {"arena_bytes", plan.arena_bytes()},
          {"scratch_bytes", plan.scratch_bytes()},
          {"sent_bytes_per_step_at_most", sent},
          {"memory", MemoryJson(compiler::ViewMemory(plan, kMemoryColumns, kTensorsShown))},
          {"states", states}};
}

absl::StatusOr<Json> ScheduleJson(const compiler::LogicalPlan& plan,
                                  const compiler::CostModel& costs) {
  WEIR_ASSIGN_OR_RETURN(const std::string text, ScheduleSection(plan, costs));
  Json parts = Json::array();
  for (int64_t part = 0; part < plan.schedule.num_parts(); ++part) {
    std::vector<std::string> calls;
    for (const auto& call : plan.module.model.calls) {
      if (call.part == part) calls.push_back(call.name);
    }
    parts.push_back({{"stage", plan.schedule.StageOf(part)},
                     {"in_flight", plan.schedule.in_flight[part]},
                     {"reads_parts", plan.schedule.PartsBefore(part)},
                     {"calls", calls}});
  }
  Json json{{"kind", compiler::Name(plan.schedule.kind)},
            {"stages_in_a_row", plan.schedule.stages_in_a_row()},
            {"predicted_bubble", plan.predicted_bubble},
            {"parts", parts},
            {"text", std::string(absl::StripAsciiWhitespace(text))}};
  // Stages side by side have no formula.
  if (plan.schedule.is_chain()) json["bubble_of_even_parts"] = plan.schedule.BubbleFormula(1, 1);
  return json;
}

Json PredictionJson(const sim::JobCosts& costs, const sim::StepPrediction& prediction) {
  Json json = {{"costs", costs.Text()},
               {"step_seconds", prediction.step_ns * 1e-9},
               {"simulated", prediction.report.has_value()}};
  if (prediction.report.has_value()) json["ranks_simulated"] = prediction.report->ranks_simulated;
  if (!prediction.why_not.empty()) json["not_simulated_because"] = prediction.why_not;
  return json;
}

// Returns the names of the mesh axes from slowest to fastest from rank to rank.
std::vector<std::string> RankOrder(const compiler::LogicalPlan& plan) {
  std::vector<std::string> names(plan.job->mesh().rank_order().begin(),
                                 plan.job->mesh().rank_order().end());
  if (!names.empty()) return names;
  // If stages have meshes of their own, the mesh of the plan has their order, too.
  for (const sbp::MeshAxis& axis : plan.mesh.axes()) names.push_back(axis.name);
  return names;
}

Json FitJson(const PlanSummary& summary, const train::MemoryNeed& need) {
  Json fit = {{"fits", summary.fits},
              {"text", summary.fit},
              {"rank", need.rank.value()},
              {"rank_bytes", need.bytes},
              {"all_bytes", need.all_bytes}};
  if (need.graph_bytes > 0) fit["graph_bytes_estimated"] = need.graph_bytes;
  if (need.driver_bytes > 0) fit["driver_bytes"] = need.driver_bytes;
  if (summary.device_bytes_max > 0) fit["device_bytes_max"] = summary.device_bytes_max;
  return fit;
}

// Returns the lines of the screen by their label.
Json LinesJson(const PlanSummary& summary) {
  Json lines = {{"job", summary.job},
                {"step", summary.step},
                {"time", summary.time},
                {"memory", summary.memory},
                {"bytes", summary.bytes},
                {"hosts", summary.hosts},
                {"precision", summary.precision}};
  for (const char* label : {"time", "hosts", "precision"}) {
    if (lines[label].get<std::string>().empty()) lines.erase(label);
  }
  return lines;
}

Json DevicesJson(const PlanSummary& summary) {
  Json devices = Json::array();
  for (const PlanSummary::Device& device : summary.devices) {
    devices.push_back({{"rank", device.rank.value()},
                       {"name", device.name},
                       {"computing", device.compute},
                       {"packing", device.transfer},
                       {"waiting", device.waiting},
                       {"bytes", device.bytes}});
  }
  return devices;
}

const char* RoleName(TensorLayout::Role role) {
  switch (role) {
    case TensorLayout::Role::kWeight: return "weight";
    case TensorLayout::Role::kInput: return "input";
    case TensorLayout::Role::kOutput: return "output";
    case TensorLayout::Role::kInside: break;
  }
  return "inside";
}

Json FunctionsJson(const compiler::LogicalPlan& plan) {
  Json functions = Json::array();
  for (const FunctionLayouts& function : ListLayouts(plan)) {
    Json tensors = Json::array();
    for (const TensorLayout& tensor : function.tensors) {
      tensors.push_back({{"name", tensor.name},
                         {"what", tensor.what},
                         {"role", RoleName(tensor.role)},
                         {"type", tensor.type},
                         {"layout", tensor.layout},
                         {"why", tensor.reason}});
    }
    functions.push_back({{"name", function.function},
                         {"first_call", function.first_call},
                         {"calls", function.calls},
                         {"tensors", std::move(tensors)}});
  }
  return functions;
}

Json BoxingsJson(const std::vector<BoxingCost>& boxings) {
  Json rows = Json::array();
  for (const BoxingCost& boxing : boxings) {
    Json row = {{"name", boxing.name},
                {"method", boxing.method},
                {"layouts", boxing.layouts},
                {"bytes_per_step", boxing.bytes},
                {"times", boxing.times}};
    if (!boxing.stages.empty()) row["stages"] = boxing.stages;
    if (!boxing.cause.empty()) row["why"] = boxing.cause;
    if (boxing.link_bytes > 0) {
      row["busiest_link"] = {{"from", boxing.from.value()},
                             {"to", boxing.to.value()},
                             {"bytes_per_step", boxing.link_bytes}};
    }
    if (boxing.bytes_between_hosts > 0) row["bytes_between_hosts"] = boxing.bytes_between_hosts;
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::StatusOr<Json> RanksJson(const compiler::LogicalPlan& plan, const train::NeedAndPlans& memory,
                               RanksInJson which) {
  Json ranks = Json::array();
  if (which == RanksInJson::kLookedAt) {
    for (const auto& [rank, lowered] : memory.plans) ranks.push_back(RankJson(lowered));
    return ranks;
  }
  for (RankId rank : plan.places.all_ranks()) {
    WEIR_ASSIGN_OR_RETURN(const proto::RankPlan lowered, compiler::LowerForRank(plan, rank));
    ranks.push_back(RankJson(lowered));
  }
  return ranks;
}

}  // namespace

absl::StatusOr<Json> PlanJson(const compiler::LogicalPlan& plan, const sim::JobCosts& costs,
                              const sim::StepPrediction& prediction,
                              const train::NeedAndPlans& memory, const PlacedAxes& placed,
                              RanksInJson ranks) {
  WEIR_ASSIGN_OR_RETURN(const PlanSummary summary,
                        Summarize(plan, costs, prediction, memory, placed));
  WEIR_ASSIGN_OR_RETURN(Json schedule, ScheduleJson(plan, costs.model()));
  WEIR_ASSIGN_OR_RETURN(Json rank_list, RanksJson(plan, memory, ranks));
  Json passes = Json::array();
  for (const auto& timing : plan.timings) {
    passes.push_back(
        {{"name", timing.name}, {"microseconds", timing.microseconds}, {"nodes", timing.nodes}});
  }
  return Json{{"job", plan.job->name()},
              {"plan_id", plan.plan_id},
              {"mesh", plan.mesh_text},
              {"rank_order", RankOrder(plan)},
              {"micro_batches", plan.micro_batches},
              {"fit", FitJson(summary, memory.need)},
              {"lines", LinesJson(summary)},
              {"warnings", summary.warnings},
              {"prediction", PredictionJson(costs, prediction)},
              {"devices", DevicesJson(summary)},
              {"schedule", std::move(schedule)},
              {"bytes_per_step", summary.bytes_per_step},
              {"boxings", BoxingsJson(summary.boxings)},
              {"functions", FunctionsJson(plan)},
              {"passes", std::move(passes)},
              {"ranks_left_out", plan.places.num_ranks() - static_cast<int64_t>(rank_list.size())},
              {"ranks", std::move(rank_list)}};
}

}  // namespace weir::plan
