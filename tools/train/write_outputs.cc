#include "tools/train/write_outputs.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/compile.h"
#include "compiler/dims/mixed_samples.h"
#include "compiler/job/mesh_use.h"
#include "compiler/job/model_inputs.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/npy_writer.h"
#include "tools/train/job_data.h"
#include "tools/train/job_session.h"
#include "tools/train/job_variant.h"
#include "tools/train/memory_budget.h"
#include "tools/weights/find_weights.h"

namespace weir::train {
namespace {

// A worker answers with so much of an output at once. Messages of the control plane have room for
// more.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Where the samples of a run come from.
struct Source {
  store::DataUse use = store::DataUse::kInOrder;
  int64_t samples = 0, batch = 1;
  std::string data;
  int64_t steps() const { return (samples + batch - 1) / batch; }
};

// Refuses names that `--output` has and `main` has not, and those that it has twice.
absl::Status CheckNames(const proto::Job& job, const std::vector<std::string>& outputs) {
  constexpr size_t kNamesMax = 12;  // in a message
  std::vector<std::string> computed;
  std::set<std::string> inputs, parameters, seen;
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const proto::TensorDecl& input : function.input()) inputs.insert(input.name());
    for (const auto& parameter : function.parameter()) parameters.insert(parameter.name());
    for (const proto::Node& node : function.node()) {
      if (node.output().empty()) computed.push_back(node.name());
      computed.insert(computed.end(), node.output().begin(), node.output().end());
    }
  }
  for (const std::string& output : outputs) {
    const std::string where = absl::StrCat("--output ", output);
    if (!seen.insert(output).second)
      return Rejected({"W0618", where, "each tensor once", "the same name again", "leave one out"});
    // The compiler refuses inputs, as in a job.
    if (std::count(computed.begin(), computed.end(), output) + inputs.count(output) > 0) continue;
    const bool is_parameter = parameters.count(output) > 0;
    const std::string near = is_parameter ? "" : Nearest(output, computed);
    const size_t some = std::min(computed.size(), kNamesMax);
    return Rejected(
        {"W0407", where,
         absl::StrCat("a tensor that a node of function ", job.graph().main(), " computes"),
         absl::StrCat("\"", output, "\"", is_parameter ? ", a parameter" : ""),
         near.empty() ? absl::StrCat("one of ",
                                     absl::StrJoin(computed.begin(), computed.begin() + some, ", "),
                                     some < computed.size() ? ", …" : "")
                      : absl::StrCat("--output ", near)});
  }
  return absl::OkStatus();
}

absl::StatusOr<Source> SourceOf(const proto::Job& job, const proto::Job& variant) {
  Source source;
  if (!job.graph().without_loss() && !job.data().has_synthetic())
    source.use = store::DataUse::kTrain;
  WEIR_ASSIGN_OR_RETURN(const JobSamples samples, OpenJobSamples(variant, source.use));
  if (samples.count == 0) {
    return Rejected({"W0077", "data",
                     "something held out, which a job with a loss runs through its model",
                     "nothing", "data { arrays { held_out: 0.1 } }, or held_out_path"});
  }
  source.samples = samples.count;
  source.batch = samples.batch;
  source.data = samples.dataset->Describe();
  return source;
}

// Refuses a last step that is not full if its other rows would be in the results, or change them.
absl::Status CheckLastStep(const proto::Job& variant, const Source& source) {
  const int64_t rest = source.samples % source.batch;
  if (rest == 0) return absl::OkStatus();
  const std::string where =
      absl::StrCat(Plural(source.samples, "sample"), " in steps of ", source.batch);
  const std::string size =
      absl::StrCat("a size of the samples' dimension that divides the number of samples, such as ",
                   std::gcd(source.samples, source.batch));
  WEIR_ASSIGN_OR_RETURN(const std::string mixing, compiler::NodeThatMixesSamples(variant));
  if (!mixing.empty()) {
    return Rejected(
        {"W0620", where, "samples that fill the last step, because samples depend on each other",
         absl::StrCat(rest, " in the last step; ", mixing, " reads several samples"), size});
  }
  WEIR_ASSIGN_OR_RETURN(const auto places, compiler::PlacesOfSamples(variant));
  for (const auto& [output, place] : places) {
    if (place != compiler::SamplePlace::kElsewhere) continue;
    return Rejected(
        {"W0620", where,
         "samples that fill the last step, because an output has no row for each sample",
         absl::StrCat(rest, " in the last step; output ", output,
                      " holds the samples in another dimension than its first"),
         absl::StrCat(size, "; or an output whose first dimension is that of the samples")});
  }
  return absl::OkStatus();
}

