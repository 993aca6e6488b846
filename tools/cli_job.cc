// weir check and weir plan: what a job means, without a device.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "actors/certificate.h"
#include "actors/plan.h"
#include "compiler/compile.h"
#include "compiler/memory_view.h"
#include "compiler/rhythm/rhythm_curve.h"
#include "google/protobuf/text_format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "tools/cli_verbs.h"
#include "tools/data_paths.h"
#include "tools/sim/cluster_costs.h"
#include "tools/sim/cluster_file.h"
#include "tools/train/job_data.h"
#include "tools/train/memory_budget.h"

namespace weir {
namespace {

// Ranks that `check` lowers one by one; more would only take longer, and each takes longer on a large mesh.
int64_t RanksChecked(int64_t ranks) { return std::min<int64_t>(ranks, std::clamp<int64_t>(16384 / ranks, 1, 64)); }

absl::StatusOr<PlanMode> ParseMode(const std::string& mode) {
  if (mode == "train") return PlanMode::kTrain;
  if (mode == "evaluate") return PlanMode::kEvaluate;
  if (mode == "generate") return PlanMode::kGenerate;
  return Rejected({"W0007", "--mode", "train, evaluate or generate", mode,
                   Nearest(mode, std::vector<std::string>{"train", "evaluate", "generate"})});
}

struct CheckArguments {
  JobArguments job;
  bool without_data = false;
  bool verbose = false;
};

absl::Status Check(CheckArguments arguments, const CliContext& context) {
  std::ostream& out = *context.out;
  if (arguments.without_data) arguments.job.data = JobArguments::Data::kNotOpened;
  WEIR_ASSIGN_OR_RETURN(Job job, arguments.job.Read());
  SandboxRules rules;
  if (!arguments.without_data) {
    for (const DataPath& data : DataPathsOf(job)) rules.read.push_back(data.path);
  }
  const SandboxFacts sandbox = context.Confine(rules, CpuTime::kLimited);
  if (arguments.verbose) *context.err << sandbox.Text() << "\n";
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<LogicalPlan> plan, CompileJob(job, {}));
  int64_t ranks = plan->mesh.num_ranks();
  int64_t arena = 0, actors = 0;
  for (int64_t rank = 0; rank < RanksChecked(ranks); ++rank) {
    WEIR_ASSIGN_OR_RETURN(RankPlan lowered, LowerForRank(*plan, rank));
    WEIR_ASSIGN_OR_RETURN(Plan loaded, PlanFromProto(lowered));
    WEIR_RETURN_IF_ERROR(CheckCertificate(loaded));
    arena = std::max(arena, lowered.arena_bytes());
    actors = std::max<int64_t>(actors, lowered.actor_size());
  }
  std::string data = "data not looked at";
  if (!arguments.without_data) {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Dataset> dataset, OpenJobData(job));
    data = dataset->Describe();
  }
  int64_t parameters = 0;
  for (const auto& variable : plan->module.variables) parameters += variable.type.num_elements();
  out << absl::StrFormat("%s is sound: %d parameters in %d weights, %d device%s, at most %d actors and %.1f MiB each\n%s\n",
                         job.name().empty() ? arguments.job.path : job.name(), parameters,
                         plan->module.variables.size(), ranks, ranks == 1 ? "" : "s", actors,
                         static_cast<double>(arena) / (1 << 20), data);
  return absl::OkStatus();
}

struct PlanArguments {
  JobArguments job;
  std::string mode = "train";
  bool json = false;
  bool curve = false;
  int64_t rank = -1;
  bool timings = false;
  std::string dump_after;
  std::vector<std::string> disabled;
  std::string cluster;
};

constexpr int kChartColumns = 72, kChartRows = 8, kChartRowsOfMany = 4, kTensorsShown = 10, kStagesCharted = 8;

