// weir check: tests whether a job would train, without a step.
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/job/precision_rules.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/base/wrap_text.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/weight_index.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/train_arguments.h"
#include "tools/fleet/rank_spread.h"
#include "tools/job/data_paths.h"
#include "tools/plan/trained_text.h"
#include "tools/train/job_session.h"
#include "tools/train/output_paths.h"
#include "tools/train/prepare_training.h"
#include "tools/train/write_outputs.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

struct CheckArguments {
  TrainArguments train;
  bool without_data = false;
  bool any_machine = false;
  bool verbose = false;
};

// From now on the process may read the files that the job and the command name, and nothing else.
void EnterSandboxOf(const proto::Job& job, const CheckArguments& arguments,
                    const CliContext& context) {
  sandbox::SandboxRules rules;
  rules.read = store::FilesOfWeights(arguments.train.options.init);
  for (std::string& file : weights::FilesBeside(arguments.train.options.job_file))
    rules.read.push_back(std::move(file));
  for (std::string& file : store::FilesOfWeights(arguments.train.options.resume))
    rules.read.push_back(std::move(file));
  // The error for a damaged checkpoint names one beside it that is whole.
  const std::filesystem::path resume = arguments.train.options.resume;
  std::error_code error;
  if (std::filesystem::exists(resume / store::kIndexFile, error))
    rules.read.push_back(resume.parent_path().string());
  rules.read.push_back(arguments.train.options.checkpoint);
  std::erase(rules.read, "");
  if (!arguments.without_data) {
    for (std::string& file : job::DataFilesOf(job)) rules.read.push_back(std::move(file));
    // A folder of arrays is listed before its files are read.
    for (job::DataPath& data : job::DataPathsOf(job)) rules.read.push_back(std::move(data.path));
  }
  const sandbox::SandboxFacts sandbox = context.Confine(rules, sandbox::CpuTime::kLimited);
  if (arguments.verbose) *context.err << sandbox.Text() << "\n";
}

// Checks a job whose model has no loss, so that it is run and not trained.
absl::Status CheckOutputs(const CheckArguments& arguments, proto::Job job,
                          const CliContext& context) {
  train::WriteOutputsOptions options;
  options.init = arguments.train.options.init;
  options.job_file = arguments.train.options.job_file;
  if (arguments.without_data) job.clear_data();
  train::WrittenOutputs facts;
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const compiler::LogicalPlan> plan,
                        train::PrepareOutputs(job, options, &facts));
  if (!arguments.any_machine) {
    WEIR_RETURN_IF_ERROR(train::CheckMachine(*plan, arguments.train.options.threads_per_device));
  }
  *context.out << arguments.train.job.Title(job) << " is sound, and has no loss: "
               << Plural(static_cast<int64_t>(plan->module.variables.size()), "weight") << ", "
               << Plural(static_cast<int64_t>(plan->module.model.fetched.size()), "output")
               << ", on " << Plural(plan->places.num_ranks(), "device") << "\n"
               << (arguments.without_data
                       ? "data not looked at"
                       : absl::StrCat(Plural(facts.samples, "sample"), " in ",
                                      Plural(facts.steps, "step"), ": ", facts.data))
               << "\n";
  return absl::OkStatus();
}

