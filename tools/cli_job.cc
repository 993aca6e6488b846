// weir check: whether a job is sound, without a device.
#include <algorithm>

#include "actors/certificate.h"
#include "actors/plan.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/cli_verbs.h"
#include "tools/data_paths.h"
#include "tools/train/job_data.h"

namespace weir {
namespace {

// Ranks that `check` lowers one by one; more would only take longer, and each takes longer on a large mesh.
int64_t RanksChecked(int64_t ranks) { return std::min<int64_t>(ranks, std::clamp<int64_t>(16384 / ranks, 1, 64)); }

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
  out << (job.name().empty() ? arguments.job.path : job.name()) << " is sound: " << Plural(parameters, "parameter") << " in "
      << Plural(static_cast<int64_t>(plan->module.variables.size()), "weight") << ", " << Plural(ranks, "device") << ", at most "
      << Plural(actors, "actor") << " and " << BytesText(static_cast<double>(arena)) << (ranks > 1 ? " each" : "") << "\n" << data << "\n";
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
  check->job.AddTo(verb, context, JobArguments::Data::kOpened);
  verb->add_flag("--no-data", check->without_data, "Do not open the files of the data");
  verb->add_flag("--verbose", check->verbose, "Say what of the sandbox is in place, in which the job is read");
  AddPlanVerb(app, context);
}

}  // namespace weir
