// Makes a job of a model of ONNX: operations, weights, names of dimensions, and a loss where one is
// asked for.
//
// What depends on no input and on no trained weight is computed here: shapes, masks, tables of
// positions. A model that has operations without a translation is refused, with all of them named.
// Thread rule: pure functions, except for reading files of weights.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/onnx.pb.h"
#include "tools/onnx/tensor.h"
#include "tools/onnx/weir_graph.h"

namespace weir::onnx {

// The newest version of ONNX's operations that the translations were compared with.
inline constexpr int64_t kNewestOpset = 28;

struct ImportOptions {
  // Sizes of dimensions that the file leaves open, by symbol ("batch"), or by input and axis
  // ("tokens[0]").
  std::map<std::string, int64_t> dims;
  // Initializers that training leaves alone and that the importer may compute with: names, or
  // "beginning*".
  std::vector<std::string> constants;
  // Initializers that training leaves alone and that stay parameters: names, or "beginning*".
  std::vector<std::string> frozen;
  // "cross_entropy" or "mse". "": the only output is the loss if it is a single number; else the
  // model has no loss, and the outputs are its results.
  std::string loss;
  // The tensor that the loss reads, or the only result: an output of the graph or any other result
  // of a node; nodes that the tensor does not need are left out. "": the outputs of the graph.
  std::string output;
  std::string targets = "targets";  // the name of the input that the loss adds
  ExternalFiles files;
};

// A LoweredOutput is an output of the ONNX graph.
struct LoweredOutput {
  std::string name;
  ValueId value = -1;                      // computed by Weir, or
  std::shared_ptr<const Tensor> constant;  // known at import
};

// A Lowered is a model in operations of Weir. Parameters point into the message of the model.
struct Lowered {
  WeirGraph graph;
  std::vector<LoweredOutput> outputs;
  std::vector<std::string> notes;  // what differs from the file, sentence by sentence
};

// Returns whether `pattern`, a name or the beginning of names and *, stands for `name`.
bool Names(const std::string& pattern, const std::string& name);

// Translates the graph of a model. kInvalidArgument: W0833 lists all nodes without a translation,
// with what to do; W0834 names open dimensions; W0835 the graph is malformed (a cycle, a name
// without a tensor).
absl::StatusOr<Lowered> Lower(const proto::OnnxModel& model, const ImportOptions& options);

// An ImportedModel is a job and the weights with which the job begins.
struct ImportedModel {
  proto::Job job;
  std::vector<GraphParameter> weights;  // in the order of `names`
  std::vector<std::string> names;       // of the parameters in the job
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::string> notes;
};

// Some exporters write weights as nodes `Constant`, and no real tensor as an initializer. Turns
// such nodes of the graph into initializers under the names of their results: those with real
// tensors of several elements. Returns how many; a model with a weight among its initializers stays
// as it is.
int64_t MakeWeightsOfConstants(proto::OnnxModel* model);

// Lowers a model, adds the loss, and names the dimensions. W0836: the loss does not fit the
// outputs. W0623: no loss, and no output is the result of a node.
absl::StatusOr<ImportedModel> ImportModel(const proto::OnnxModel& model,
                                          const ImportOptions& options);

// Writes the weights as safetensors, one tensor in memory at a time. Errors of files, and W0831 and
// W0832.
absl::Status WriteWeights(const ImportedModel& imported, const ExternalFiles& files,
                          const std::string& path);

}  // namespace weir::onnx
