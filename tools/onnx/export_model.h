// Makes a model of ONNX of a job: the forward part of the job's graph, without loss, gradients and
// optimiser. Calls and their repetitions are written out. Dimensions that no weight has and no
// operation fixes, the batch above all, stay open.
//
// All real numbers of the model are f32, whatever the precision of the job, and all integers i32 or
// i64, as asked. Dropout is left out. Thread rule: pure functions, except for writing files.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/onnx.pb.h"
#include "runtime/base/tensor_slice.h"
#include "runtime/store/path_lock.h"

namespace weir::onnx {

// The version of ONNX's operations that an exported model speaks, and the version of the file
// format: the first that have Attention and RMSNormalization.
inline constexpr int64_t kExportedOpset = 23;
inline constexpr int64_t kExportedIrVersion = 10;

struct ExportOptions {
  // Tensors of `main` that become outputs. Empty: the scores that cross entropies of the loss read;
  // else what the loss compares with an input; else the outputs of `main`.
  std::vector<std::string> outputs;
  std::vector<std::string> fixed;  // names of dimensions that keep the size of the job
  bool i64 = false;                // integers, inputs too, are i64
};

struct ExportedWeight {
  std::string name;  // of the job, and of the initializer
  Shape shape;
  proto::Initializer init;  // how the job begins, without a file of weights
};

struct ExportedModel {
  // Its initializers begin with the weights, which have no elements yet; constants follow.
  proto::OnnxModel model;
  std::vector<ExportedWeight> weights;
  std::vector<std::string> open;   // dimensions, by name
  std::vector<std::string> notes;  // sentence by sentence
};

// kInvalidArgument: the job is none (W04xx); W0927 lists all operations that ONNX does not have;
// W0928: `options` names no tensor of `main`, or no dimension of the job.
absl::StatusOr<ExportedModel> ExportModel(const proto::Job& job, const ExportOptions& options);

// Fills NumElements(weight.shape) numbers at `out`.
using WeightSource = std::function<absl::Status(const ExportedWeight& weight, float* out)>;

enum class WeightPlace : uint8_t {
  kInModel,  // beyond kModelWeightBytesMax bytes, beside the model
  kBeside,   // in the file `path`.data
};
// Weights of more bytes never stand in the model itself, because a model holds at most 2 GiB.
inline constexpr int64_t kModelWeightBytesMax = int64_t{1} << 30;

// Returns whether WriteModel makes the file of weights beside the model.
bool IsBeside(const ExportedModel& exported, WeightPlace place);

// Writes a model and its weights, one weight in memory at a time if they go beside the model. Puts
// back first what a killed export has set aside there. `lock` is that of `path`. A reader sees the
// earlier model with its weights, or the new one with its own, or, for a moment, no model; a kill
// leaves one of these. Errors: those of `source`, or CannotWrite; then the earlier export is there
// as before, or the error says which files are where.
absl::Status WriteModel(ExportedModel exported, WeightPlace place, const WeightSource& source,
                        const std::string& path, const store::PathLock& lock);

}  // namespace weir::onnx
