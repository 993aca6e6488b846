// The arguments of the verbs that plan a job (plan, sim, view, check, train), and the plan that
// follows from them. One command line gives the same job, the same costs and the same order of axes
// in all of these verbs. Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"
#include "tools/cli/cli_verbs.h"
#include "tools/plan/place_axes.h"
#include "tools/plan/settle_collectives.h"
#include "tools/search/settle_rules.h"
#include "tools/sim/job_costs.h"
#include "tools/train/memory_budget.h"

namespace weir::cli {

// A job that was read, with the costs for which it is planned.
struct JobWithCosts {
  proto::Job job;
  sim::JobCosts costs;
  std::string products;  // a line on the ways of products, for people; may be empty
};

struct PlannedJobArguments {
  JobArguments job;
  std::string cluster;                   // as sim::JobCosts::Choose takes it
  std::string place = plan::kPlaceAuto;  // as plan::PlaceAxes takes it

  // Adds the positional JOB, and the flags.
  void AddTo(CLI::App* verb, CliContext* of, JobArguments::Data opens);
  // Adds the flags of JobArguments, --cluster and --place. Returns the options.
  std::vector<CLI::Option*> AddFlagsTo(CLI::App* verb, CliContext* of, JobArguments::Data opens);
  // Opens and reads the job, the costs and the kept ways of products, which the job then has
  // (sim::SettleProducts), unless --cluster says `defaults`. The job knows where hosts end
  // (JobCosts::TellHosts). Errors: those of JobArguments::Read, of JobCosts::Choose and of
  // SettleProducts.
  absl::StatusOr<JobWithCosts> ReadWithCosts() const;

 private:
  std::vector<CLI::Option*> AddCostOptions(CLI::App* verb);
};

// Settles the rules of a job (search::SettleRules) in a process that is not confined: the search
// runs in a thread that is.
absl::StatusOr<std::optional<search::SettledRules>> SettleRulesConfined(
    const sim::JobCosts& costs, search::MachineMemory machine, proto::Job* job);
// The same for a verb without --cluster: by the costs that `weir train` takes without one.
absl::Status SettleRulesConfined(proto::Job* job);

struct PlannedJob {
  std::optional<search::SettledRules> settled;
  plan::PlacedAxes placed;
  plan::SettledCollectives collectives;
  std::unique_ptr<compiler::LogicalPlan> plan;
};

// Settles the rules of `read.job`, orders its axes as `place` asks for, settles its collectives as
// if each rank had a process and a device of its own, and compiles the job. Opens no file.
// `options.costs` are those of `read`. Errors: those of search::SettleRules, of plan::PlaceAxes and
// of CompileJob.
absl::StatusOr<PlannedJob> PlanJob(const std::string& place, compiler::CompileOptions options,
                                   JobWithCosts* read);

// Returns train::NeedAndPlansOf with the memory that the driver of each device takes by `costs`.
absl::StatusOr<train::NeedAndPlans> NeedWithDriver(const compiler::LogicalPlan& plan,
                                                   const sim::JobCosts& costs);

// Adds the rules that a search has found, if the job left its rules to one, to the object of
// plan_json.h as `rules_found`: {text: in words, job_text: for the job}.
void AddFoundRules(const PlannedJob& planned, nlohmann::ordered_json* json);

}  // namespace weir::cli
