// A WeirGraph is a model as a list of operations of Weir, before its dimensions have names. The
// importer builds a WeirGraph, rewrites it, and prints it as the graph of a job.
//
// Dimensions are their sizes: in `Value::type`, a dimension of size 8 is called "n8", so that
// operations accept equal sizes as equal dimensions. The names come later (compiler/dims), from
// what the operations do. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "runtime/base/attributes.h"
#include "sbp/layout.h"
#include "tools/onnx/tensor.h"

namespace weir::onnx {

// The place of a value in WeirGraph::values; -1: none.
using ValueId = int;

struct GraphValue {
  sbp::TensorType type;
  int node = -1;       // that computes the value; -1: an input or a parameter
  int parameter = -1;  // the place in WeirGraph::parameters; -1: another kind
};

struct GraphNode {
  std::string op;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attrs;
  std::string name;  // of the node of ONNX; several nodes may share one
};

// A parameter holds a weight of the file, or a constant that the importer computed.
struct GraphParameter {
  ValueId value = -1;
  std::string name;
  bool trained = false;
  const proto::OnnxTensor* stored =
      nullptr;  // a weight, in the shape of `value`; owned by the model's message
  std::shared_ptr<const Tensor> constant;  // else
};

struct GraphInput {
  ValueId value = -1;
  std::string name;
  std::vector<std::string> dims;  // names; empty ones get a provisional name
};

struct WeirGraph {
  std::vector<GraphValue> values;
  std::vector<GraphNode> nodes;
  std::vector<GraphParameter> parameters;
  std::vector<GraphInput> inputs;
  int64_t constant_elements = 0;  // of constants that were added, also of those that nobody reads

  ValueId AddInput(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
                   std::vector<std::string> dims);
  ValueId AddParameter(GraphParameter parameter, const std::vector<int64_t>& shape);
  // Adds a node, and infers the types of its `num_outputs` results. Errors are those of the
  // operation.
  absl::StatusOr<std::vector<ValueId>> AddNode(const std::string& name, const std::string& op,
                                               std::vector<ValueId> inputs, Attributes attrs,
                                               int num_outputs);

  std::vector<int64_t> shape(ValueId value) const;
  // Returns the node that computes `value` if its operation is `op`, else null.
  const GraphNode* Producer(ValueId value, const std::string& op) const;
  // Returns the constant that `value` is, or null.
  const Tensor* ConstantOf(ValueId value) const;
};

// Returns the types of all results of an operation, as the operation names their dimensions.
absl::StatusOr<std::vector<sbp::TensorType>> InferTypes(const std::string& op,
                                                        const Attributes& attrs,
                                                        const std::vector<sbp::TensorType>& inputs);

// Returns the text of attribute `to` of reshape.
std::string DimsOf(const std::vector<int64_t>& shape);

// Returns `name` with each character replaced that names in Weir do not have: letters, digits, '_'
// and '.' stay.
std::string PlainName(const std::string& name);

// A PrintedGraph is the message of a graph with the names that its parameters got. Unnamed
// dimensions are called "_1",
// "_2" and so on.
struct PrintedGraph {
  proto::Graph graph;
  std::vector<std::string> parameters;  // in the order of WeirGraph::parameters
};
struct GraphOutput {
  ValueId value = -1;
  std::string name;
};
// Layers become calls of a function (find_layers.h). Precondition: the outputs are results of
// nodes.
PrintedGraph Print(const WeirGraph& graph, const std::string& name,
                   const std::vector<GraphOutput>& outputs);

}  // namespace weir::onnx