// What lies where, when and why, as `weir plan` draws it.
nlohmann::ordered_json MemoryJson(const compiler::MemoryView& view) {
  nlohmann::ordered_json columns = nlohmann::ordered_json::array(), largest = nlohmann::ordered_json::array();
  for (const auto& column : view.columns) columns.push_back({{"alive_bytes", column.bytes}, {"phase", std::string(1, column.phase)}});
  for (const auto& tensor : view.largest) {
    largest.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}, {"slots", tensor.slots}, {"held_slots", tensor.held}, {"from", tensor.from},
                       {"until", tensor.until}, {"alive_ns", tensor.alive_ns}, {"shares_with", tensor.sharers}, {"why", tensor.why}});
  }
  return {{"weight_bytes", view.weight_bytes},     {"optimiser_bytes", view.optimiser_bytes}, {"register_bytes", view.register_bytes},
          {"landing_bytes", view.landing_bytes},   {"scratch_bytes", view.scratch_bytes},     {"unshared_bytes", view.unshared_bytes},
          {"most_alive_bytes", view.most_bytes},   {"most_alive_ns", view.most_ns},           {"iteration_ns", view.iteration_ns},
          {"over_the_step", std::move(columns)},   {"largest", std::move(largest)}};
}

// Memory over the step: a chart of the first rank of each stage, the largest tensors of the fullest rank, and whether all of it fits.
absl::StatusOr<std::string> MemoryText(const LogicalPlan& plan) {
  const Beside beside = plan.mode == PlanMode::kTrain ? Beside::kEvaluation : Beside::kNothing;
  WEIR_ASSIGN_OR_RETURN(const NeedAndPlans of, NeedAndPlansOf(plan, beside));
  const MemoryNeed& need = of.need;
  std::string text = "\nmemory over the step, by planned starts (f forward, b backward, w weight gradients, u update)\n";
  const int64_t stages = std::min<int64_t>(plan.mesh.num_stages(), kStagesCharted);
  for (int64_t stage = 0; stage < stages; ++stage) {
    const RankPlan& lowered = of.plans.at(plan.mesh.GlobalRank(stage, 0));
    absl::StrAppend(&text, "rank ", lowered.rank(), " (", lowered.device(), ")\n",
                    ChartText(compiler::ViewMemory(lowered, kChartColumns, 0), stages > 1 ? kChartRowsOfMany : kChartRows));
  }
  if (stages < plan.mesh.num_stages()) absl::StrAppend(&text, "… and ", plan.mesh.num_stages() - stages, " more stages\n");
  absl::StrAppend(&text, "largest tensors of rank ", need.rank, "\n",
                  LargestText(compiler::ViewMemory(of.plans.at(need.rank), kChartColumns, kTensorsShown)));
  absl::StrAppend(&text, "fit: ", NeedText(plan, need, BudgetOf(plan.job)));
  return text;
}

nlohmann::ordered_json RankJson(const RankPlan& plan) {
  nlohmann::ordered_json states = nlohmann::ordered_json::array();
  for (const StateSpec& state : plan.state()) {
    const TensorSliceProto& slice = state.slice();
    nlohmann::ordered_json entry = {{"name", state.name()}, {"layout", state.layout()}, {"dtype", slice.dtype()}};
    entry["shape"] = std::vector<int64_t>(slice.shape().begin(), slice.shape().end());
    entry["offset"] = std::vector<int64_t>(slice.offset().begin(), slice.offset().end());
    entry["owner"] = state.owner();
    states.push_back(entry);
  }
  int64_t sent = 0;
  for (const RegisterSpec& spec : plan.registers()) {
    if (spec.side() == RegisterSpec::OUTBOUND) sent += spec.bytes() * spec.tokens_per_step();
  }
  return {{"rank", plan.rank()},
          {"device", plan.device()},
          {"stage", plan.stage()},
          {"actors", plan.actor_size()},
          {"registers", plan.registers_size()},
          {"arena_bytes", plan.arena_bytes()},
          {"scratch_bytes", plan.scratch_bytes()},
          {"sent_bytes_per_step_at_most", sent},
          {"memory", MemoryJson(compiler::ViewMemory(plan, kChartColumns, kTensorsShown))},
          {"states", states}};
}

