// weir plan: shows how a job would run, without a device.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/compile.h"
#include "compiler/explain/memory_view.h"
#include "compiler/explain/rhythm_curve.h"
#include "compiler/job/mesh_use.h"
#include "compiler/job/precision_rules.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"
#include "tools/cli/planned_job.h"
#include "tools/plan/plan_json.h"
#include "tools/plan/plan_screen.h"
#include "tools/plan/plan_sections.h"
#include "tools/sim/job_costs.h"
#include "tools/sim/predict_step.h"
#include "tools/sim/product_ways.h"
#include "tools/train/memory_budget.h"

namespace weir::cli {
namespace {

absl::StatusOr<compiler::PlanMode> ParseMode(const std::string& mode) {
  if (mode == "train") return compiler::PlanMode::kTrain;
  if (mode == "evaluate") return compiler::PlanMode::kEvaluate;
  if (mode == "generate") return compiler::PlanMode::kGenerate;
  return Rejected({"W0007", "--mode", "train, evaluate or generate", mode,
                   Nearest(mode, std::vector<std::string>{"train", "evaluate", "generate"})});
}

struct PlanArguments : PlannedJobArguments {
  std::string mode = "train";
  bool json = false, all_ranks = false;
  bool curve = false;
  int64_t rank = -1;
  bool timings = false;
  std::string dump_after;
  std::vector<std::string> disabled;
  // Sections below the screen.
  bool layouts = false, boxings = false, schedule = false, memory = false, actors = false,
       products = false, all = false;
  std::string layouts_of;
};

constexpr int kChartColumns = 72, kChartRows = 8, kChartRowsOfMany = 4, kTensorsShown = 10,
              kStagesCharted = 8;

// Returns the memory over the step: a chart of the first rank of each stage, and the largest
// tensors of the fullest rank.
std::string MemorySection(const compiler::LogicalPlan& plan, const train::NeedAndPlans& of) {
  std::string text =
      "\nmemory over the step, by planned starts (f forward, b backward, w weight gradients, u "
      "update)\n";
  const int64_t stages = std::min<int64_t>(plan.places.size(), kStagesCharted);
  for (int64_t stage = 0; stage < stages; ++stage) {
    const proto::RankPlan& lowered = of.plans.at(plan.places.RankAt(stage, 0));
    absl::StrAppend(&text, "rank ", lowered.rank(), " (", lowered.device(), ")\n",
                    ChartText(compiler::ViewMemory(lowered, kChartColumns, 0),
                              stages > 1 ? kChartRowsOfMany : kChartRows));
  }
  if (stages < plan.places.size())
    absl::StrAppend(&text, "… and ", Plural(plan.places.size() - stages, "more stage"), "\n");
  absl::StrAppend(
      &text, "rank ", of.need.rank, ", which needs most\n",
      LargestText(compiler::ViewMemory(of.plans.at(of.need.rank), kChartColumns, kTensorsShown)));
  return text;
}

// The number of points between the least memory and the shortest period.
constexpr int kCurvePointsMax = 12;

nlohmann::ordered_json PointsJson(const std::vector<compiler::RhythmPoint>& points) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const compiler::RhythmPoint& point : points) {
    nlohmann::ordered_json entry;
    if (!point.name.empty()) entry["registers"] = point.name;
    if (point.refused.empty()) {
      entry["device_bytes"] = point.device_bytes;
      entry["all_stages_bytes"] = point.all_bytes;
      entry["micro_batch_ns"] = point.micro_batch_ns;
      entry["step_ns"] = point.step_ns;
    } else {
      entry["refused"] = point.refused;
    }
    json.push_back(entry);
  }
  return json;
}

// Prints the gain from register counts, by the costs that the plan was compiled with.
absl::Status PrintCurve(const compiler::LogicalPlan& plan, const compiler::CostModel& costs,
                        const PlanArguments& arguments, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(std::vector<compiler::RhythmPoint> choices,
                        compiler::CompareRegisterChoices(plan, costs));
  WEIR_ASSIGN_OR_RETURN(std::vector<compiler::RhythmPoint> curve,
                        compiler::RegisterCurve(plan, costs, kCurvePointsMax));
  if (arguments.json) {
    nlohmann::ordered_json json = {{"job", plan.job->name()},
                                   {"mesh", plan.mesh_text},
                                   {"choices", PointsJson(choices)},
                                   {"curve", PointsJson(curve)}};
    out << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    return absl::OkStatus();
  }
  out << "memory and throughput of "
      << (plan.job->name().empty() ? arguments.job.path : plan.job->name())
      << " by register counts (runtime.registers)\n"
      << compiler::CurveText(choices, curve);
  return absl::OkStatus();
}

