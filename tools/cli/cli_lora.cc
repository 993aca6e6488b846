// weir lora: gives a job low-rank adapters, and makes files of its weights.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/weight_index.h"
#include "runtime/store/whole_file.h"
#include "tools/adapters/adapter_files.h"
#include "tools/adapters/add_adapters.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/job_weights.h"
#include "tools/job/job_text.h"
#include "tools/plan/trained_text.h"
#include "tools/train/output_paths.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

namespace fs = std::filesystem;

struct AddArguments {
  JobArguments job;
  adapters::AdapterOptions options;
  std::string out;
};

// Gives the new job the map of weights of the old one, so that both read the same public files.
absl::Status CopyMap(const std::string& job, const std::string& new_job, CliContext* context) {
  const std::string from = weights::MapBeside(job), to = weights::MapBeside(new_job);
  std::error_code error;
  if (from.empty() || to.empty() || !fs::is_regular_file(from, error)) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const weights::WeightMap map, weights::WeightMap::Read(from));
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("map beside -o", to, {job, from}));
  WEIR_RETURN_IF_ERROR(store::WriteWholeFile(to, [&](std::ostream& out) {
    std::ifstream in(from, std::ios::binary);
    out << in.rdbuf();
    return absl::OkStatus();
  }));
  *context->out << "wrote " << to << ", the map of weights of " << job << "\n";
  if (weights::ConstantsBeside(job) != weights::ConstantsBeside(new_job)) {
    *context->out << "note: " << to << " names the file " << map.message().constants_file()
                  << ", which the new job needs beside it\n";
  }
  return absl::OkStatus();
}

absl::Status Add(const AddArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(proto::Job job, arguments.job.Read());
  WEIR_RETURN_IF_ERROR(WeightsOfJob(job).status());
  const std::string title = arguments.job.Title(job);
  WEIR_ASSIGN_OR_RETURN(const adapters::AddedAdapters added,
                        adapters::AddAdapters(arguments.options, &job));
  WEIR_RETURN_IF_ERROR(WeightsOfJob(job).status());
  const std::string text =
      job::JobText(job, absl::StrCat(title, ", with adapters of rank ", arguments.options.rank,
                                     " beside its weights, by `weir lora add`."));
  std::ostream* told = context->err;  // the job itself is the result on `out`
  if (arguments.out.empty()) {
    *context->out << text;
  } else {
    told = context->out;
    WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", arguments.out, {arguments.job.path}));
    WEIR_RETURN_IF_ERROR(store::WriteWholeText(arguments.out, text));
    *told << "wrote " << arguments.out << "\n";
    WEIR_RETURN_IF_ERROR(CopyMap(arguments.job.path, arguments.out, context));
  }
  *told << "adapters of rank " << arguments.options.rank << " beside "
        << Plural(static_cast<int64_t>(added.weights.size()), "weight") << ": "
        << plan::TrainedShare(static_cast<double>(added.trained),
                              static_cast<double>(added.trained + added.frozen))
        << "\n";
  if (const std::string note = adapters::NoteOfTooSmall(added); !note.empty())
    *told << "note: " << note << "\n";
  return absl::OkStatus();
}

enum class Made : uint8_t { kAdapters, kJoined, kMerged };

struct FileArguments {
  JobArguments job;
  std::string weights, adapters, map;
  std::string out;
};

absl::Status MakeFile(const FileArguments& arguments, Made made, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const proto::Job job, arguments.job.Read());
  WEIR_ASSIGN_OR_RETURN(weights::WeightTypes types, WeightsOfJob(job));
  WEIR_ASSIGN_OR_RETURN(const adapters::AdaptedJob adapted,
                        adapters::AdaptedJobOf(job.graph(), std::move(types)));
  std::vector<std::string> inputs = weights::FilesBeside(arguments.job.path);
  inputs.push_back(arguments.job.path);
  if (!arguments.map.empty()) inputs.push_back(arguments.map);
  const auto open = [&](const std::string& path)
      -> absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> {
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file, OpenWeights(path));
    WEIR_RETURN_IF_ERROR(file->CheckSums().status());
    for (std::string& input : store::FilesOfWeights(file->path()))
      inputs.push_back(std::move(input));
    return file;
  };
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> whole,
                        open(arguments.weights));
  std::shared_ptr<const store::SafetensorsReader> small;
  if (!arguments.adapters.empty()) {
    WEIR_ASSIGN_OR_RETURN(small, open(arguments.adapters));
  }
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", arguments.out, inputs));
  WEIR_RETURN_IF_ERROR(train::CheckNameOfWeights("-o", arguments.out));
  WEIR_ASSIGN_OR_RETURN(const adapters::AdaptedWeights from,
                        adapters::AdaptedWeights::Open(adapted, std::move(whole), std::move(small),
                                                       {arguments.map, arguments.job.path}));
  const auto num_all = static_cast<int64_t>(adapted.types.size());
  const auto num_adapters = static_cast<int64_t>(2 * adapted.adapters.size());
  const std::string title = arguments.job.Title(job);
  switch (made) {
    case Made::kAdapters:
      WEIR_RETURN_IF_ERROR(adapters::WriteAdapters(adapted, from, arguments.out));
      *context->out << "wrote " << arguments.out << " with the "
                    << Plural(static_cast<int64_t>(adapted.trained.size()), "weight") << " that "
                    << title << " trains\n";
      break;
    case Made::kJoined:
      WEIR_RETURN_IF_ERROR(adapters::WriteJoined(adapted, from, arguments.out));
      *context->out << "wrote " << arguments.out << " with all " << Plural(num_all, "weight")
                    << " of " << title << "\n";
      break;
    case Made::kMerged:
      WEIR_RETURN_IF_ERROR(adapters::WriteMerged(adapted, from, arguments.out));
      *context->out << "wrote " << arguments.out << " with "
                    << Plural(num_all - num_adapters, "weight") << ", "
                    << static_cast<int64_t>(adapted.adapters.size())
                    << " of them with their adapters merged, for the job without adapters\n";
      break;
  }
  return absl::OkStatus();
}

