// Trains a job and writes to one safetensors file everything that another implementation needs to
// repeat the run, and the results of the run:
//   initial/NAME, final/NAME   every weight and optimiser state, whole
//   data/FEED                  [step, micro-batch, ...] every batch
//   loss, grad_norm            [step]
// and the job as JSON in the header.
//
//   oracle_run JOB.textproto OUT.safetensors STEPS [mesh=AXES] [FIELD=VALUE]...
//
// The fields are those of `weir train --set`, for example training.micro_batches=2.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "compiler/job/import_graph.h"
#include "google/protobuf/util/json_util.h"
#include "ops/defs/type_text.h"
#include "runtime/base/status.h"
#include "tests/oracle/tensor_archive.h"
#include "tests/training/train_run.h"
#include "tools/job/job_file.h"

namespace weir::oracle {
namespace {

absl::StatusOr<proto::Job> JobFrom(const std::string& path,
                                   const std::vector<std::string>& changes) {
  WEIR_ASSIGN_OR_RETURN(proto::Job job, job::ReadJobFile(path));
  for (const std::string& change : changes) {
    if (absl::StartsWith(change, "mesh=")) {
      WEIR_RETURN_IF_ERROR(job::SetMesh(change.substr(5), &job));
    } else {
      WEIR_RETURN_IF_ERROR(job::SetField(change, &job));
    }
  }
  return job;
}

// Adds all batches of one input of the model, which must be integers.
absl::Status AddBatches(const proto::Job& job, const proto::TensorDecl& input, int64_t steps,
                        TensorArchive* archive) {
  int64_t micro_batches = std::max<int64_t>(1, job.training().micro_batches());
  WEIR_ASSIGN_OR_RETURN(const auto dims, compiler::ImportDims(job));
  WEIR_ASSIGN_OR_RETURN(sbp::TensorType type, ops::ParseType(input.type(), dims));
  if (type.dtype != DType::kI32)
    return absl::UnimplementedError(absl::StrCat("input ", input.name(), " is not i32"));
  TensorSlice slice = TensorSlice::Whole(type.dtype, type.shape());
  std::unique_ptr<actors::DataFeed> feed = training::RepeatingFeed(job);
  std::vector<int32_t> all(steps * micro_batches * slice.num_elements());
  int32_t* next = all.data();
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      WEIR_RETURN_IF_ERROR(feed->Fill(input.name(), step, micro_batch, slice, next));
      next += slice.num_elements();
    }
  }
  Shape shape = {steps, micro_batches};
  shape.insert(shape.end(), slice.shape.begin(), slice.shape.end());
  archive->Add(absl::StrCat("data/", input.name()), shape, all);
  return absl::OkStatus();
}

absl::Status RunAndWrite(const proto::Job& job, int64_t steps, const std::string& path) {
  training::TrainRunOptions options;
  options.steps = steps;
  WEIR_ASSIGN_OR_RETURN(training::TrainRun run, training::Train(job, options));
  TensorArchive archive;
  for (const auto& [name, values] : run.initial)
    archive.Add("initial/" + name, run.shapes[name], values);
  for (const auto& [name, values] : run.weights)
    archive.Add("final/" + name, run.shapes[name], values);
  archive.Add("loss", {steps}, std::vector<float>(run.losses.begin(), run.losses.end()));
  archive.Add("grad_norm", {static_cast<int64_t>(run.grad_norms.size())},
              std::vector<float>(run.grad_norms.begin(), run.grad_norms.end()));
  for (const proto::Function& function : job.graph().function()) {
    if (function.name() != job.graph().main()) continue;
    for (const proto::TensorDecl& input : function.input())
      WEIR_RETURN_IF_ERROR(AddBatches(job, input, steps, &archive));
  }
  std::string json;
  google::protobuf::util::JsonPrintOptions print;
  print.always_print_primitive_fields = true;
  print.preserve_proto_field_names = true;
  if (!google::protobuf::util::MessageToJsonString(job, &json, print).ok())
    return absl::InternalError("job does not print");
  archive.Note("job", json);
  return archive.Write(path);
}

absl::Status Main(const std::vector<std::string>& args) {
  int64_t steps = 0;
  if (args.size() < 3 || !absl::SimpleAtoi(args[2], &steps) || steps < 1) {
    return absl::InvalidArgumentError(
        "oracle_run JOB.textproto OUT.safetensors STEPS [mesh=AXES] [FIELD=VALUE]...");
  }
  WEIR_ASSIGN_OR_RETURN(proto::Job job, JobFrom(args[0], {args.begin() + 3, args.end()}));
  return RunAndWrite(job, steps, args[1]);
}

}  // namespace
}  // namespace weir::oracle

int main(int argc, char** argv) {
  absl::Status status = weir::oracle::Main({argv + 1, argv + argc});
  if (status.ok()) return 0;
  fprintf(stderr, "oracle_run: %s\n", status.ToString().c_str());
  return 1;
}