// Returns the weights of the whole job, of which the chosen outputs may need only some.
absl::StatusOr<weights::WeightTypes> WeightsOf(const proto::Job& job) {
  compiler::CompileOptions options;
  options.mode = compiler::PlanMode::kEvaluate;
  options.program_only = true;
  const proto::Job written = job.graph().without_loss() ? OutputsJob(job, {}) : EvaluationJob(job);
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<compiler::LogicalPlan> plan,
                        CompileConfined(written, options));
  weights::WeightTypes types;
  for (const compiler::Variable& variable : plan->module.variables)
    types[variable.name] = {variable.type.dtype, variable.type.shape()};
  return types;
}

absl::Status CheckHasInit(const compiler::LogicalPlan& plan, const std::string& init) {
  if (!init.empty() || plan.module.variables.empty()) return absl::OkStatus();
  return Rejected(
      {"W0621", "--init",
       absl::StrCat("the weights of the model, such as ", plan.module.variables[0].name), "none",
       "--init weights.safetensors, or the folder of a checkpoint"});
}

// Checks that the file of weights has those of the plan, and no tensor that the job does not know.
absl::Status CheckInit(const proto::Job& job, const compiler::LogicalPlan& plan,
                       const WriteOutputsOptions& options) {
  if (options.init.empty()) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> file,
                        weights::OpenValues(options.init, options.values));
  WEIR_RETURN_IF_ERROR(file->CheckSums().status());
  WEIR_ASSIGN_OR_RETURN(weights::WeightTypes types, WeightsOf(job));
  for (const compiler::Variable& variable : plan.module.variables)
    types[variable.name] = {variable.type.dtype, variable.type.shape()};
  return weights::MapWeights(std::move(file), {"", options.job_file}, types).status();
}

// One output and its file.
struct OutputFile {
  std::string name;
  DType dtype = DType::kF32;
  bool counts_samples = false;  // by its first dimension
  int64_t row_bytes = 0;        // of a sample, or of a step
  Shape shape;                  // of the array
  std::string path;
  std::unique_ptr<store::NpyWriter> writer;
};

// Returns a name for a file, in which every character but letters, digits, '.', '-' and '_' is '_'.
std::string FileName(std::string name) {
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  }
  if (!name.empty() && name[0] == '.') name[0] = '_';
  return absl::StrCat(name, ".npy");
}

absl::StatusOr<std::vector<OutputFile>> FilesOf(const compiler::LogicalPlan& plan,
                                                const proto::Job& variant, const Source& source,
                                                const std::string& folder) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<compiler::ModelInput> inputs,
                        compiler::ModelInputsOf(variant, compiler::PlanMode::kEvaluate));
  std::string samples;
  for (const compiler::ModelInput& input : inputs) {
    if (input.use.needed && !input.type.dims.empty()) samples = input.type.dims[0].name;
  }
  WEIR_ASSIGN_OR_RETURN(const auto places, compiler::PlacesOfSamples(variant));
  std::vector<OutputFile> files;
  std::map<std::string, std::string> output_of;  // by path
  for (const auto& [name, value] : plan.module.model.fetched) {
    const sbp::TensorType& type = plan.module.model.values[value].type;
    OutputFile& file = files.emplace_back();
    file.name = name;
    file.dtype = type.dtype;
    const Shape shape = type.shape();
    // A reshape may have given the dimension another name.
    const auto place = places.find(name);
    file.counts_samples =
        !shape.empty() && shape[0] == source.batch &&
        (type.dims[0].name == samples ||
         (place != places.end() && place->second == compiler::SamplePlace::kFirst));
    if (file.counts_samples) {
      file.shape = shape;
      file.shape[0] = source.samples;
    } else {
      file.shape = {source.steps()};
      file.shape.insert(file.shape.end(), shape.begin(), shape.end());
    }
    file.row_bytes = NumElements({file.shape.begin() + 1, file.shape.end()}) * SizeOf(type.dtype);
    file.path = (std::filesystem::path(folder) / FileName(name)).string();
    if (const auto [other, is_new] = output_of.emplace(file.path, name); !is_new) {
      return Rejected({"W0619", absl::StrCat("output ", name), "a file of its own",
                       absl::StrCat(file.path, ", the file of output ", other->second),
                       "write them in two runs, each with --output"});
    }
  }
  return files;
}

absl::Status BeginFiles(const std::string& folder, std::vector<OutputFile>* files) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Missing({"W0624", absl::StrCat("--outputs ", folder),
                    "a folder, or a place where one can be made", error.message(),
                    "another place, such as --outputs results/"});
  }
  for (OutputFile& file : *files) {
    WEIR_ASSIGN_OR_RETURN(file.writer, store::NpyWriter::Create(file.path, file.dtype, file.shape));
  }
  return absl::OkStatus();
}

