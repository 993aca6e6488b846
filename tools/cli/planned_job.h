// The arguments of the verbs that plan a job (plan, sim, view, check, train), and the plan that
// follows from them. One command line gives the same job, the same costs and the same order of axes
// in all of these verbs. Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "compiler/compile.h"
#include "proto/job.pb.h"
#include "tools/cli/cli_verbs.h"
#include "tools/plan/place_axes.h"
#include "tools/sim/job_costs.h"

namespace weir::cli {

// A job that was read, with the costs for which it is planned.
struct JobWithCosts {
  proto::Job job;
  sim::JobCosts costs;
};

struct PlannedJobArguments {
  JobArguments job;
  std::string cluster;                   // as sim::JobCosts::Choose takes it
  std::string place = plan::kPlaceAuto;  // as plan::PlaceAxes takes it

  // Adds the positional JOB, and the flags.
  void AddTo(CLI::App* verb, CliContext* of, JobArguments::Data opens);
  // Adds the flags of JobArguments, --cluster and --place. Returns the options.
  std::vector<CLI::Option*> AddFlagsTo(CLI::App* verb, CliContext* of, JobArguments::Data opens);
  // Opens and reads the job and the costs. The job knows where hosts end (JobCosts::TellHosts).
  // Errors: those of JobArguments::Read and of JobCosts::Choose.
  absl::StatusOr<JobWithCosts> ReadWithCosts() const;

 private:
  std::vector<CLI::Option*> AddCostOptions(CLI::App* verb);
};

struct PlannedJob {
  plan::PlacedAxes placed;
  std::unique_ptr<compiler::LogicalPlan> plan;
};

// Orders the axes of `read.job` as `place` asks for, and compiles the job. Opens no file.
// `options.costs` are those of `read`. Errors: those of plan::PlaceAxes and of CompileJob.
absl::StatusOr<PlannedJob> PlanJob(const std::string& place, compiler::CompileOptions options,
                                   JobWithCosts* read);

}  // namespace weir::cli
