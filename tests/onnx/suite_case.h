// A case of ONNX's own tests, as Debian's package libonnx-testdata has them: a folder with a model,
// its inputs and its expected outputs. Thread rule: values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/onnx.pb.h"
#include "tests/onnx/graph_run.h"
#include "tools/onnx/tensor.h"

namespace weir::onnx {

struct SuiteCase {
  proto::OnnxModel model;
  std::map<std::string, Tensor> inputs;  // by name
  std::vector<Tensor> outputs;           // in the order of the graph
};

// Reads a case. The result is an error if an input or output is no tensor of numbers.
absl::StatusOr<SuiteCase> ReadSuiteCase(const std::string& folder);

// Makes initializers of all inputs that are not real: ONNX hands shapes, axes and indices to nodes
// as tensors. Returns whether there are any.
bool FixIntegers(SuiteCase* suite_case);

struct CaseResult {
  enum class Kind : uint8_t {
    kPass,       // all inputs are inputs of the job
    kConstants,  // the integers among the inputs are constants
    kFolded,     // likewise, and the importer computes all outputs
    kFail,
  };
  Kind kind = Kind::kFail;
  std::string reason;  // kFail
};
// Imports a case, runs it on one device and in every legal layout, and compares with the expected
// outputs. Layouts of the operations in `covered` are not tried again (graph_run.h).
CaseResult RunSuiteCase(const std::string& folder, CoveredOperations* covered);

// Returns what the ledger says of a result: "pass", or "no: " and the reason.
std::string LineOf(const CaseResult& result);

}  // namespace weir::onnx