absl::Status Check(CheckArguments arguments, CliContext* context) {
  if (arguments.without_data) arguments.train.job.data = JobArguments::Data::kNotOpened;
  WEIR_ASSIGN_OR_RETURN(JobToTrain read, arguments.train.Read());
  arguments.train.options.costs = &read.costs.model();
  arguments.train.options.driver_bytes = read.rule_costs.DriverBytes(read.job);
  if (!read.note.empty()) *context->err << read.note << "\n";
  if (!read.products.empty()) *context->err << read.products << "\n";
  // The sandbox knows no locks, and makes no files.
  WEIR_RETURN_IF_ERROR(train::TryOutputs(arguments.train.options));
  EnterSandboxOf(read.job, arguments, *context);
  WEIR_ASSIGN_OR_RETURN(const ResumeNews news, arguments.train.ChooseResume());
  if (!news.note.empty()) *context->err << news.note << "\n";
  train::PrepareScope scope;
  scope.files = train::PrepareScope::Files::kTried;
  if (arguments.without_data) scope.data = train::PrepareScope::Data::kLeave;
  if (arguments.any_machine) scope.machine = train::PrepareScope::Machine::kAny;
  arguments.train.options.processes = arguments.train.fleet.processes;
  WEIR_ASSIGN_OR_RETURN(const hosts::FoundHosts listed,
                        hosts::ListHosts(arguments.train.fleet.hosts));
  WEIR_RETURN_IF_ERROR(arguments.train.CheckRestarts(listed));
  WEIR_RETURN_IF_ERROR(arguments.train.CheckReplicas(read.job));
  if (arguments.train.fleet.processes > 0 || !listed.agents.empty()) {
    WEIR_ASSIGN_OR_RETURN(const fleet::FleetOptions fleet,
                          arguments.train.fleet.Options(read.job, listed, nullptr));
    arguments.train.options.hosts = static_cast<int>(fleet.hosts.size());
    if (const std::string line = fleet::TellHosts(fleet, &read.job); !line.empty())
      *context->err << line << "\n";
  }
  read.costs.TellHosts(&read.job);
  WEIR_ASSIGN_OR_RETURN(const std::optional<search::SettledRules> settled,
                        search::SettleRules(read.rule_costs,
                                            arguments.any_machine ? search::MachineMemory::kIgnored
                                                                  : search::MachineMemory::kMust,
                                            &read.job));
  if (settled.has_value()) *context->err << search::SettledText(*settled) << "\n";
  WEIR_ASSIGN_OR_RETURN(const plan::PlacedAxes placed,
                        plan::PlaceAxes(arguments.train.place, &read.job));
  if (const std::string line = plan::PlacedText(placed, read.job); !line.empty())
    *context->err << line << "\n";
  WEIR_ASSIGN_OR_RETURN(
      const plan::SettledCollectives collectives,
      plan::SettleCollectives(read.rule_costs.model(),
                              train::ObstacleToNccl(read.job, arguments.train.options.processes,
                                                    arguments.train.options.hosts, scope.machine),
                              &read.job));
  if (!collectives.text.empty()) *context->err << collectives.text << "\n";
  if (read.job.graph().without_loss()) return CheckOutputs(arguments, read.job, *context);
  WEIR_ASSIGN_OR_RETURN(const train::PreparedTraining prepared,
                        train::PrepareTraining(read.job, arguments.train.options, scope));
  const compiler::LogicalPlan& plan = *prepared.plans.training;
  const int64_t ranks = plan.places.num_ranks();
  for (const std::string& note : prepared.notes) *context->err << note << "\n";
  std::vector<std::string> warnings = news.warnings;
  warnings.insert(warnings.end(), prepared.warnings.begin(), prepared.warnings.end());
  if (std::string text = read.costs.MissingDevicesText(ranks); !text.empty())
    warnings.insert(warnings.begin(), std::move(text));
  for (const std::string& warning : warnings)
    *context->err << WrapText(absl::StrCat("WARNING: ", warning), context->columns) << "\n";
  int64_t weights = 0, parameters = 0;
  for (const compiler::Variable& variable : plan.module.variables) {
    if (!variable.slot_of.empty()) continue;
    ++weights;
    parameters += variable.type.num_elements();
  }
  const std::string trained = plan::TrainedText(plan);
  const std::string precision = compiler::PrecisionText(plan);
  *context->out << arguments.train.job.Title(read.job)
                << " is sound: " << Plural(parameters, "parameter") << " in "
                << Plural(weights, "weight") << ", " << Plural(ranks, "device") << ", at most "
                << Plural(prepared.actors, "actor") << " and "
                << BytesText(static_cast<double>(prepared.bytes_per_device))
                << (ranks > 1 ? " each" : "") << "\n"
                << (trained.empty() ? "" : trained + "\n")
                << (precision.empty() ? "" : absl::StrCat("precision ", precision, "\n"))
                << (prepared.dataset == nullptr ? "data not looked at"
                                                : prepared.dataset->Describe())
                << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddCheckVerb(CLI::App* app, CliContext* context) {
  auto check = std::make_shared<CheckArguments>();
  CLI::App* verb =
      AddVerb(app, context, "check",
              "Say whether a job would train: model, layouts, plan, memory, data, files",
              "  weir check gpt.textproto\n"
              "  weir check gpt.textproto --mesh dp=2 --save w.safetensors   any command of train, "
              "with check in its place\n"
              "  weir check gpt.textproto --mesh dp=64,tp=8 --no-data --any-machine\n"
              "  weir check gpt.textproto --allow-path /data\n"
              "A job from somebody else is read in a sandbox; --verbose says of what it is made on "
              "this machine.",
              [check, context] { return Check(*check, context); });
  check->train.AddTo(verb, context);
  verb->add_flag("--no-data", check->without_data, "Do not open the files of the data");
  verb->add_flag("--verbose", check->verbose,
                 "Say what of the sandbox is in place, in which the job is read");
  verb->add_flag("--any-machine", check->any_machine,
                 "Do not compare memory and devices with those of this machine");
}

}  // namespace weir::cli
