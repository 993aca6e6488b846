// weir export: writes a job's model for other programs, as ONNX or as weights under public names.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "actors/session/initialize_state.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/path_lock.h"
#include "runtime/store/safetensors.h"
#include "runtime/store/weight_index.h"
#include "tools/cli/cli_checks.h"
#include "tools/cli/cli_verbs.h"
#include "tools/cli/job_weights.h"
#include "tools/onnx/export_model.h"
#include "tools/onnx/sharding.h"
#include "tools/train/output_paths.h"
#include "tools/weights/adapter_names.h"
#include "tools/weights/averages.h"
#include "tools/weights/convert_weights.h"
#include "tools/weights/export_files.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {
namespace {

struct ExportArguments {
  JobArguments job;
  std::string weights, map;
  std::string onnx_path, safetensors_path;
  std::string like;
  int64_t file_bytes_max = int64_t{5} << 30;
  bool beside = false;
  bool averages = false;
  onnx::ExportOptions options;
};

using SharedFile = std::shared_ptr<const store::SafetensorsReader>;

absl::StatusOr<SharedFile> OpenChecked(const ExportArguments& arguments) {
  WEIR_ASSIGN_OR_RETURN(SharedFile file,
                        OpenWeights(arguments.weights, weights::ValuesOf(arguments.averages)));
  WEIR_RETURN_IF_ERROR(file->CheckSums().status());
  return file;
}

// Checks that a file to write is none of the files that the verb reads.
absl::Status CheckOutput(const std::string& flag, const std::string& output,
                         const ExportArguments& arguments, const std::vector<SharedFile>& files) {
  std::vector<std::string> inputs = {arguments.job.path};
  if (!arguments.map.empty()) inputs.push_back(arguments.map);
  for (const SharedFile& file : files) {
    for (std::string& path : store::FilesOfWeights(file->path())) inputs.push_back(std::move(path));
  }
  for (std::string& path : weights::FilesBeside(arguments.job.path))
    inputs.push_back(std::move(path));
  WEIR_RETURN_IF_ERROR(train::CheckOutputIsNoInput(flag, output, inputs));
  return train::CheckNameOfWeights(flag, output);
}

// Returns what fills weights as the job begins.
onnx::WeightSource InitialWeights(uint64_t seed) {
  return [seed](const onnx::ExportedWeight& weight, float* out) {
    using Kind = actors::PlanInitializer::Kind;
    actors::PlanInitializer init;
    switch (weight.init.kind_case()) {
      case proto::Initializer::kNormal:
        init = {Kind::kNormal, weight.init.normal().std(), weight.init.normal().mean()};
        break;
      case proto::Initializer::kUniform:
        init = {Kind::kUniform, weight.init.uniform().low(), weight.init.uniform().high()};
        break;
      case proto::Initializer::kOnes: init.kind = Kind::kOnes; break;
      case proto::Initializer::kZeros:
      case proto::Initializer::KIND_NOT_SET: break;
    }
    return actors::InitializeState(seed, weight.name, TensorSlice::Whole(DType::kF32, weight.shape),
                                   init, out);
  };
}

// Returns how a tensor of a program lies over the devices of its stage.
onnx::TensorSharding ShardingOf(const sbp::TensorType& type, const sbp::Layout& layout,
                                int64_t stage, const sbp::Places& places) {
  onnx::TensorSharding sharding;
  sharding.stage = stage;
  sharding.shards.assign(type.dims.size(), 1);
  const sbp::Mesh& mesh = places.mesh(stage);
  int64_t count = 1;
  for (size_t axis = 0; axis < layout.size(); ++axis) {
    if (!layout[axis].is_split()) continue;
    sharding.shards[layout[axis].axis] *= mesh.size(static_cast<int>(axis));
    count *= mesh.size(static_cast<int>(axis));
  }
  sharding.devices.resize(count);
  for (int64_t device = 0; device < mesh.num_ranks(); ++device) {
    const sbp::Coords coords = mesh.CoordsOf(device);
    int64_t shard =
        0;  // row-major over the dimensions; of one dimension, over the axes of the mesh
    for (size_t dim = 0; dim < type.dims.size(); ++dim) {
      for (size_t axis = 0; axis < layout.size(); ++axis) {
        if (layout[axis].is_split() && layout[axis].axis == static_cast<int>(dim))
          shard = shard * mesh.size(static_cast<int>(axis)) + coords[axis];
      }
    }
    sharding.devices[shard].push_back(places.RankAt(stage, device).value());
  }
  return sharding;
}

// Returns the shardings of the weights and inputs of a job on its mesh.
absl::StatusOr<onnx::ModelSharding> ShardingOfJob(const proto::Job& job) {
  compiler::CompileOptions options;
  options.mode = compiler::PlanMode::kEvaluate;
  options.program_only = true;
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> plan,
                        compiler::CompileJob(job, options));
  onnx::ModelSharding sharding;
  sharding.num_devices = plan->places.num_ranks();
  sharding.num_stages = plan->places.size();
  for (const compiler::Variable& variable : plan->module.variables) {
    sharding.tensors[variable.name] =
        ShardingOf(variable.type, variable.layout, variable.stage, plan->places);
  }
  for (const compiler::ProgramItem& item : plan->module.items) {
    if (item.kind != compiler::ItemKind::kSource) continue;
    const compiler::ProgramValue& value = plan->module.values[item.outputs[0]];
    sharding.tensors.emplace(item.feed,
                             ShardingOf(value.type, value.layout, value.stage, plan->places));
  }
  return sharding;
}

