#include "tools/cli/planned_job.h"

#include <utility>

#include "compiler/job/import_graph.h"
#include "runtime/base/status.h"
#include "tools/sandbox/run_confined.h"
#include "tools/sim/product_ways.h"

namespace weir::cli {

void PlannedJobArguments::AddTo(CLI::App* verb, CliContext* of, JobArguments::Data opens) {
  job.AddTo(verb, of, opens);
  AddCostOptions(verb);
}

std::vector<CLI::Option*> PlannedJobArguments::AddFlagsTo(CLI::App* verb, CliContext* of,
                                                          JobArguments::Data opens) {
  std::vector<CLI::Option*> options = job.AddFlagsTo(verb, of, opens);
  for (CLI::Option* option : AddCostOptions(verb)) options.push_back(option);
  return options;
}

std::vector<CLI::Option*> PlannedJobArguments::AddCostOptions(CLI::App* verb) {
  CLI::Option* const costs =
      verb->add_option(
              "--cluster", cluster,
              "Machines whose costs the plan is made for (proto/cluster.proto), or "
              "`defaults` [those kept by weir calibrate --keep, else the defaults]; `defaults` "
              "leaves the ways of products to the kernels, too")
          ->type_name("PATH");
  CLI::Option* const order =
      verb->add_option(
              "--place", place,
              "The axes of the mesh as ranks run over them, slowest first: dp,tp puts tp inside "
              "hosts; as-written keeps the job's order; auto takes mesh.rank_order, or else the "
              "order with the fewest bytes between hosts")
          ->type_name("ORDER")
          ->capture_default_str()
          ->group("Hosts");
  return {costs, order};
}

absl::StatusOr<JobWithCosts> PlannedJobArguments::ReadWithCosts() const {
  WEIR_ASSIGN_OR_RETURN(proto::Job read, job.Read());
  WEIR_ASSIGN_OR_RETURN(sim::JobCosts costs, sim::JobCosts::Choose(cluster, read));
  costs.TellHosts(&read);
  std::string products;
  if (cluster != sim::kDefaultCosts) {
    WEIR_ASSIGN_OR_RETURN(products, sim::SettleProducts(&read));
  }
  return JobWithCosts{std::move(read), std::move(costs), std::move(products)};
}

absl::StatusOr<std::optional<search::SettledRules>> SettleRulesConfined(
    const sim::JobCosts& costs, search::MachineMemory machine, proto::Job* job) {
  std::optional<search::SettledRules> settled;
  WEIR_RETURN_IF_ERROR(sandbox::RunConfined([&]() -> absl::Status {
    WEIR_ASSIGN_OR_RETURN(settled, search::SettleRules(costs, machine, job));
    return absl::OkStatus();
  }));
  return settled;
}

absl::Status SettleRulesConfined(proto::Job* job) {
  if (job->rules() != proto::Job::AUTO) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const sim::JobCosts costs, sim::JobCosts::Choose("", *job));
  return SettleRulesConfined(costs, search::MachineMemory::kShould, job).status();
}

absl::StatusOr<PlannedJob> PlanJob(const std::string& place, compiler::CompileOptions options,
                                   JobWithCosts* read) {
  PlannedJob planned;
  WEIR_ASSIGN_OR_RETURN(
      planned.settled,
      search::SettleRules(read->costs, search::MachineMemory::kShould, &read->job));
  WEIR_ASSIGN_OR_RETURN(planned.placed, plan::PlaceAxes(place, &read->job));
  WEIR_ASSIGN_OR_RETURN(planned.collectives,
                        plan::SettleCollectives(read->costs.model(), "", &read->job));
  if (options.mode == compiler::PlanMode::kTrain) options.mode = compiler::ModeOf(read->job);
  options.costs = &read->costs.model();
  WEIR_ASSIGN_OR_RETURN(planned.plan, compiler::CompileJob(read->job, options));
  return planned;
}

absl::StatusOr<train::NeedAndPlans> NeedWithDriver(const compiler::LogicalPlan& plan,
                                                   const sim::JobCosts& costs) {
  WEIR_ASSIGN_OR_RETURN(train::NeedAndPlans memory, train::NeedAndPlansOf(plan));
  train::AddDriver(costs.DriverBytes(*plan.job), plan.places.num_ranks(), &memory.need);
  return memory;
}

void AddFoundRules(const PlannedJob& planned, nlohmann::ordered_json* json) {
  if (!planned.settled.has_value()) return;
  nlohmann::ordered_json& found = (*json)["rules_found"];
  found["text"] = search::SettledText(*planned.settled);
  found["job_text"] = search::RulesToPaste(*planned.settled);
}

}  // namespace weir::cli
