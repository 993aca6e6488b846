// A Translation is one node of ONNX on its way to operations of Weir: the operands and attributes
// of the node, and the operations that replace the node.
//
// The first failure stays: after it, functions return harmless values (-1, empty lists, 0) and
// change nothing, so a translation reads like a formula and checks ok() only before it looks into
// shapes. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/onnx/weir_graph.h"

namespace weir::onnx {

// An Operand is a tensor of the ONNX graph: a value of Weir's graph, a weight, or a tensor whose
// elements are known.
struct Operand {
  Element element = Element::kF32;
  std::vector<int64_t> shape;
  ValueId value = -1;                      // in Weir's graph, once an operation reads the operand
  std::shared_ptr<const Tensor> constant;  // null: not known
  const proto::OnnxTensor* weight = nullptr;  // a weight that is trained
  bool failed = false;                        // of a node that has no translation
};

class Translation {
 public:
  // `results` has one operand per output of the node. All references must outlive the translation.
  Translation(const proto::OnnxNode& node, std::string name, int64_t opset,
              std::vector<Operand*> inputs, WeirGraph* graph);

  const proto::OnnxNode& node() const { return node_; }
  int64_t opset() const { return opset_; }

  bool ok() const { return problem_.empty(); }
  const std::string& problem() const { return problem_; }
  // `problem` goes on after "node NAME (OP): ".
  void Fail(const std::string& problem);

  // ---- attributes
  bool HasAttr(const std::string& name) const { return Attr(name) != nullptr; }
  const proto::OnnxAttribute* Attr(const std::string& name) const;
  int64_t Int(const std::string& name, int64_t fallback) const;
  double Real(const std::string& name, double fallback) const;
  std::string Str(const std::string& name, const std::string& fallback) const;
  std::vector<int64_t> Ints(const std::string& name) const;

  // ---- operands
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  bool Has(int i) const { return i < num_inputs() && inputs_[i] != nullptr; }
  // Returns operand i. A missing operand is a failure.
  const Operand& input(int i);
  // Returns operand i as a value of Weir's graph: weights and constants become parameters. `X`
  // wants real numbers, `Any` takes integers, too.
  ValueId X(int i);
  ValueId Any(int i);
  // Returns operand i, real numbers that training leaves alone even where the file has a weight.
  ValueId Untrained(int i);
  // Returns operand i, a weight of the file that training updates as a moving average; -1 if the
  // operand is no weight.
  ValueId Average(int i);
  // Returns the known elements of operand i; fails if they are not known.
  const Tensor* Known(int i);
  std::vector<int64_t> KnownInts(int i);
  // Returns the only element of operand i if it is known and real, else null.
  const Tensor* KnownNumber(int i) const;

  // ---- operations of Weir
  std::vector<int64_t> shape(ValueId value) const;
  int rank(ValueId value) const { return static_cast<int>(shape(value).size()); }
  std::vector<ValueId> AddAll(const std::string& op, std::vector<ValueId> inputs, Attributes attrs,
                              int num_outputs);
  ValueId Add(const std::string& op, std::vector<ValueId> inputs, Attributes attrs = {});
  ValueId Constant(std::vector<float> values, std::vector<int64_t> shape);
  ValueId Number(double value) { return Constant({static_cast<float>(value)}, {1}); }
  ValueId Scaled(ValueId x, double factor);
  ValueId Plus(ValueId x, double addend);
  ValueId Reshape(ValueId x, std::vector<int64_t> shape);
  ValueId Permute(ValueId x, std::vector<int64_t> perm);
  // Returns x with sizes of 1 repeated up to `shape`. The ranks are equal.
  ValueId Expand(ValueId x, const std::vector<int64_t>& shape);
  // Returns x with elements of one value before and after it along an axis.
  ValueId Padded(ValueId x, int axis, int64_t before, int64_t after, float value);
  // Returns the elements of x at `indices` along an axis.
  ValueId Take(ValueId x, int axis, const std::vector<int64_t>& indices);
  // Reduces x over axes, each of which stays with size 1 if `keep`.
  enum class Axes : uint8_t { kKept, kDropped };
  ValueId Reduce(const std::string& op, ValueId x, const std::vector<int64_t>& axes, Axes kept);
  // Returns x with `axis` as its last dimension, and the inverse.
  ValueId ToLast(ValueId x, int axis);
  ValueId FromLast(ValueId x, int axis);

  // Returns an axis from 0; fails if a tensor of `rank` has no such axis.
  int Axis(int64_t axis, int rank);

  // ---- results
  void Result(ValueId value) { Result(0, value); }
  void Result(int output, ValueId value);
  void ResultConstant(int output, Tensor tensor);
  // The result is operand i itself.
  void ResultInput(int output, int i);
  // The results in order; outputs without one have `failed` set.
  std::vector<Operand>& results() { return results_; }

 private:
  ValueId Read(int i, bool integers);
  ValueId CastConstant(const Tensor& constant);

  const proto::OnnxNode& node_;
  const std::string name_;
  const int64_t opset_;
  const std::vector<Operand*> inputs_;  // null: the node leaves the operand out
  WeirGraph* const graph_;
  std::string problem_;
  std::vector<Operand> results_;
};

// A row says how one operation of ONNX is translated.
struct Row {
  const char* op;
  int since;  // the first version of ONNX's operations whose meaning the translation has
  void (*translate)(Translation&);
};
// Returns the row of an operation, or null.
const Row* FindRow(const std::string& op);

// The rows, by subject.
std::vector<Row> ElementwiseRows();
std::vector<Row> MovementRows();
std::vector<Row> ProductRows();
std::vector<Row> ReductionRows();
std::vector<Row> WindowRows();
std::vector<Row> MaskRows();
std::vector<Row> IndexRows();
std::vector<Row> AttentionRows();
std::vector<Row> LossRows();
std::vector<Row> ResizeRows();

// Computes a node whose operands are all known. Returns false if the importer does not compute the
// operation; a failure is in the translation.
bool Fold(Translation& t);

}  // namespace weir::onnx