absl::Status ExportOnnx(const ExportArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const proto::Job job, arguments.job.Read());
  WEIR_ASSIGN_OR_RETURN(onnx::ExportedModel exported, onnx::ExportModel(job, arguments.options));
  if (job.mesh().axis_size() > 0) {
    WEIR_ASSIGN_OR_RETURN(const onnx::ModelSharding sharding, ShardingOfJob(job));
    onnx::AddSharding(sharding, &exported.model);
    if (sharding.num_devices > 1) {
      exported.notes.push_back(absl::StrCat("nodes say how their weights and inputs lie over ",
                                            sharding.num_devices, " devices, as hints"));
    }
  }
  onnx::WeightSource source = InitialWeights(job.training().seed());
  std::vector<SharedFile> files;
  std::string origin = "first values of the job";
  if (!arguments.weights.empty()) {
    WEIR_ASSIGN_OR_RETURN(const weights::WeightTypes types, WeightsOfJob(job));
    WEIR_ASSIGN_OR_RETURN(const SharedFile file, OpenChecked(arguments));
    files.push_back(file);
    WEIR_ASSIGN_OR_RETURN(weights::MappedWeights mapped,
                          weights::MapWeights(file, {arguments.map, arguments.job.path}, types));
    origin = file->path();
    source = [initial = source, mapped = std::move(mapped)](const onnx::ExportedWeight& weight,
                                                            float* out) {
      if (mapped.IsFresh(weight.name)) return initial(weight, out);
      return mapped.Read(weight.name, TensorSlice::Whole(DType::kF32, weight.shape), out);
    };
  }
  const std::string& path = arguments.onnx_path;
  const auto place = arguments.beside ? onnx::WeightPlace::kBeside : onnx::WeightPlace::kInModel;
  const bool is_beside = onnx::IsBeside(exported, place);
  WEIR_RETURN_IF_ERROR(CheckOutput("--onnx", path, arguments, files));
  if (is_beside) {
    WEIR_RETURN_IF_ERROR(
        CheckOutput("weights beside --onnx", absl::StrCat(path, ".data"), arguments, files));
  }
  const int num_nodes = exported.model.graph().node_size();
  const auto num_weights = static_cast<int64_t>(exported.weights.size());
  const std::vector<std::string> open = exported.open, notes = exported.notes;
  std::vector<std::string> outputs;
  for (const proto::OnnxValue& output : exported.model.graph().output())
    outputs.push_back(output.name());
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::PathLock> lock, store::PathLock::Take(path));
  WEIR_RETURN_IF_ERROR(onnx::WriteModel(std::move(exported), place, source, path, *lock));
  *context->out << "wrote " << path << " with " << Plural(num_nodes, "node") << " of opset "
                << onnx::kExportedOpset << " and " << Plural(num_weights, "weight") << " ("
                << origin << (is_beside ? absl::StrCat(", in ", path, ".data") : "") << ")\n"
                << "outputs: " << absl::StrJoin(outputs, ", ")
                << "; open dimensions: " << (open.empty() ? "none" : absl::StrJoin(open, ", "))
                << "\n";
  for (const std::string& note : notes) *context->out << "note: " << note << "\n";
  if (const std::string aside = weights::AsideText({path, absl::StrCat(path, ".data")});
      !aside.empty())
    *context->out << "note: " << aside << "\n";
  return absl::OkStatus();
}

