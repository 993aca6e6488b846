// Builds a model of ONNX node by node. Values are named tensors; the names are unique.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proto/onnx.pb.h"
#include "sbp/layout.h"

namespace weir::onnx {

// Attributes of a node of ONNX.
class NodeAttributes {
 public:
  NodeAttributes& Int(const std::string& name, int64_t value);
  NodeAttributes& Real(const std::string& name, double value);
  NodeAttributes& Text(const std::string& name, const std::string& value);
  NodeAttributes& Ints(const std::string& name, const std::vector<int64_t>& values);
  NodeAttributes& Value(const std::string& name, proto::OnnxTensor value);

  const std::vector<proto::OnnxAttribute>& list() const { return list_; }

 private:
  proto::OnnxAttribute& New(const std::string& name, int type);
  std::vector<proto::OnnxAttribute> list_;
};

class ModelBuilder {
 public:
  // The type of all integers of a model, but for shapes and axes, which are i64 in ONNX.
  enum class Integers : uint8_t { kI32, kI64 };
  ModelBuilder(const std::string& name, int64_t ir_version, int64_t opset, Integers integers);

  // Returns the name, or the name with a number if it is taken already.
  std::string TakeName(const std::string& wanted);

  // An open dimension has a symbol in place of a size.
  struct Dim {
    int64_t size = 0;
    std::string symbol;
  };
  // Returns the number of an element type in files of ONNX. All reals are f32.
  int ElementOf(DType dtype) const;

  // Names of these tensors must be taken.
  void AddInput(const std::string& name, DType dtype, const std::vector<Dim>& dims);
  void AddOutput(const std::string& name, DType dtype, const std::vector<Dim>& dims);
  void AddWeight(const std::string& name, const std::vector<int64_t>& shape);

  // Adds a node whose results are `outputs`, which must be taken.
  void AddNode(const std::string& op, const std::vector<std::string>& inputs,
               const std::vector<std::string>& outputs, const NodeAttributes& attributes);

  // Each returns the name of a constant. Equal constants are one.
  std::string Number(double value, DType dtype);  // without dimensions
  std::string Ints(const std::vector<int64_t>& values);
  std::string Reals(const std::string& wanted, const std::vector<float>& values,
                    const std::vector<int64_t>& shape);
  std::string Truths(const std::string& wanted, const std::vector<bool>& values,
                     const std::vector<int64_t>& shape);

  // Ends the model: constants go behind the weights.
  proto::OnnxModel Finish() &&;

 private:
  void Describe(const std::string& name, DType dtype, const std::vector<Dim>& dims,
                proto::OnnxValue* value);

  const Integers integers_;
  proto::OnnxModel model_;
  std::vector<proto::OnnxTensor> constants_;
  std::map<std::string, std::string> known_;  // constants by what they are
  std::set<std::string> taken_;
  std::map<std::string, int> next_;
};

}  // namespace weir::onnx
