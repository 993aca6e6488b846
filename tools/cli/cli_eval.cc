// weir eval: evaluates weights, or runs the data of a job through its model and writes the results.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/job_weights.h"
#include "tools/cli/planned_job.h"
#include "tools/cli/train_arguments.h"
#include "tools/console/console.h"
#include "tools/fleet/fleet_outputs.h"
#include "tools/fleet/rank_spread.h"
#include "tools/hosts/find_hosts.h"
#include "tools/launch/failure_report.h"
#include "tools/launch/signal_watch.h"
#include "tools/sim/product_ways.h"
#include "tools/train/output_paths.h"
#include "tools/train/trainer.h"
#include "tools/train/write_outputs.h"
#include "tools/weights/averages.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

struct EvalArguments {
  JobArguments job;
  std::string init;
  bool averages = false;
  int threads = 0;
  std::string folder;                // of outputs; empty: an evaluation
  std::vector<std::string> outputs;  // names; empty: those of main
  FleetArguments fleet;
};

absl::Status CheckArguments(const EvalArguments& arguments, const proto::Job& job) {
  const auto refused = [](const std::string& where, const std::string& expected,
                          const std::string& found, const std::string& hint) {
    return Rejected({"W0622", where, expected, found, hint});
  };
  if (arguments.averages && arguments.init.empty())
    return refused("--average", "--init, the averages of the weights", "no --init", "--init run/");
  if (!arguments.folder.empty())
    return train::CheckOutsideOfCheckpoints("--outputs", arguments.folder);
  if (job.graph().without_loss())
    return refused("weir eval", "--outputs FOLDER, as the model has no loss to evaluate",
                   "no --outputs", "--outputs results/");
  if (arguments.init.empty())
    return refused("weir eval", "--init, the weights to evaluate", "no --init",
                   "--init weights.safetensors");
  if (!arguments.outputs.empty())
    return refused("--output", "--outputs FOLDER beside it", "no --outputs", "--outputs results/");
  if (arguments.fleet.processes > 0 || !arguments.fleet.hosts.list.empty() ||
      !arguments.fleet.hosts.file.empty())
    return refused("weir eval", "one process, in which all devices of an evaluation are",
                   arguments.fleet.processes > 0 ? "--processes" : "hosts",
                   "leave it out; --outputs takes it");
  return absl::OkStatus();
}

absl::Status Evaluate(const EvalArguments& arguments, const proto::Job& job, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const std::string init, weights::WeightFileOf(arguments.init));
  WEIR_ASSIGN_OR_RETURN(const std::string note, NoteOfAdapters(job, init, arguments.job.path));
  if (!note.empty()) *context->err << note << "\n";
  WEIR_ASSIGN_OR_RETURN(train::Evaluation evaluation,
                        train::EvaluateWeights(job, init, arguments.threads, arguments.job.path,
                                               weights::ValuesOf(arguments.averages)));
  *context->out << train::EvaluationText(job, evaluation) << "\n";
  return absl::OkStatus();
}

absl::Status WriteAndPrint(const proto::Job& job, const train::WriteOutputsOptions& options,
                           CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const train::WrittenOutputs written, train::WriteOutputs(job, options));
  *context->out << "ran " << Plural(written.samples, "sample") << " in "
                << Plural(written.steps, "step") << " (" << written.data << ")\n";
  for (const train::WrittenOutput& file : written.files)
    *context->out << "wrote " << file.path << " " << file.type << "\n";
  return absl::OkStatus();
}

// Runs the model in this process, or on the hosts found; then `*fleet` becomes the processes there.
absl::Status WriteOutputsOn(const hosts::FoundHosts& found, const EvalArguments& arguments,
                            proto::Job job, const launch::SignalWatch& signals,
                            console::Console* console, std::unique_ptr<fleet::Fleet>* fleet,
                            CliContext* context) {
  train::WriteOutputsOptions options;
  options.folder = arguments.folder;
  options.outputs = arguments.outputs;
  options.job_file = arguments.job.path;
  options.threads = arguments.threads;
  options.values = weights::ValuesOf(arguments.averages);
  options.interrupted = [&] { return signals.interrupted().load(); };
  if (!arguments.init.empty()) {
    WEIR_ASSIGN_OR_RETURN(options.init, weights::WeightFileOf(arguments.init));
  }
  if (arguments.fleet.processes == 0 && found.agents.empty())
    return WriteAndPrint(job, options, context);
  WEIR_ASSIGN_OR_RETURN(fleet::FleetOptions processes,
                        arguments.fleet.Options(job, found, console));
  for (std::string& file : InputsOfWeights(options.init, options.job_file))
    processes.input_files.push_back(std::move(file));
  fleet::TellHosts(processes, &job);
  fleet::FleetOutputs runner(processes, arguments.threads, fleet);
  options.runner = &runner;
  const absl::Status status = WriteAndPrint(job, options, context);
  if (*fleet == nullptr) return status;
  const launch::FailureReport report = (*fleet)->Finish(status);
  *context->err << report.text << std::flush;
  (*fleet)->AwaitRemaining();
  if (report.text.empty()) return status;
  context->exit_code = report.exit_code;
  return absl::OkStatus();
}

