// weir weights: says whether weights of a file fit a job, and writes them under the names of the
// job.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/weight_index.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/job_weights.h"
#include "tools/train/output_paths.h"
#include "tools/weights/convert_weights.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

struct WeightsArguments {
  JobArguments job;
  std::string file;
  std::string map;
  bool list = false;
  std::string out;

  void AddTo(CLI::App* verb, CliContext* context) {
    job.AddTo(verb, context, JobArguments::Data::kNotOpened);
    verb->add_option("FILE", file, "Weights: safetensors, an index of them, or a folder")
        ->required();
    verb->add_option("--map", map,
                     "A map of weights, or the name of one of the program [the one that fits]")
        ->type_name("PATH");
  }
};

// A job with the weights that it has and those of a file.
struct JobAndFile {
  std::string title;  // of the job
  weights::WeightTypes types;
  std::shared_ptr<const store::SafetensorsReader> file;
  weights::MapPlaces places;
};

absl::StatusOr<JobAndFile> ReadBoth(const WeightsArguments& arguments) {
  JobAndFile both;
  WEIR_ASSIGN_OR_RETURN(const proto::Job job, arguments.job.Read());
  both.title = arguments.job.Title(job);
  WEIR_ASSIGN_OR_RETURN(both.types, WeightsOfJob(job));
  WEIR_ASSIGN_OR_RETURN(both.file, OpenWeights(arguments.file));
  WEIR_RETURN_IF_ERROR(both.file->CheckSums().status());
  both.places = {arguments.map, arguments.job.path};
  return both;
}

std::string MapText(const std::string& map) {
  return map.empty() ? "under the names of the job" : absl::StrCat("by the map ", map);
}

std::string MapOf(const weights::MappedWeights& mapped) {
  return mapped.shared_map() == nullptr ? "" : mapped.shared_map()->name();
}

// Prints lines, or with a file of another model only the first of many lines.
void PrintSome(const std::vector<std::string>& lines, const std::string& what, bool all,
               CliContext* context) {
  constexpr size_t kShown = 10;
  const size_t shown = all || lines.size() <= kShown + 1 ? lines.size() : kShown;
  for (size_t i = 0; i < shown; ++i) *context->out << lines[i] << "\n";
  if (shown < lines.size()) {
    *context->out << "and " << lines.size() - shown << " more " << what
                  << " that do not fit; --list lists them all\n";
  }
}

absl::Status CheckWeights(const WeightsArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const JobAndFile both, ReadBoth(arguments));
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights nearest,
                        weights::NearestMap(both.file, both.places, both.types));
  const weights::Misfit misfit = nearest.Compare(both.types);
  std::vector<std::string> missing, unused;
  for (const weights::Misfit::Lack& lack : misfit.missing) {
    missing.push_back(absl::StrCat(
        "weight ", lack.weight, lack.tensor.empty() ? ": no rule" : ": no tensor " + lack.tensor));
  }
  for (const std::string& tensor : misfit.unused)
    unused.push_back(absl::StrCat("tensor ", tensor, ": no weight uses it"));
  PrintSome(missing, "weights", arguments.list, context);
  PrintSome(unused, "tensors", arguments.list, context);
  WEIR_RETURN_IF_ERROR(nearest.Check(both.types));
  if (arguments.list) {
    for (const auto& [weight, type] : both.types) {
      *context->out << weight << " " << ToText(type.shape) << " <- " << nearest.SourceText(weight)
                    << "\n";
    }
  }
  *context->out << both.file->path() << " fits " << both.title << ": "
                << Plural(static_cast<int64_t>(both.types.size()), "weight") << " from "
                << Plural(static_cast<int64_t>(both.file->tensors().size()), "tensor") << ", "
                << MapText(MapOf(nearest)) << "\n";
  return absl::OkStatus();
}

absl::Status ConvertWeights(const WeightsArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const JobAndFile both, ReadBoth(arguments));
  std::vector<std::string> inputs = store::FilesOfWeights(both.file->path());
  for (std::string& path : weights::FilesBeside(arguments.job.path))
    inputs.push_back(std::move(path));
  inputs.push_back(arguments.job.path);
  if (!arguments.map.empty()) inputs.push_back(arguments.map);
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", arguments.out, inputs));
  WEIR_RETURN_IF_ERROR(train::CheckNameOfWeights("-o", arguments.out));
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                        weights::MapWeights(both.file, both.places, both.types));
  WEIR_RETURN_IF_ERROR(weights::WriteForJob(mapped, both.types, arguments.out));
  *context->out << arguments.out << ": "
                << Plural(static_cast<int64_t>(both.types.size()), "weight") << " of " << both.title
                << ", " << MapText(MapOf(mapped)) << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddWeightsVerbs(CLI::App* app, CliContext* context) {
  CLI::App* weights = app->add_subcommand(
      "weights", "Compare weights with a job, and write them under other names");
  weights->footer(
      "Examples:\n"
      "  weir weights check gpt.textproto model.safetensors\n"
      "  weir weights convert gpt.textproto model.safetensors -o gpt.safetensors");
  weights->require_subcommand(1);

  auto check = std::make_shared<WeightsArguments>();
  CLI::App* verb = AddVerb(weights, context, "check", "Say whether the weights in a file fit a job",
                           "  weir weights check gpt.textproto model.safetensors\n"
                           "  weir weights check gpt.textproto folder --list",
                           [check, context] { return CheckWeights(*check, context); });
  check->AddTo(verb, context);
  verb->add_flag("--list", check->list,
                 "Say for each weight which tensors it comes from, or all that does not fit");

  auto convert = std::make_shared<WeightsArguments>();
  verb = AddVerb(weights, context, "convert",
                 "Write the weights of a public file as the job names them (back: weir export)",
                 "  weir weights convert gpt.textproto model.safetensors -o gpt.safetensors",
                 [convert, context] { return ConvertWeights(*convert, context); });
  convert->AddTo(verb, context);
  verb->add_option("-o,--out", convert->out, "The new file")->type_name("PATH")->required();
}

}  // namespace weir::cli
