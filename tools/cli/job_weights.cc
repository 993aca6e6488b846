#include "tools/cli/job_weights.h"

#include <utility>

#include "compiler/compile.h"
#include "runtime/base/status.h"
#include "runtime/store/weight_index.h"
#include "tools/job/job_file.h"
#include "tools/train/job_session.h"
#include "tools/weights/find_weights.h"

namespace weir::cli {

// One device suffices: a weight has one name and one shape on all.
absl::StatusOr<weights::WeightTypes> WeightsOfJob(proto::Job job) {
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

absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> OpenWeights(
    const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const std::string file, weights::WeightFileOf(path));
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> opened,
                        store::SafetensorsReader::Open(file));
  return opened;
}

std::vector<std::string> FilesOfWeights(const std::string& path, const std::string& job_file) {
  std::vector<std::string> files = store::FilesOfWeights(path);
  if (std::string constants = weights::ConstantsBeside(job_file); !constants.empty())
    files.push_back(std::move(constants));
  return files;
}

}  // namespace weir::cli