absl::Status ExportSafetensors(const ExportArguments& arguments, CliContext* context) {
  WEIR_ASSIGN_OR_RETURN(const proto::Job job, arguments.job.Read());
  WEIR_ASSIGN_OR_RETURN(const weights::WeightTypes types, WeightsOfJob(job));
  WEIR_ASSIGN_OR_RETURN(const SharedFile file, OpenChecked(arguments));
  for (const auto& [name, type] : types) {
    if (!weights::IsAdapter(name, types)) continue;
    return Rejected({"W0853", "--safetensors", "a job without adapters, as public names have none",
                     absl::StrCat("weight ", name),
                     "`weir lora merge`, and then the export of what it writes with the job "
                     "without adapters"});
  }
  weights::ExportOrder order{{arguments.map, arguments.job.path},
                             nullptr,
                             arguments.safetensors_path,
                             arguments.file_bytes_max};
  std::vector<SharedFile> files = {file};
  if (!arguments.like.empty()) {
    WEIR_ASSIGN_OR_RETURN(order.like, OpenWeights(arguments.like));
    files.push_back(order.like);
  }
  const auto check = [&](const std::vector<std::string>& outputs) -> absl::Status {
    for (const std::string& output : outputs)
      WEIR_RETURN_IF_ERROR(CheckOutput("--safetensors", output, arguments, files));
    return absl::OkStatus();
  };
  WEIR_RETURN_IF_ERROR(CheckOutput("--safetensors", arguments.safetensors_path, arguments, files));
  WEIR_RETURN_IF_ERROR(weights::MappedWeights(file).Check(types));
  WEIR_ASSIGN_OR_RETURN(const weights::Exported exported,
                        weights::WritePublic(*file, types, order, check));
  if (exported.files.size() > 1) {
    *context->out << Plural(static_cast<int64_t>(exported.files.size()) - 1, "file")
                  << " of tensors, from " << exported.files.front() << " on\n";
  }
  *context->out << "wrote " << exported.files.back() << " with "
                << Plural(static_cast<int64_t>(types.size()), "weight") << " of "
                << arguments.job.Title(job) << " under public names, "
                << (exported.map.empty() ? "which are those of the job"
                                         : absl::StrCat("by the map ", exported.map))
                << "\n";
  if (const std::string strays = weights::StrayText(arguments.safetensors_path, exported.files);
      !strays.empty())
    *context->out << "note: " << strays << "\n";
  return absl::OkStatus();
}

absl::Status Export(const ExportArguments& arguments, CliContext* context) {
  const bool as_onnx = !arguments.onnx_path.empty();
  if (as_onnx == !arguments.safetensors_path.empty()) {
    return Rejected({"W0929", "weir export", "--onnx FILE or --safetensors FILE",
                     as_onnx ? "both" : "neither", "weir export job.textproto --onnx model.onnx"});
  }
  if (as_onnx) return ExportOnnx(arguments, context);
  if (arguments.file_bytes_max < 1) {
    return Rejected({"W0929", "--max-shard-size", "a size of at least 1 byte",
                     absl::StrCat(arguments.file_bytes_max), "5GiB"});
  }
  if (arguments.weights.empty()) {
    return Rejected({"W0929", "--safetensors", "--weights FILE, with weights of the job", "none",
                     "--weights job.safetensors"});
  }
  return ExportSafetensors(arguments, context);
}

}  // namespace

void AddExportVerb(CLI::App* app, CliContext* context) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* verb = AddVerb(
      app, context, "export", "Write the model of a job for other programs",
      "  weir export gpt.textproto --weights gpt.safetensors --onnx gpt.onnx\n"
      "  weir export gpt.textproto --weights gpt.safetensors --safetensors model.safetensors",
      [arguments, context] { return Export(*arguments, context); });
  arguments->job.AddTo(verb, context, JobArguments::Data::kNotOpened);
  CLI::Option* to_onnx =
      verb->add_option("--onnx", arguments->onnx_path,
                       "The forward part of the model, with its weights, as a file of ONNX")
          ->type_name("PATH");
  CLI::Option* to_safetensors =
      verb->add_option("--safetensors", arguments->safetensors_path,
                       "The weights under public names, by a map of weights")
          ->type_name("PATH");
  CLI::Option* weights =
      verb->add_option("--weights", arguments->weights,
                       "Weights or a checkpoint of the job; for --onnx also a public file "
                       "[--onnx: the first values]")
          ->type_name("PATH");
  verb->add_flag("--average", arguments->averages,
                 "In place of each weight its average, which a run with training.average has")
      ->needs(weights);
  verb->add_option("--map", arguments->map,
                   "A map of weights, or the name of one of the program [the one that fits]")
      ->type_name("PATH");
  verb->add_option("--like", arguments->like,
                   "A public file of the model, for names, shapes and types")
      ->type_name("PATH")
      ->needs(to_safetensors);
  CLI::Validator size = CLI::AsSizeValue(true);
  size.description("");  // the units would fill a line of the help
  verb->add_option("--max-shard-size", arguments->file_bytes_max,
                   "Tensors of more bytes go to several files (500MB, 2GiB) with an index [5GiB]")
      ->transform(size)
      ->check(IsCount(1))
      ->type_name("SIZE")
      ->needs(to_safetensors);
  verb->add_option("--output", arguments->options.outputs,
                   "A tensor of main that becomes an output [what the loss reads]")
      ->type_name("NAME")
      ->needs(to_onnx);
  verb->add_option("--fixed", arguments->options.fixed,
                   "A dimension that keeps the size of the job [none but where a node needs it]")
      ->type_name("NAME")
      ->needs(to_onnx);
  verb->add_flag("--i64", arguments->options.i64,
                 "Integers of the model of ONNX, its inputs too, are i64 and not i32")
      ->needs(to_onnx);
  verb->add_flag("--beside", arguments->beside,
                 "Write the weights into a file beside the model, as beyond 1 GiB")
      ->needs(to_onnx);
}

}  // namespace weir::cli