nlohmann::ordered_json ScheduleJson(const LogicalPlan& plan) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (int64_t part = 0; part < plan.schedule.num_parts(); ++part) {
    std::vector<std::string> calls;
    for (const auto& call : plan.module.model.calls) {
      if (call.part == part) calls.push_back(call.name);
    }
    parts.push_back({{"stage", plan.schedule.StageOf(part)}, {"in_flight", plan.schedule.in_flight[part]}, {"calls", calls}});
  }
  return {{"kind", compiler::Name(plan.schedule.kind)},
          {"bubble_of_even_parts", plan.schedule.BubbleFormula(1, 1)},
          {"predicted_bubble", plan.predicted_bubble},
          {"parts", parts}};
}

absl::Status PrintJson(const LogicalPlan& plan, std::ostream& out) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (int64_t rank = 0; rank < plan.mesh.num_ranks(); ++rank) {
    WEIR_ASSIGN_OR_RETURN(RankPlan lowered, LowerForRank(plan, rank));
    ranks.push_back(RankJson(lowered));
  }
  nlohmann::ordered_json passes = nlohmann::ordered_json::array();
  for (const auto& timing : plan.timings) {
    passes.push_back({{"name", timing.name}, {"microseconds", timing.microseconds}, {"nodes", timing.nodes}});
  }
  nlohmann::ordered_json json = {{"job", plan.job.name()},
                                 {"plan_id", plan.plan_id},
                                 {"mesh", plan.mesh.ToText()},
                                 {"micro_batches", plan.micro_batches},
                                 {"schedule", ScheduleJson(plan)},
                                 {"passes", passes},
                                 {"ranks", ranks}};
  out << json.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  return absl::OkStatus();
}

// Points between the least memory and the shortest period.
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

// What register counts buy, by the costs that the plan was compiled with.
absl::Status PrintCurve(const LogicalPlan& plan, const compiler::CostModel& costs, const PlanArguments& arguments, std::ostream& out) {
  WEIR_ASSIGN_OR_RETURN(std::vector<compiler::RhythmPoint> choices, compiler::CompareRegisterChoices(plan, costs));
  WEIR_ASSIGN_OR_RETURN(std::vector<compiler::RhythmPoint> curve, compiler::RegisterCurve(plan, costs, kCurvePointsMax));
  if (arguments.json) {
    nlohmann::ordered_json json = {{"job", plan.job.name()}, {"mesh", plan.mesh.ToText()}, {"choices", PointsJson(choices)}, {"curve", PointsJson(curve)}};
    out << json.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    return absl::OkStatus();
  }
  out << "memory and throughput of " << (plan.job.name().empty() ? arguments.job.path : plan.job.name()) << " by register counts (runtime.registers)\n"
      << compiler::CurveText(choices, curve);
  return absl::OkStatus();
}

absl::Status PrintRank(const LogicalPlan& plan, int64_t rank, std::ostream& out) {
  if (rank >= plan.mesh.num_ranks()) {
    return Rejected({"W0008", "--rank", absl::StrCat("a rank from 0 to ", plan.mesh.num_ranks() - 1), absl::StrCat(rank), ""});
  }
  WEIR_ASSIGN_OR_RETURN(RankPlan lowered, LowerForRank(plan, rank));
  std::string text;
  google::protobuf::TextFormat::PrintToString(lowered, &text);
  out << "# proto-file: proto/plan.proto\n# proto-message: weir.RankPlan\n" << text;
  return absl::OkStatus();
}