absl::Status PrintRank(const compiler::LogicalPlan& plan, int64_t rank, std::ostream& out) {
  if (rank >= plan.places.num_ranks()) {
    return Rejected({"W0008", "--rank",
                     absl::StrCat("a rank from 0 to ", plan.places.num_ranks() - 1),
                     absl::StrCat(rank), ""});
  }
  WEIR_ASSIGN_OR_RETURN(proto::RankPlan lowered,
                        compiler::LowerForRank(plan, RankId(static_cast<int32_t>(rank))));
  std::string text;
  google::protobuf::TextFormat::PrintToString(lowered, &text);
  out << "# proto-file: proto/plan.proto\n# proto-message: weir.proto.RankPlan\n" << text;
  return absl::OkStatus();
}

// Returns the rules that a search has found, as text for the job.
std::string FoundRulesSection(const search::SettledRules& settled, const CliContext& context) {
  return absl::StrCat("\n", WrapText(search::SettledText(settled), context.columns),
                      "\nthe same as text, for the job in place of its rules and of rules: AUTO\n",
                      search::RulesToPaste(settled));
}

// Prints the screen and the requested sections.
absl::Status PrintText(const PlannedJob& planned, const sim::JobCosts& costs,
                       const PlanArguments& arguments, const CliContext& context) {
  const compiler::LogicalPlan& plan = *planned.plan;
  WEIR_ASSIGN_OR_RETURN(const train::NeedAndPlans memory, NeedWithDriver(plan, costs));
  WEIR_ASSIGN_OR_RETURN(
      std::string text,
      plan::PlanScreen(plan, costs, sim::PredictStep(plan, costs), memory, planned.placed));
  const auto add = [&text](absl::StatusOr<std::string> section) -> absl::Status {
    WEIR_RETURN_IF_ERROR(section.status());
    absl::StrAppend(&text, *section);
    return absl::OkStatus();
  };
  const bool all = arguments.all;
  if (all || arguments.layouts)
    WEIR_RETURN_IF_ERROR(add(plan::LayoutsSection(plan, arguments.layouts_of)));
  if (all || arguments.boxings) WEIR_RETURN_IF_ERROR(add(plan::BoxingsSection(plan)));
  if (all || arguments.schedule)
    WEIR_RETURN_IF_ERROR(add(plan::ScheduleSection(plan, costs.model())));
  if (all || arguments.actors) WEIR_RETURN_IF_ERROR(add(plan::ActorsSection(plan)));
  if (all || arguments.products) WEIR_RETURN_IF_ERROR(add(sim::ProductsSection(plan)));
  if (all || arguments.memory) WEIR_RETURN_IF_ERROR(add(MemorySection(plan, memory)));
  if (!planned.collectives.text.empty())
    absl::StrAppend(&text, "\n", WrapText(planned.collectives.text, context.columns), "\n");
  if (planned.settled.has_value())
    absl::StrAppend(&text, FoundRulesSection(*planned.settled, context));
  *context.out << text;
  return absl::OkStatus();
}

// On larger meshes the JSON has figures of the ranks that stand for all, unless all are asked for.
constexpr int64_t kRanksInJsonMax = 64;

absl::Status PrintJson(const PlannedJob& planned, const sim::JobCosts& costs,
                       const PlanArguments& arguments, const CliContext& context) {
  const compiler::LogicalPlan& plan = *planned.plan;
  const int64_t num_ranks = plan.places.num_ranks();
  const bool all = arguments.all_ranks || num_ranks <= kRanksInJsonMax;
  WEIR_ASSIGN_OR_RETURN(const train::NeedAndPlans memory, NeedWithDriver(plan, costs));
  WEIR_ASSIGN_OR_RETURN(
      nlohmann::ordered_json json,
      plan::PlanJson(plan, costs, sim::PredictStep(plan, costs), memory, planned.placed,
                     all ? plan::RanksInJson::kAll : plan::RanksInJson::kLookedAt));
  if (!all) {
    *context.err
        << "the JSON has figures of " << json["ranks"].size() << " of " << num_ranks
        << " ranks, which stand for the others; --all-ranks lists all, and --rank N prints "
           "the plan of one\n";
  }
  if (!planned.collectives.text.empty()) json["collectives"] = planned.collectives.text;
  AddFoundRules(planned, &json);
  *context.out << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
               << "\n";
  return absl::OkStatus();
}

