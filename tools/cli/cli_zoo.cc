// weir zoo: writes complete jobs to start from.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/wrap_text.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/job/data_paths.h"
#include "tools/job/job_text.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"
#include "tools/zoo/mlp.h"

namespace weir::cli {
namespace {

struct TransformerArguments {
  zoo::TransformerOptions options;
  std::string sequence_parallel = "none";
};

void AddTrainingFlags(CLI::App* verb, zoo::TrainingOptions* options) {
  verb->add_option("--batch", options->batch, "Samples per step")->capture_default_str();
  verb->add_option("--micro-batches", options->micro_batches,
                   "Pieces of a batch, for pipelines and memory")
      ->capture_default_str();
  verb->add_option("--update-every", options->update_every,
                   "Steps whose gradients one update gathers")
      ->capture_default_str();
  verb->add_option("--gradient-delay", options->gradient_delay, "Updates by which gradients lag")
      ->capture_default_str();
  verb->add_option("--steps", options->steps, "Steps to train")->capture_default_str();
  verb->add_option("--lr", options->learning_rate,
                   "Highest learning rate; warm-up, then cosine decay")
      ->capture_default_str();
  verb->add_option("--min-lr", options->min_learning_rate,
                   "Learning rate at the end [a tenth of --lr]");
  verb->add_option("--warmup", options->warmup_steps, "Updates of warm-up [a twentieth of all]");
  verb->add_option("--weight-decay", options->weight_decay, "Decay of matrices")
      ->capture_default_str();
  verb->add_option("--clip", options->clip_norm, "Largest norm of the gradient; 0 is off")
      ->capture_default_str();
  verb->add_option("--precision", options->precision, "f32, bf16 or f16")->capture_default_str();
  verb->add_option("--zero", options->zero_stage, "ZeRO stage over dp: 0 to 3")
      ->capture_default_str();
  verb->add_flag("--recompute", options->recompute,
                 "Keep only the inputs of blocks for the backward pass and compute the rest again: "
                 "less memory, more time");
  verb->add_option("--eval-every", options->eval_every,
                   "Steps between evaluations; 0 is at the end only")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Seed of weights, data and dropout")
      ->check(IsCount())
      ->capture_default_str();
  verb->add_option("--schedule", options->schedule,
                   "Of the pipeline: 1f1b, gpipe, interleaved or zero-bubble")
      ->capture_default_str();
  verb->add_option("--virtual-stages", options->virtual_stages,
                   "Parts per stage when interleaved [2]");
  verb->add_option("--mesh", options->mesh, "Devices, such as dp=2,tp=2")->type_name("AXES");
}

void AddTransformerFlags(CLI::App* verb, TransformerArguments* arguments) {
  zoo::TransformerOptions& options = arguments->options;
  verb->add_option("--layers", options.layers, "Blocks")->capture_default_str();
  verb->add_option("--hidden", options.hidden, "Width of the residual stream")
      ->capture_default_str();
  verb->add_option("--heads", options.heads, "Attention heads")->capture_default_str();
  verb->add_option("--vocab", options.vocab, "Tokens; bytes need 256")->capture_default_str();
  verb->add_option("--sequence", options.sequence, "Tokens per sample")->capture_default_str();
  verb->add_flag("--tied", options.tied_embeddings,
                 "Make the logits with the table of the embedding, not with a matrix of their own");
  verb->add_option("--data", options.training.data,
                   "Text file to learn, read as bytes [synthetic tokens]")
      ->type_name("PATH");
  verb->add_option("--held-out", options.training.held_out, "Share of the text kept for evaluation")
      ->capture_default_str();
  verb->add_option("--sequence-parallel", arguments->sequence_parallel,
                   "none, megatron (over tp) or ulysses (over sp)")
      ->capture_default_str();
  AddTrainingFlags(verb, &options.training);
}

absl::Status ParseSequenceParallel(const std::string& text, zoo::SequenceParallel* mode) {
  if (text == "none") {
    *mode = zoo::SequenceParallel::kNone;
  } else if (text == "megatron") {
    *mode = zoo::SequenceParallel::kMegatron;
  } else if (text == "ulysses") {
    *mode = zoo::SequenceParallel::kUlysses;
  } else {
    return Rejected({"W0061", "--sequence-parallel", "none, megatron or ulysses", text,
                     Nearest(text, std::vector<std::string>{"none", "megatron", "ulysses"})});
  }
  return absl::OkStatus();
}

// Prints a job. Says which of its data another verb would not find or not read.
void PrintJob(const proto::Job& job, const std::string& title, const CliContext& context) {
  *context.out << job::JobText(job, title);
  const auto say = [&](const std::string& text) {
    *context.err << WrapText(text, context.columns) << "\n";
  };
  for (const job::DataPath& data : job::DataPathsOf(job)) {
    const std::filesystem::path file = job::ResolvedPath(data.path);
    if (std::error_code error; !std::filesystem::exists(file, error)) {
      say(absl::StrCat("WARNING: the job reads ", data.path, " (", data.field,
                       "), and no such file is there"));
    } else if (!job::CheckDataPaths({data}, {"-", {}}).ok()) {
      say(absl::StrCat("the job reads ", data.path,
                       ", which is not in this folder: keep the job in the folder of its data, or "
                       "give the other verbs --allow-path ",
                       file.parent_path().string()));
    }
  }
}

absl::Status PrintTransformer(TransformerArguments arguments,
                              absl::StatusOr<proto::Job> (*build)(const zoo::TransformerOptions&),
                              const std::string& title, const CliContext& context) {
  WEIR_RETURN_IF_ERROR(
      ParseSequenceParallel(arguments.sequence_parallel, &arguments.options.sequence_parallel));
  WEIR_ASSIGN_OR_RETURN(proto::Job job, build(arguments.options));
  PrintJob(job, title, context);
  return absl::OkStatus();
}

void AddGpt(CLI::App* zoo, CliContext* context) {
  auto arguments = std::make_shared<TransformerArguments>();
  CLI::App* verb =
      AddVerb(zoo, context, "gpt", "A GPT-2 style language model over bytes",
              "  weir zoo gpt --data book.txt > gpt.textproto\n"
              "  weir zoo gpt --layers 12 --hidden 768 --heads 12 --sequence 1024 "
              "--mesh dp=2,tp=4,pp=2 --micro-batches 4\n"
              "  weir zoo gpt --sequence-parallel ulysses --mesh sp=4",
              [arguments, context] {
                return PrintTransformer(
                    *arguments, zoo::GptJob,
                    "A GPT-2 style language model over bytes, made by `weir zoo gpt`.", *context);
              });
  AddTransformerFlags(verb, arguments.get());
  verb->add_option("--ffn", arguments->options.ffn,
                   "Width inside the feed-forward part [4 x hidden]");
  verb->add_option("--dropout", arguments->options.dropout, "Rate of dropout")
      ->capture_default_str();
}

void AddLlama(CLI::App* zoo, CliContext* context) {
  auto arguments = std::make_shared<TransformerArguments>();
  CLI::App* verb = AddVerb(
      zoo, context, "llama", "A Llama style language model over bytes",
      "  weir zoo llama --data book.txt --kv-heads 2 > llama.textproto\n"
      "  weir zoo llama --layers 8 --hidden 512 --heads 8 --kv-heads 2 --mesh dp=2,tp=2 --zero 3",
      [arguments, context] {
        return PrintTransformer(
            *arguments, zoo::LlamaJob,
            "A Llama style language model over bytes, made by `weir zoo llama`.", *context);
      });
  AddTransformerFlags(verb, arguments.get());
  verb->add_option("--ffn", arguments->options.ffn,
                   "Width inside the feed-forward part [8/3 x hidden, rounded up to 32]");
  verb->add_option("--kv-heads", arguments->options.kv_heads, "Key and value heads [like --heads]");
}

void AddMlp(CLI::App* zoo, CliContext* context) {
  auto options = std::make_shared<zoo::MlpOptions>();
  options->training.batch = 128;
  options->training.steps = 1000;
  options->training.weight_decay = 0.01;
  CLI::App* verb = AddVerb(
      zoo, context, "mlp", "A multilayer perceptron that classifies images",
      "  weir zoo mlp --data /usr/share/datasets/fashion-mnist > mlp.textproto\n"
      "  weir zoo mlp --hidden 512 --layers 4 --mesh dp=2,tp=2",
      [options, context]() -> absl::Status {
        WEIR_ASSIGN_OR_RETURN(proto::Job job, zoo::MlpJob(*options));
        PrintJob(job, "A residual multilayer perceptron over images, made by `weir zoo mlp`.",
                 *context);
        return absl::OkStatus();
      });
  verb->add_option("--layers", options->layers, "Blocks")->capture_default_str();
  verb->add_option("--hidden", options->hidden, "Width between blocks")->capture_default_str();
  verb->add_option("--ffn", options->ffn, "Width inside a block [2 x hidden]");
  verb->add_option("--pixels", options->pixels, "Pixels of an image")->capture_default_str();
  verb->add_option("--classes", options->classes, "Classes")->capture_default_str();
  verb->add_option("--data", options->training.data,
                   "Folder with the four IDX files of MNIST's kin [synthetic]")
      ->type_name("FOLDER");
  AddTrainingFlags(verb, &options->training);
}

}  // namespace

void AddZooVerbs(CLI::App* app, CliContext* context) {
  CLI::App* zoo = app->add_subcommand("zoo", "Write a complete job to start from");
  zoo->footer("Examples:\n  weir zoo gpt --data book.txt > gpt.textproto\n  weir zoo mlp --help");
  zoo->require_subcommand(1);
  AddGpt(zoo, context);
  AddLlama(zoo, context);
  AddMlp(zoo, context);
}

}  // namespace weir::cli
