// weir weights: says whether weights of a file fit a job, and writes them under other names.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/weight_index.h"
#include "tools/cli/cli_verbs.h"
#include "tools/job/job_file.h"
#include "tools/train/job_session.h"
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
  bool to_public = false;
  std::string like;
  uint64_t file_bytes_max = uint64_t{5} << 30;

  void AddTo(CLI::App* verb, CliContext* context) {
    job.AddTo(verb, context, JobArguments::Data::kNotOpened);
    verb->add_option("FILE", file, "Weights: safetensors, an index of them, or a folder")
        ->required();
    verb->add_option("--map", map,
                     "A map of weights, or the name of one of the program [the one that fits]")
        ->type_name("PATH");
  }
};

using SharedFile = std::shared_ptr<const store::SafetensorsReader>;

absl::StatusOr<SharedFile> OpenFile(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string file, weights::WeightFileOf(path));
  WEIR_ASSIGN_OR_RETURN(SharedFile opened, store::SafetensorsReader::Open(file));
  return opened;
}

// A job with the weights that it has and those of a file.
struct JobAndFile {
  std::string title;  // of the job
  weights::WeightTypes types;
  SharedFile file;
  weights::MapPlaces places;
};

// One device suffices: a weight has one name and one shape on all.
absl::StatusOr<weights::WeightTypes> WeightsOf(proto::Job job) {
  WEIR_RETURN_IF_ERROR(job::SetMesh("", &job));
  compiler::CompileOptions options;
  options.mode = compiler::PlanMode::kEvaluate;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> plan,
                        train::CompileConfined(job, options));
  weights::WeightTypes types;
  for (const compiler::Variable& variable : plan->module.variables) {
    Shape shape;
    for (const sbp::TensorDim& dim : variable.type.dims) shape.push_back(dim.size);
    types[variable.name] = {variable.type.dtype, std::move(shape)};
  }
  return types;
}

absl::StatusOr<JobAndFile> ReadBoth(const WeightsArguments& arguments) {
  JobAndFile both;
  WEIR_ASSIGN_OR_RETURN(const proto::Job job, arguments.job.Read());
  both.title = arguments.job.Title(job);
  WEIR_ASSIGN_OR_RETURN(both.types, WeightsOf(job));
  WEIR_ASSIGN_OR_RETURN(both.file, OpenFile(arguments.file));
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
  weights::ExportOrder order{both.places, nullptr, arguments.out,
                             static_cast<int64_t>(std::min<uint64_t>(
                                 arguments.file_bytes_max, std::numeric_limits<int64_t>::max()))};
  std::vector<std::string> inputs = store::FilesOfWeights(both.file->path());
  for (std::string& path : weights::FilesBeside(arguments.job.path))
    inputs.push_back(std::move(path));
  inputs.push_back(arguments.job.path);
  if (!arguments.map.empty()) inputs.push_back(arguments.map);
  if (!arguments.like.empty()) {
    WEIR_ASSIGN_OR_RETURN(order.like, OpenFile(arguments.like));
    for (std::string& path : store::FilesOfWeights(order.like->path()))
      inputs.push_back(std::move(path));
  }
  const auto check = [&](const std::vector<std::string>& outputs) {
    for (const std::string& output : outputs) {
      WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", output, inputs));
      WEIR_RETURN_IF_ERROR(train::CheckNameOfWeights("-o", output));
    }
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(check({arguments.out}));
  std::string map, out = arguments.out;
  if (arguments.to_public) {
    WEIR_RETURN_IF_ERROR(weights::MappedWeights(both.file).Check(both.types));
    WEIR_ASSIGN_OR_RETURN(const weights::Exported exported,
                          weights::WritePublic(*both.file, both.types, order, check));
    map = exported.map;
    out = exported.files.back();
    if (exported.files.size() > 1) {
      *context->out << Plural(static_cast<int64_t>(exported.files.size()) - 1, "file")
                    << " of tensors, from " << exported.files.front() << " on\n";
    }
  } else {
    WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                          weights::MapWeights(both.file, both.places, both.types));
    map = MapOf(mapped);
    WEIR_RETURN_IF_ERROR(weights::WriteForJob(mapped, both.types, arguments.out));
  }
  *context->out << out << ": " << Plural(static_cast<int64_t>(both.types.size()), "weight")
                << " of " << both.title << (arguments.to_public ? " under public names, " : ", ")
                << MapText(map) << "\n";
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
  verb =
      AddVerb(weights, context, "convert",
              "Write the weights of a public file as the job names them, or back",
              "  weir weights convert gpt.textproto model.safetensors -o gpt.safetensors\n"
              "  weir weights convert gpt.textproto gpt.safetensors -o model.safetensors --export",
              [convert, context] { return ConvertWeights(*convert, context); });
  convert->AddTo(verb, context);
  verb->add_option("-o,--out", convert->out, "The new file")->type_name("PATH")->required();
  CLI::Option* to_public =
      verb->add_flag("--export", convert->to_public,
                     "FILE has weights or a checkpoint of the job; write public names");
  verb->add_option("--like", convert->like,
                   "With --export: a public file of the model, for names, shapes and types")
      ->type_name("PATH")
      ->needs(to_public);
  verb->add_option("--max-shard-size", convert->file_bytes_max,
                   "With --export: tensors of more bytes go to several files with an index [5GiB]")
      ->transform(CLI::AsSizeValue(true))
      ->check([](const std::string& size) {
        const bool is_zero = size.find_first_not_of('0') == std::string::npos;
        return is_zero ? std::string("expected a size above 0, such as 5G") : std::string();
      })
      ->type_name("BYTES")
      ->needs(to_public);
}

}  // namespace weir::cli