// Appends the rows of the last step.
absl::Status AppendRows(int64_t rows, OutputRunner* runner, OutputFile* file) {
  const int64_t bytes = (file->counts_samples ? rows : 1) * file->row_bytes;
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const int64_t count = std::min(kPieceBytes, bytes - begin);
    WEIR_ASSIGN_OR_RETURN(const std::string piece, runner->Read(file->name, begin, count));
    if (static_cast<int64_t>(piece.size()) != count) {
      return absl::InternalError(
          absl::StrCat("output ", file->name, ": ", piece.size(), " bytes in place of ", count));
    }
    WEIR_RETURN_IF_ERROR(file->writer->Append(piece.data(), count));
  }
  return absl::OkStatus();
}

std::string TypeText(const OutputFile& file) {
  const DType dtype = file.dtype == DType::kBF16 ? DType::kF32 : file.dtype;
  return absl::StrCat(Name(dtype), ToText(file.shape));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const compiler::LogicalPlan>> PrepareOutputs(
    const proto::Job& job, const WriteOutputsOptions& options, WrittenOutputs* facts) {
  WEIR_RETURN_IF_ERROR(CheckNames(job, options.outputs));
  const proto::Job variant = OutputsJob(job, options.outputs);
  compiler::CompileOptions compile;
  compile.mode = compiler::PlanMode::kEvaluate;
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const compiler::LogicalPlan> plan,
                        CompileConfined(variant, compile));
  WEIR_RETURN_IF_ERROR(compiler::CheckMeshUse(*plan));
  WEIR_ASSIGN_OR_RETURN(const NeedAndPlans of, NeedAndPlansOf(*plan, Beside::kNothing));
  WEIR_RETURN_IF_ERROR(CheckNeed(*plan, Beside::kNothing, of.need, BudgetOf(job)));
  WEIR_RETURN_IF_ERROR(CheckInit(job, *plan, options));
  if (job.data().kind_case() == proto::Data::KIND_NOT_SET) return plan;
  WEIR_ASSIGN_OR_RETURN(const Source source, SourceOf(job, variant));
  WEIR_RETURN_IF_ERROR(CheckLastStep(variant, source));
  WEIR_ASSIGN_OR_RETURN(const std::vector<OutputFile> files,
                        FilesOf(*plan, variant, source, options.folder));
  facts->samples = source.samples;
  facts->steps = source.steps();
  facts->data = source.data;
  for (const OutputFile& file : files) facts->files.push_back({file.path, TypeText(file)});
  return plan;
}

absl::StatusOr<WrittenOutputs> WriteOutputs(const proto::Job& job,
                                            const WriteOutputsOptions& options) {
  const std::unique_ptr<OutputRunner> local =
      options.runner == nullptr ? MakeLocalOutputs(options.threads) : nullptr;
  OutputRunner* const runner = options.runner == nullptr ? local.get() : options.runner;
  WEIR_RETURN_IF_ERROR(CheckNames(job, options.outputs));
  const proto::Job variant = OutputsJob(job, options.outputs);
  OutputOrder order;
  order.job = &variant;
  order.job_file = options.job_file;
  order.values = options.values;
  WEIR_ASSIGN_OR_RETURN(const Source source, SourceOf(job, variant));
  order.use = source.use;
  WEIR_RETURN_IF_ERROR(CheckLastStep(variant, source));
  if (!options.init.empty()) {
    WEIR_ASSIGN_OR_RETURN(order.weights, weights::OpenValues(options.init, options.values));
    WEIR_RETURN_IF_ERROR(order.weights->CheckSums().status());
    WEIR_ASSIGN_OR_RETURN(order.unused, WeightsOf(job));
  }
  WEIR_ASSIGN_OR_RETURN(const std::shared_ptr<const compiler::LogicalPlan> plan,
                        runner->Open(order));
  WEIR_RETURN_IF_ERROR(CheckHasInit(*plan, options.init));
  WEIR_ASSIGN_OR_RETURN(std::vector<OutputFile> files,
                        FilesOf(*plan, variant, source, options.folder));
  WEIR_RETURN_IF_ERROR(BeginFiles(options.folder, &files));
  for (int64_t step = 0; step < source.steps(); ++step) {
    if (options.interrupted && options.interrupted())
      return absl::CancelledError("interrupted: no file of outputs is written or changed");
    WEIR_RETURN_IF_ERROR(runner->RunStep());
    const int64_t rows = std::min(source.batch, source.samples - step * source.batch);
    for (OutputFile& file : files) WEIR_RETURN_IF_ERROR(AppendRows(rows, runner, &file));
  }
  WrittenOutputs written;
  written.samples = source.samples;
  written.steps = source.steps();
  written.data = source.data;
  for (OutputFile& file : files) {
    WEIR_RETURN_IF_ERROR(file.writer->Publish());
    written.files.push_back({file.path, TypeText(file)});
  }
  return written;
}

}  // namespace weir::train