// Adds a verb that makes a file of weights.
void AddFileVerb(CLI::App* lora, CliContext* context, Made made, const std::string& name,
                 const std::string& about, const std::string& examples) {
  auto arguments = std::make_shared<FileArguments>();
  CLI::App* verb = AddVerb(lora, context, name, about, examples, [arguments, made, context] {
    return MakeFile(*arguments, made, context);
  });
  arguments->job.AddTo(verb, context, JobArguments::Data::kNotOpened);
  verb->add_option("--weights", arguments->weights,
                   made == Made::kAdapters
                       ? "Weights or a checkpoint of the job"
                       : "Weights or a checkpoint of the job, or weights without adapters")
      ->type_name("PATH")
      ->required();
  if (made != Made::kAdapters) {
    CLI::Option* adapters =
        verb->add_option("--adapters", arguments->adapters,
                         made == Made::kMerged
                             ? "The adapters: what extract has written [those in --weights]"
                             : "The adapters: what extract has written")
            ->type_name("PATH");
    if (made == Made::kJoined) adapters->required();
    verb->add_option("--map", arguments->map,
                     "A map of --weights, or the name of one of the program [the one that fits]")
        ->type_name("PATH");
  }
  verb->add_option("-o,--out", arguments->out, "The new file")->type_name("PATH")->required();
}

}  // namespace

void AddLoraVerbs(CLI::App* app, CliContext* context) {
  CLI::App* lora =
      app->add_subcommand("lora", "Fine-tune low-rank adapters in place of all weights of a model");
  lora->footer(
      "Examples:\n"
      "  weir lora add gpt.textproto --rank 8 -o tuned.textproto\n"
      "  weir train tuned.textproto --init gpt.safetensors --save tuned.safetensors\n"
      "  weir lora extract tuned.textproto --weights tuned.safetensors -o adapters.safetensors\n"
      "  weir lora merge tuned.textproto --weights tuned.safetensors -o merged.safetensors\n"
      "  weir eval gpt.textproto --init merged.safetensors");
  lora->require_subcommand(1);

  auto add = std::make_shared<AddArguments>();
  CLI::App* verb =
      AddVerb(lora, context, "add", "Write the job with adapters, its other weights frozen",
              "  weir lora add gpt.textproto --rank 8 -o tuned.textproto\n"
              "  weir lora add gpt.textproto --rank 8 --alpha 16 --on '*.wq' --on '*.wv' -o "
              "tuned.textproto",
              [add, context] { return Add(*add, context); });
  add->job.AddTo(verb, context, JobArguments::Data::kNotOpened);
  verb->add_option("--rank", add->options.rank, "The rank of the adapters")
      ->capture_default_str()
      ->check(IsCount(1))
      ->type_name("N");
  verb->add_option("--alpha", add->options.alpha,
                   "Adapters count alpha / rank times [the rank, so that they count once]")
      ->type_name("X");
  verb->add_option("--on", add->options.on,
                   "A pattern of weights that get adapters, with * and ?; repeatable [every matrix "
                   "that only products read]")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  verb->add_option("--train", add->options.train,
                   "A pattern of other weights that train as well, such as a new head; repeatable "
                   "[none]")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  verb->add_option("-o,--out", add->out, "The new job [standard output]")->type_name("PATH");

  AddFileVerb(lora, context, Made::kAdapters, "extract",
              "Write the adapters, and what else the job trains, as a small file",
              "  weir lora extract tuned.textproto --weights tuned.safetensors -o "
              "adapters.safetensors");
  AddFileVerb(lora, context, Made::kJoined, "join",
              "Write weights and adapters as one file, for --init",
              "  weir lora join tuned.textproto --weights gpt.safetensors --adapters "
              "adapters.safetensors -o tuned.safetensors");
  AddFileVerb(
      lora, context, Made::kMerged, "merge",
      "Write weights with their adapters merged, for the job without adapters",
      "  weir lora merge tuned.textproto --weights tuned.safetensors -o merged.safetensors\n"
      "  weir lora merge tuned.textproto --weights gpt.safetensors --adapters "
      "adapters.safetensors -o merged.safetensors");
}

}  // namespace weir::cli