absl::Status ShowPlan(const PlanArguments& arguments, const CliContext& context) {
  std::ostream& out = *context.out;
  WEIR_ASSIGN_OR_RETURN(Job job, arguments.job.Read());
  CompileOptions options;
  WEIR_ASSIGN_OR_RETURN(options.mode, ParseMode(arguments.mode));
  options.dump_after = arguments.dump_after;
  options.dump_to = context.err;
  options.disabled.insert(arguments.disabled.begin(), arguments.disabled.end());
  std::unique_ptr<compiler::CostModel> costs = std::make_unique<compiler::PeakCosts>();
  if (!arguments.cluster.empty()) {
    WEIR_ASSIGN_OR_RETURN(Cluster cluster, ReadClusterFile(arguments.cluster));
    costs = std::make_unique<ClusterCosts>(std::move(cluster));
  }
  options.costs = costs.get();
  context.Confine({}, CpuTime::kLimited);
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<LogicalPlan> plan, CompileJob(job, options));
  if (arguments.rank >= 0) return PrintRank(*plan, arguments.rank, out);
  if (arguments.curve) return PrintCurve(*plan, *costs, arguments, out);
  if (arguments.json) return PrintJson(*plan, out);
  WEIR_ASSIGN_OR_RETURN(std::string text, ExplainPlan(*plan, costs.get()));
  WEIR_ASSIGN_OR_RETURN(std::string memory, MemoryText(*plan));
  out << text << memory;
  if (arguments.timings) {
    out << "\npasses\n";
    for (const auto& timing : plan->timings) {
      out << absl::StrFormat("  %-24s %10.1f us  %6d nodes after\n", timing.name, timing.microseconds, timing.nodes);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void AddJobVerbs(CLI::App* app, CliContext* context) {
  auto check = std::make_shared<CheckArguments>();
  CLI::App* verb = AddVerb(app, context, "check", "Say whether a job is sound: model, layouts, plan, data",
                           "  weir check gpt.textproto\n  weir check gpt.textproto --mesh dp=4,tp=8 --no-data\n"
                           "  weir check gpt.textproto --allow-path /data\n"
                           "A job from somebody else is read in a sandbox; --verbose says of what it is made on this machine.",
                           [check, context] { return Check(*check, *context); });
  check->job.AddTo(verb, JobArguments::Data::kOpened);
  verb->add_flag("--no-data", check->without_data, "Do not open the files of the data");
  verb->add_flag("--verbose", check->verbose, "Say what of the sandbox is in place, in which the job is read");

  auto plan = std::make_shared<PlanArguments>();
  verb = AddVerb(app, context, "plan", "Show how a job would run: layouts, boxings with bytes, memory, actors",
                 "  weir plan gpt.textproto --mesh dp=2,tp=2\n"
                 "  weir plan gpt.textproto --mesh pp=4 --set training.micro_batches=8\n"
                 "  weir plan gpt.textproto --json | jq '.ranks[].arena_bytes'\n"
                 "  weir plan gpt.textproto --rank 0            the plan of one rank as protobuf text\n"
                 "  weir plan gpt.textproto --mesh pp=4 --curve  what register counts buy: memory against speed\n"
                 "  weir plan gpt.textproto --mesh pp=4 --cluster here.textproto --set runtime.registers=SOLVED\n"
                 "  weir plan gpt.textproto --dump-after 'propagate-.*'",
                 [plan, context] { return ShowPlan(*plan, *context); });
  plan->job.AddTo(verb, JobArguments::Data::kNotOpened);
  verb->add_option("--cluster", plan->cluster, "Machines whose costs the plan is made for (protobuf text) [a server's cores]")->type_name("PATH");
  verb->add_option("--mode", plan->mode, "train, evaluate or generate")->type_name("MODE")->capture_default_str();
  verb->add_flag("--json", plan->json, "Print figures of every rank as JSON");
  verb->add_flag("--curve", plan->curve, "Print memory against speed for all register counts worth having");
  verb->add_option("--rank", plan->rank, "Print the plan of one rank as protobuf text")->type_name("N")->check(CLI::NonNegativeNumber);
  verb->add_flag("--timings", plan->timings, "Add the time of every pass");
  verb->add_option("--dump-after", plan->dump_after, "Print the module after the passes whose name matches")->type_name("REGEX");
  verb->add_option("--disable", plan->disabled, "Leave out a pass; repeatable")->type_name("PASS")->allow_extra_args(false);
}

}  // namespace weir