absl::Status RunForOutputs(const EvalArguments& arguments, proto::Job job, CliContext* context) {
  console::Console console(::isatty(STDERR_FILENO) ? console::Console::Style::kTerminal
                                                   : console::Console::Style::kPlain,
                           context->raw_err,
                           [] { return console::TerminalColumns(STDERR_FILENO); });
  console::ConsoleLines agent_lines(&console);
  WEIR_ASSIGN_OR_RETURN(hosts::FoundHosts found,
                        hosts::FindHosts(arguments.fleet.hosts, &agent_lines));
  if (found.served.has_value()) {
    context->exit_code = *found.served;
    return absl::OkStatus();
  }
  if (!found.line.empty()) console.Say(found.line);
  launch::SignalWatch signals(launch::SecondSignal::kEndsTheProcess);
  std::unique_ptr<fleet::Fleet> fleet;
  const absl::Status status =
      WriteOutputsOn(found, arguments, std::move(job), signals, &console, &fleet, context);
  const bool is_interrupted = signals.interrupted().load();
  if (is_interrupted) {
    context->exit_code = launch::kExitInterrupted;
    if (!status.ok()) *context->err << "weir: " << status.message() << "\n";
  }
  const int exit_code = ExitCodeOf(*context, status);
  if (fleet != nullptr) fleet->TellEnd(exit_code);
  fleet.reset();
  found.TellEnd(exit_code);
  return is_interrupted ? absl::OkStatus() : status;
}

absl::Status RunEval(const EvalArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(proto::Job job, arguments.job.Read());
  WEIR_RETURN_IF_ERROR(CheckArguments(arguments, job));
  WEIR_RETURN_IF_ERROR(SettleRulesConfined(&job));
  WEIR_ASSIGN_OR_RETURN(const std::string products, sim::SettleProducts(&job));
  if (!products.empty()) *context->err << products << "\n";
  if (arguments.folder.empty()) return Evaluate(arguments, job, context);
  return RunForOutputs(arguments, std::move(job), context);
}

}  // namespace

void AddEvalVerb(CLI::App* app, CliContext* context) {
  auto eval = std::make_shared<EvalArguments>();
  CLI::App* verb = AddVerb(
      app, context, "eval",
      "Evaluate weights on the held-out part of a job's data, or write a model's results",
      "  weir eval gpt.textproto --init gpt.safetensors\n"
      "  weir eval model.textproto --init model.safetensors --outputs results/\n"
      "  weir eval gpt.textproto --init run/ --outputs results/ --output logits --mesh tp=2\n"
      "--outputs writes a .npy file for each output: a row for each sample of the data, in order. "
      "A job with a loss\nruns its held-out samples.",
      [eval, context] { return RunEval(*eval, context); });
  eval->job.AddTo(verb, context, JobArguments::Data::kOpened);
  eval->job.AddRulesFlag(verb);
  verb->add_option("--init,--checkpoint", eval->init,
                   "The weights: safetensors, an index of them, or a folder")
      ->type_name("PATH");
  verb->add_flag("--average", eval->averages,
                 "In place of each weight its average, which a run with training.average has");
  verb->add_option("--outputs", eval->folder,
                   "Run the data through the model, and write its results into this folder")
      ->type_name("FOLDER");
  verb->add_option("--output", eval->outputs,
                   "With --outputs: a tensor of main to write, again for each tensor [the outputs "
                   "of main]")
      ->type_name("NAME")
      ->allow_extra_args(false);
  verb->add_option("--threads", eval->threads, "Threads per device [cores / devices]")
      ->type_name("N")
      ->check(IsCount(1));
  eval->fleet.AddTo(verb);
}

}  // namespace weir::cli
