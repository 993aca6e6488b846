#include "tools/cli/job_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "runtime/base/status.h"
#include "tools/job/job_file.h"
#include "tools/train/job_session.h"
#include "tools/weights/adapter_names.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {

// One device suffices: a weight has one name and one shape on all.
absl::StatusOr<weights::WeightTypes> WeightsOfJob(proto::Job job) {
  WEIR_RETURN_IF_ERROR(job::SetMesh("", &job));
  job.clear_rules();  // one device has no layouts to search for
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

absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenWeights(
    const std::string& path, weights::Values values) {
  WEIR_ASSIGN_OR_RETURN(const std::string file, weights::WeightFileOf(path));
  return weights::OpenValues(file, values);
}

absl::StatusOr<std::string> NoteOfAdapters(const proto::Job& job, const std::string& path,
                                           const std::string& job_file) {
  // Most jobs have none, and are not compiled for this.
  const auto has_adapters = [](const proto::Function& function) {
    return std::any_of(function.parameter().begin(), function.parameter().end(),
                       [](const proto::Parameter& parameter) {
                         return weights::AdaptedWeight(parameter.name()).has_value();
                       });
  };
  if (std::none_of(job.graph().function().begin(), job.graph().function().end(), has_adapters))
    return "";
  WEIR_ASSIGN_OR_RETURN(const weights::WeightTypes types, WeightsOfJob(job));
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const store::SafetensorsReader> file,
                        OpenWeights(path));
  WEIR_ASSIGN_OR_RETURN(const weights::MappedWeights mapped,
                        weights::MapWeights(file, {"", job_file}, types));
  if (mapped.CountFreshAdapters(types) == 0) return "";
  return absl::StrCat("note: ", file->path(),
                      " has no adapters, so the job computes what it computes without them");
}

std::vector<std::string> InputsOfWeights(const std::string& path, const std::string& job_file) {
  std::vector<std::string> files = {path};
  if (std::string constants = weights::ConstantsBeside(job_file); !constants.empty())
    files.push_back(std::move(constants));
  return files;
}

void AddFilesOfStart(const train::TrainOptions& options, std::vector<std::string>* files) {
  std::vector<std::string> needed;
  if (!options.init.empty()) needed = InputsOfWeights(options.init, options.job_file);
  if (!options.resume.empty()) needed = {options.resume};
  for (std::string& path : needed) {
    if (std::count(files->begin(), files->end(), path) == 0) files->push_back(std::move(path));
  }
}

}  // namespace weir::cli