absl::Status ShowPlan(const PlanArguments& arguments, const CliContext& context) {
  std::ostream& out = *context.out;
  WEIR_ASSIGN_OR_RETURN(JobWithCosts read, arguments.ReadWithCosts());
  compiler::CompileOptions options;
  WEIR_ASSIGN_OR_RETURN(options.mode, ParseMode(arguments.mode));
  options.dump_after = arguments.dump_after;
  options.dump_to = context.err;
  options.disabled.insert(arguments.disabled.begin(), arguments.disabled.end());
  context.Confine({}, sandbox::CpuTime::kLimited);
  WEIR_ASSIGN_OR_RETURN(const PlannedJob planned, PlanJob(arguments.place, options, &read));
  const std::unique_ptr<compiler::LogicalPlan>& plan = planned.plan;
  const sim::JobCosts& costs = read.costs;
  WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(*plan));
  // The screen itself has these warnings.
  const bool on_screen = arguments.rank < 0 && !arguments.curve && !arguments.json;
  std::vector<std::string> sentences = compiler::DevicesWithoutWork(*plan);
  for (std::string& sentence : compiler::PrecisionRulesWithoutUse(*plan))
    sentences.push_back(std::move(sentence));
  for (const std::string& sentence : sentences) {
    if (!on_screen) *context.err << "WARNING: " << sentence << "\n";
  }
  if (!read.products.empty()) *context.err << read.products << "\n";
  if (!on_screen && planned.settled.has_value())
    *context.err << search::SettledText(*planned.settled) << "\n";
  if (!on_screen && !planned.collectives.text.empty())
    *context.err << planned.collectives.text << "\n";
  if (arguments.rank >= 0) return PrintRank(*plan, arguments.rank, out);
  if (arguments.curve) return PrintCurve(*plan, costs.model(), arguments, out);
  if (arguments.json) return PrintJson(planned, costs, arguments, context);
  WEIR_RETURN_IF_ERROR(PrintText(planned, costs, arguments, context));
  if (arguments.timings) {
    out << "\npasses\n";
    for (const auto& timing : plan->timings) {
      out << absl::StrFormat("  %-24s %10.1f us  %6d nodes after\n", timing.name,
                             timing.microseconds, timing.nodes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddPlanVerb(CLI::App* app, CliContext* context) {
  auto plan = std::make_shared<PlanArguments>();
  CLI::App* verb = AddVerb(
      app, context, "plan",
      "Show how a job would run: whether it fits, the step's time, bytes, memory, what looks wrong",
      "  weir plan gpt.textproto --mesh dp=2,tp=2\n"
      "  weir plan gpt.textproto --mesh pp=4 --set training.micro_batches=8\n"
      "  weir plan gpt.textproto --mesh dp=2,tp=2 --layouts block    how each tensor of function "
      "block lies on the mesh, and why\n"
      "  weir plan gpt.textproto --mesh dp=2,tp=2 --all\n"
      "  weir plan gpt.textproto --json | jq '.ranks[].arena_bytes'\n"
      "  weir plan gpt.textproto --rank 0            the plan of one rank as protobuf text\n"
      "  weir plan gpt.textproto --mesh pp=4 --curve  what register counts buy: memory against "
      "speed\n"
      "  weir plan gpt.textproto --mesh pp=4 --cluster here.textproto --set "
      "runtime.registers=SOLVED\n"
      "  weir plan gpt.textproto --dump-after 'propagate-.*'",
      [plan, context] { return ShowPlan(*plan, *context); });
  plan->AddTo(verb, context, JobArguments::Data::kNotOpened);
  plan->job.AddRulesFlag(verb);
  verb->add_option_function<std::string>(
          "--layouts",
          [plan](const std::string& function) {
            plan->layouts = true;
            plan->layouts_of = function;
          },
          "Add every tensor with its layout and why, of one function of the graph or of all")
      ->type_name("[FUNCTION]")
      ->expected(0, 1);
  verb->add_flag("--boxings", plan->boxings,
                 "Add what each boxing sends, over which link, and the rule behind it");
  verb->add_flag(
      "--schedule", plan->schedule,
      "Add the stages with their calls, the chart of the pipeline, and the planned times");
  verb->add_flag("--memory", plan->memory, "Add the memory over the step and the largest tensors");
  verb->add_flag("--actors", plan->actors, "Add the actors, registers and memory of every rank");
  verb->add_flag("--products", plan->products,
                 "Add the ways in which a CPU computes the matrix products, and why");
  verb->add_flag("--all", plan->all, "Add all of these");
  verb->add_option("--mode", plan->mode, "train, evaluate or generate")
      ->type_name("MODE")
      ->capture_default_str();
  CLI::Option* const json = verb->add_flag(
      "--json", plan->json, "Print all of it as JSON, with figures of every rank of up to 64");
  verb->add_flag("--all-ranks", plan->all_ranks,
                 "With --json: figures of every rank, however many; each takes up to a second and "
                 "megabytes of text")
      ->needs(json);
  verb->add_flag("--curve", plan->curve,
                 "Print memory against speed for all register counts worth having");
  verb->add_option("--rank", plan->rank, "Print the plan of one rank as protobuf text")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--timings", plan->timings, "Add the time of every pass");
  verb->add_option("--dump-after", plan->dump_after,
                   "Print the module after the passes whose name matches")
      ->type_name("REGEX");
  verb->add_option("--disable", plan->disabled, "Leave out a pass; repeatable")
      ->type_name("PASS")
      ->allow_extra_args(false);
}

}  // namespace weir::cli
