// An ExportNode is one node of a job on its way to nodes of ONNX. The first failure stays: after
// it, nothing is added that matters, so a translation reads like a formula.
//
// Open dimensions: the size of a dimension of an exported tensor is a number times sizes that are
// known only when the model runs. A translation that needs such a size as a number says so with
// Fixes, and the exporter then closes the dimension and begins again. Thread rule: one thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "tools/onnx/model_builder.h"

namespace weir::onnx {

// The size of a dimension: `factor` times the sizes of open dimensions, by name, in order.
struct OpenSize {
  int64_t factor = 1;
  std::vector<std::string> open;
  bool is_open() const { return !open.empty(); }
  friend bool operator==(const OpenSize&, const OpenSize&) = default;
};

// An open dimension: its size in the job, and where the exported model has it.
struct OpenDim {
  int64_t size = 0;
  std::string input = {};  // of the model; empty: no input that is read has the dimension
  int axis = 0;
};
using OpenDims = std::map<std::string, OpenDim>;  // by name

// A tensor of the exported model.
struct ExportedValue {
  std::string name;
  sbp::TensorType type;
  std::vector<OpenSize> sizes;  // of the dimensions of `type`
};

class ExportNode {
 public:
  // Arguments must outlive the node. `outputs` have names and types; the constructor finds their
  // sizes.
  ExportNode(const compiler::Node& node, const OpenDims& open,
             std::vector<const ExportedValue*> inputs, std::vector<ExportedValue*> outputs,
             ModelBuilder* builder);

  const Attributes& attrs() const { return node_.attrs; }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  bool Has(int i) const { return i < static_cast<int>(inputs_.size()) && inputs_[i] != nullptr; }
  const std::string& In(int i) const { return inputs_[i]->name; }
  const ExportedValue& input(int i) const { return *inputs_[i]; }
  const ExportedValue& output(int i) const { return *outputs_[i]; }
  int rank(int i) const { return static_cast<int>(inputs_[i]->type.dims.size()); }
  int64_t size(int i, int axis) const { return inputs_[i]->type.dims[axis].size; }
  DType dtype(int i) const { return inputs_[i]->type.dtype; }

  // Adds a node of ONNX and returns its result.
  std::string Add(const std::string& op, const std::vector<std::string>& inputs,
                  const NodeAttributes& attributes = {});
  // Adds the node of ONNX that computes result `i` of the node.
  void Result(int i, const std::string& op, const std::vector<std::string>& inputs,
              const NodeAttributes& attributes = {});

  std::string Real(double value) { return builder_->Number(value, DType::kF32); }
  std::string Ints(const std::vector<int64_t>& values) { return builder_->Ints(values); }
  ModelBuilder& builder() { return *builder_; }
  const std::string& name() const { return outputs_[0]->name; }

  // Returns x with sizes of 1 at `axes` of the result.
  std::string PutAxes(const std::string& x, const std::vector<int64_t>& axes);
  std::string Transposed(const std::string& x, int rank);  // its last two dimensions
  // Returns a list of one number: the size of dimension `axis` of input i when the model runs.
  std::string SizeOf(int i, int axis);
  // Returns a constant tensor cut to the size that dimension `of_axis` of input i has when the
  // model runs.
  std::string CutLike(const std::string& constant, int axis, int i, int of_axis);
  // Says that the translation needs the size of dimension `axis` of input i as a number.
  void Fixes(int i, int axis);

  // Fails with `problem`, which goes on after "node NAME (OP): ".
  void Fail(const std::string& problem);
  const std::string& problem() const { return problem_; }
  // The open dimensions that the node needs as numbers.
  const std::set<std::string>& fixed() const { return fixed_; }

  // Adds the node that gives input 0 the dimensions of the first result.
  void Reshape();

 private:
  void FindSizes();
  OpenSize SizeOfResult(const sbp::TensorDim& dim) const;
  std::vector<OpenSize> SizesOfText() const;

  const compiler::Node& node_;
  const OpenDims& open_;
  const std::vector<const ExportedValue*> inputs_;  // null: the node leaves the operand out
  const std::vector<ExportedValue*> outputs_;
  ModelBuilder* const builder_;
  std::string problem_;
  std::set<std::string> fixed_;
};

// Returns the function that translates an operation of Weir; null: ONNX does not have it.
using ExportFunction = void (*)(ExportNode&);
ExportFunction FindExport(const std::string& op);

// The names of all operations that FindExport knows.
std::vector<std::string> ExportedOps();

}  // namespace weir::onnx
