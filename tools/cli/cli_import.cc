// weir import: makes a job of a model in a file of another program.
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/onnx.pb.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/whole_file.h"
#include "tools/adapters/add_adapters.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/job/job_text.h"
#include "tools/onnx/import_model.h"
#include "tools/onnx/model_file.h"
#include "tools/train/output_paths.h"

namespace weir::cli {
namespace {

namespace fs = std::filesystem;

struct ImportArguments {
  std::string model;
  std::string job;
  std::vector<std::string> dims;
  onnx::ImportOptions options;
  int64_t lora_rank = 0;  // 0: no adapters
};

// Reads "batch=8" or "tokens[0]=8".
absl::Status ReadDims(const std::vector<std::string>& texts, std::map<std::string, int64_t>* dims) {
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    int64_t size = 0;
    if (equals == std::string::npos || equals == 0 ||
        !absl::SimpleAtoi(text.substr(equals + 1), &size) || size < 1)
      return Rejected(
          {"W0834", "--dim", "a dimension and its size, such as batch=8", text, "--dim batch=8"});
    const auto [given, is_new] = dims->emplace(text.substr(0, equals), size);
    if (!is_new) {
      return Rejected({"W0834", absl::StrCat("--dim ", given->first), "each dimension once",
                       absl::StrCat("the sizes ", given->second, " and ", size),
                       absl::StrCat("--dim ", given->first, "=", given->second)});
    }
  }
  return absl::OkStatus();
}

// Returns the paths of the files that the model names for elements of its tensors.
std::vector<std::string> ExternalFilesOf(const proto::OnnxModel& model, const fs::path& folder) {
  std::vector<std::string> paths;
  const auto add = [&](const proto::OnnxTensor& tensor) {
    for (const proto::OnnxEntry& entry : tensor.external()) {
      if (entry.key() == "location") paths.push_back((folder / entry.value()).string());
    }
  };
  for (const proto::OnnxTensor& tensor : model.graph().initializer()) add(tensor);
  for (const proto::OnnxNode& node : model.graph().node()) {
    for (const proto::OnnxAttribute& attribute : node.attribute()) add(attribute.t());
  }
  return paths;
}

absl::Status Import(ImportArguments arguments, CliContext* context) {
  WEIR_RETURN_IF_ERROR(ReadDims(arguments.dims, &arguments.options.dims));
  if (arguments.job.empty())
    arguments.job = fs::path(arguments.model).stem().string() + ".textproto";
  const std::string weights = fs::path(arguments.job).replace_extension(".safetensors").string();
  if (weights == arguments.job || weights == arguments.model || arguments.job == arguments.model)
    return Rejected({"W0061", "-o", "a name for the job that is not that of another file",
                     arguments.job, "-o job.textproto"});
  fs::path folder = fs::path(arguments.model).parent_path();
  arguments.options.files.folder = folder.empty() ? "." : folder.string();
  WEIR_ASSIGN_OR_RETURN(proto::OnnxModel model, onnx::ReadModelFile(arguments.model));
  const int64_t constants = onnx::MakeWeightsOfConstants(&model);
  std::vector<std::string> inputs = ExternalFilesOf(model, arguments.options.files.folder);
  inputs.push_back(arguments.model);
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("-o", arguments.job, inputs));
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput("weights beside -o", weights, inputs));
  auto imported = onnx::ImportModel(model, arguments.options);
  if (!imported.ok()) return At(arguments.model, imported.status());
  if (arguments.lora_rank > 0) {
    adapters::AdapterOptions adapters;
    adapters.rank = arguments.lora_rank;
    WEIR_ASSIGN_OR_RETURN(const adapters::AddedAdapters added,
                          adapters::AddAdapters(adapters, &imported->job));
    if (std::string note = adapters::NoteOfTooSmall(added); !note.empty())
      imported->notes.push_back(std::move(note));
  }
  WEIR_RETURN_IF_ERROR(onnx::WriteWeights(*imported, arguments.options.files, weights));
  const std::string title =
      absl::StrCat("Made of ", fs::path(arguments.model).filename().string(),
                   " by `weir import`. Weights: ", fs::path(weights).filename().string(), ".");
  WEIR_RETURN_IF_ERROR(store::WriteWholeText(arguments.job, job::JobText(imported->job, title)));
  int nodes = 0;
  for (const proto::Function& function : imported->job.graph().function())
    nodes += function.node_size();
  *context->out << "wrote " << arguments.job << " with " << Plural(nodes, "operation") << " and "
                << weights << " with "
                << Plural(static_cast<int64_t>(imported->names.size()), "tensor") << "\n";
  if (constants > 0) {
    *context->out << "note: the file has no initializers, so " << Plural(constants, "node")
                  << " `Constant` with several real numbers count as weights\n";
  }
  for (const std::string& note : imported->notes) *context->out << "note: " << note << "\n";
  *context->out << (imported->job.graph().without_loss()
                        ? absl::StrCat("next: weir eval ", arguments.job, " --init ", weights,
                                       " --outputs results/")
                        : absl::StrCat("next: weir train ", arguments.job, " --init ", weights))
                << "\n";
  return absl::OkStatus();
}

}  // namespace

void AddImportVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<ImportArguments>();
  CLI::App* verb =
      AddVerb(app, context, "import", "Make a job of a model of ONNX, and its weights beside it",
              "  weir import model.onnx -o job.textproto --loss cross_entropy\n"
              "  weir import model.onnx --dim batch=8 --dim sequence=128 --loss cross_entropy\n"
              "  weir import model.onnx    without a loss, to run the model: weir eval --outputs",
              [arguments, context] { return Import(*arguments, context); });
  verb->add_option("MODEL", arguments->model, "The file of ONNX")->type_name("PATH")->required();
  verb->add_option("-o,--out", arguments->job,
                   "The job; weights go beside it, as .safetensors [MODEL.textproto]")
      ->type_name("PATH");
  verb->add_option("--dim", arguments->dims,
                   "The size of a dimension that the file leaves open: batch=8, or by input and "
                   "axis, tokens[0]=8")
      ->type_name("NAME=SIZE");
  verb->add_option(
          "--loss", arguments->options.loss,
          "cross_entropy or mse between an output and targets; without it, the only output is "
          "the loss if it is a single number, and else the outputs are results to run for")
      ->type_name("KIND");
  verb->add_option(
          "--output", arguments->options.output,
          "The output, or any other tensor of the file, that the loss reads or that is the only "
          "result [the outputs]")
      ->type_name("NAME");
  verb->add_option("--targets", arguments->options.targets,
                   "The name of the input with the targets")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--constant", arguments->options.constants,
                   "An initializer that training leaves as it is and import may compute with: its "
                   "name, or the "
                   "beginning of names and *")
      ->type_name("NAME");
  verb->add_option("--freeze", arguments->options.frozen,
                   "An initializer that becomes a frozen parameter: its name, or the beginning of "
                   "names and *")
      ->type_name("NAME");
  verb->add_option("--lora", arguments->lora_rank,
                   "Train adapters of this rank in place of the weights, as after `weir lora add`")
      ->check(IsCount(1))
      ->type_name("RANK");
}

}  // namespace weir::cli
