// weir train, weir eval and weir generate.
#include <unistd.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "tools/cli.h"
#include "tools/cli_verbs.h"
#include "tools/launch/signal_watch.h"
#include "tools/train/generator.h"
#include "tools/train/trainer.h"

namespace weir {
namespace {

struct TrainArguments {
  JobArguments job;
  TrainOptions options;
  int64_t steps = -1;
  int64_t seed = -1;
};

absl::Status RunTrain(TrainArguments arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(Job job, arguments.job.Read());
  if (arguments.steps >= 0) job.mutable_training()->set_steps(arguments.steps);
  if (arguments.seed >= 0) job.mutable_training()->set_seed(static_cast<uint64_t>(arguments.seed));
  if (arguments.options.checkpoint_every > 0 && arguments.options.checkpoint.empty()) {
    return Rejected({"W0074", "--checkpoint-every", "--checkpoint PATH beside it", "no path", ""});
  }
  SignalWatch signals(SecondSignal::kEndsTheProcess);
  arguments.options.style = ::isatty(STDERR_FILENO) ? ProgressStyle::kTerminal : ProgressStyle::kPlain;
  arguments.options.out = context->err;
  arguments.options.interrupted = &signals.interrupted();
  WEIR_ASSIGN_OR_RETURN(TrainResult result, Train(job, arguments.options));
  *context->out << absl::StrFormat("%d steps, loss %.6f", result.steps_done, result.last_loss);
  if (result.evaluation.has_value()) *context->out << ", " << EvaluationText(job, *result.evaluation);
  *context->out << "\n";
  if (result.interrupted) context->exit_code = kExitInterrupted;
  return absl::OkStatus();
}

struct EvalArguments {
  JobArguments job;
  std::string init;
  int threads = 0;
};

absl::Status RunEval(const EvalArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(Job job, arguments.job.Read());
  WEIR_ASSIGN_OR_RETURN(Evaluation evaluation, EvaluateWeights(job, arguments.init, arguments.threads));
  *context->out << EvaluationText(job, evaluation) << "\n";
  return absl::OkStatus();
}

struct GenerateArguments {
  JobArguments job;
  GenerateOptions options;
};

absl::Status RunGenerate(GenerateArguments arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(Job job, arguments.job.Read());
  SignalWatch signals(SecondSignal::kEndsTheProcess);
  arguments.options.interrupted = &signals.interrupted();
  *context->out << arguments.options.prompt << std::flush;
  absl::Status status = Generate(job, arguments.options, [context](char byte) { *context->out << byte << std::flush; });
  *context->out << "\n";
  if (signals.interrupted().load()) context->exit_code = kExitInterrupted;
  return status;
}

void AddTrain(CLI::App* app, CliContext* context) {
  auto train = std::make_shared<TrainArguments>();
  CLI::App* verb = AddVerb(app, context, "train", "Train a job on the devices of this machine",
                           "  weir train gpt.textproto --save gpt.safetensors\n"
                           "  weir train gpt.textproto --mesh dp=2,tp=2 --steps 100 --metrics m.jsonl --trace t.pftrace\n"
                           "  weir train gpt.textproto --checkpoint c.safetensors --checkpoint-every 100\n"
                           "  weir train gpt.textproto --resume c.safetensors --mesh tp=4    any mesh may go on\n"
                           "Ctrl-C ends after the step and still writes --save, --checkpoint and --trace.",
                           [train, context] { return RunTrain(*train, context); });
  train->job.AddTo(verb);
  verb->add_option("--steps", train->steps, "Steps, instead of the job's")->type_name("N")->check(CLI::NonNegativeNumber);
  verb->add_option("--seed", train->seed, "Seed, instead of the job's")->type_name("N")->check(CLI::NonNegativeNumber);
  verb->add_option("--init", train->options.init, "Start from these weights (safetensors)")->type_name("PATH");
  verb->add_option("--resume", train->options.resume, "Go on from this checkpoint, under any mesh")->type_name("PATH");
  verb->add_option("--save", train->options.save, "Write the weights at the end (safetensors)")->type_name("PATH");
  verb->add_option("--checkpoint", train->options.checkpoint, "Write weights, optimiser states and the step")->type_name("PATH");
  verb->add_option("--checkpoint-every", train->options.checkpoint_every, "Also write it every so many steps")
      ->type_name("N")->check(CLI::PositiveNumber);
  verb->add_option("--metrics", train->options.metrics, "Write a line of JSON per step")->type_name("PATH");
  verb->add_option("--trace", train->options.trace, "Write a Perfetto trace of the last acts")->type_name("PATH");
  verb->add_option("--threads", train->options.threads_per_device, "Threads per device [cores / devices]")
      ->type_name("N")->check(CLI::PositiveNumber);
}

}  // namespace

void AddTrainVerbs(CLI::App* app, CliContext* context) {
  AddTrain(app, context);

  auto eval = std::make_shared<EvalArguments>();
  CLI::App* verb = AddVerb(app, context, "eval", "Evaluate weights on the held-out part of a job's data",
                           "  weir eval gpt.textproto --init gpt.safetensors",
                           [eval, context] { return RunEval(*eval, context); });
  eval->job.AddTo(verb);
  verb->add_option("--init", eval->init, "The weights (safetensors)")->type_name("PATH")->required();
  verb->add_option("--threads", eval->threads, "Threads per device [cores / devices]")->type_name("N")->check(CLI::PositiveNumber);

  auto generate = std::make_shared<GenerateArguments>();
  verb = AddVerb(app, context, "generate", "Continue a text with a trained language model",
                 "  weir generate gpt.textproto --init gpt.safetensors --prompt 'Once upon' --tokens 300\n"
                 "  weir generate gpt.textproto --init gpt.safetensors --temperature 0",
                 [generate, context] { return RunGenerate(*generate, context); });
  generate->job.AddTo(verb);
  verb->add_option("--init", generate->options.init, "The weights (safetensors)")->type_name("PATH")->required();
  verb->add_option("--prompt", generate->options.prompt, "Text to continue [a new line]")->type_name("TEXT");
  verb->add_option("--tokens", generate->options.tokens, "Bytes to add")->type_name("N")->capture_default_str();
  verb->add_option("--temperature", generate->options.temperature, "0: always the likeliest; 1: as the model says")
      ->type_name("T")->capture_default_str();
  verb->add_option("--seed", generate->options.seed, "Seed of the choice")->type_name("N")->capture_default_str();
  verb->add_option("--threads", generate->options.threads, "Threads [all cores]")->type_name("N")->check(CLI::PositiveNumber);
}

}  // namespace weir
