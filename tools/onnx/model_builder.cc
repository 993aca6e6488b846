#include "tools/onnx/model_builder.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/onnx/tensor.h"

namespace weir::onnx {
namespace {

// Types of attributes by their numbers in ONNX.
constexpr int kRealAttribute = 1, kIntAttribute = 2, kTextAttribute = 3, kTensorAttribute = 4,
              kIntsAttribute = 7;

}  // namespace

proto::OnnxAttribute& NodeAttributes::New(const std::string& name, int type) {
  proto::OnnxAttribute& added = list_.emplace_back();
  added.set_name(name);
  added.set_type(type);
  return added;
}

NodeAttributes& NodeAttributes::Int(const std::string& name, int64_t value) {
  New(name, kIntAttribute).set_i(value);
  return *this;
}

NodeAttributes& NodeAttributes::Real(const std::string& name, double value) {
  New(name, kRealAttribute).set_f(static_cast<float>(value));
  return *this;
}

NodeAttributes& NodeAttributes::Text(const std::string& name, const std::string& value) {
  New(name, kTextAttribute).set_s(value);
  return *this;
}

NodeAttributes& NodeAttributes::Ints(const std::string& name, const std::vector<int64_t>& values) {
  proto::OnnxAttribute& added = New(name, kIntsAttribute);
  for (int64_t value : values) added.add_ints(value);
  return *this;
}

NodeAttributes& NodeAttributes::Value(const std::string& name, proto::OnnxTensor value) {
  *New(name, kTensorAttribute).mutable_t() = std::move(value);
  return *this;
}

ModelBuilder::ModelBuilder(const std::string& name, int64_t ir_version, int64_t opset,
                           Integers integers)
    : integers_(integers) {
  model_.set_ir_version(ir_version);
  model_.set_producer("weir");
  model_.add_opset()->set_version(opset);
  model_.mutable_graph()->set_name(name);
}

int ModelBuilder::ElementOf(DType dtype) const {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16: return static_cast<int>(Element::kF32);
    case DType::kI32:
      return static_cast<int>(integers_ == Integers::kI64 ? Element::kI64 : Element::kI32);
    case DType::kBool: return static_cast<int>(Element::kBool);
  }
  return static_cast<int>(Element::kUndefined);
}

std::string ModelBuilder::TakeName(const std::string& wanted) {
  std::string name = wanted.empty() ? "value" : wanted;
  for (int& n = next_[name]; !taken_.insert(name).second;)
    name = absl::StrCat(wanted.empty() ? "value" : wanted, "_", ++n + 1);
  return name;
}

void ModelBuilder::Describe(const std::string& name, DType dtype, const std::vector<Dim>& dims,
                            proto::OnnxValue* value) {
  value->set_name(name);
  proto::OnnxTensorType* type = value->mutable_type()->mutable_tensor();
  type->set_element(ElementOf(dtype));
  type->mutable_shape();  // a number has a shape without dimensions
  for (const Dim& dim : dims) {
    proto::OnnxDim* added = type->mutable_shape()->add_dim();
    if (dim.symbol.empty())
      added->set_size(dim.size);
    else
      added->set_symbol(dim.symbol);
  }
}

void ModelBuilder::AddInput(const std::string& name, DType dtype, const std::vector<Dim>& dims) {
  Describe(name, dtype, dims, model_.mutable_graph()->add_input());
}

void ModelBuilder::AddOutput(const std::string& name, DType dtype, const std::vector<Dim>& dims) {
  Describe(name, dtype, dims, model_.mutable_graph()->add_output());
}

void ModelBuilder::AddWeight(const std::string& name, const std::vector<int64_t>& shape) {
  proto::OnnxTensor* weight = model_.mutable_graph()->add_initializer();
  weight->set_name(name);
  weight->set_type(static_cast<int>(Element::kF32));
  for (int64_t size : shape) weight->add_dims(size);
}

void ModelBuilder::AddNode(const std::string& op, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs,
                           const NodeAttributes& attributes) {
  proto::OnnxNode* node = model_.mutable_graph()->add_node();
  node->set_op(op);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  if (!outputs.empty()) node->set_name(outputs[0]);
  for (const proto::OnnxAttribute& attribute : attributes.list())
    *node->add_attribute() = attribute;
}

std::string ModelBuilder::Number(double value, DType dtype) {
  const int element = ElementOf(dtype);
  const std::string key =
      absl::StrCat("number ", element, " ", absl::Hex(absl::bit_cast<uint64_t>(value)));
  std::string& name = known_[key];
  if (!name.empty()) return name;
  name = TakeName(absl::StrCat("number_", constants_.size()));
  proto::OnnxTensor& tensor = constants_.emplace_back();
  tensor.set_name(name);
  tensor.set_type(element);
  if (element == static_cast<int>(Element::kF32))
    tensor.add_floats(static_cast<float>(value));
  else if (element == static_cast<int>(Element::kI64))
    tensor.add_longs(static_cast<int64_t>(value));
  else
    tensor.add_ints(static_cast<int32_t>(value));
  return name;
}

std::string ModelBuilder::Ints(const std::vector<int64_t>& values) {
  std::string& name = known_[absl::StrCat("ints ", absl::StrJoin(values, ","))];
  if (!name.empty()) return name;
  name = TakeName(absl::StrCat("ints_", constants_.size()));
  proto::OnnxTensor& tensor = constants_.emplace_back();
  tensor.set_name(name);
  tensor.set_type(static_cast<int>(Element::kI64));
  tensor.add_dims(static_cast<int64_t>(values.size()));
  for (int64_t value : values) tensor.add_longs(value);
  return name;
}

std::string ModelBuilder::Reals(const std::string& wanted, const std::vector<float>& values,
                                const std::vector<int64_t>& shape) {
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string& name = known_[absl::StrCat("reals ", absl::StrJoin(shape, ","), " ", bytes)];
  if (!name.empty()) return name;
  name = TakeName(wanted);
  proto::OnnxTensor& tensor = constants_.emplace_back();
  tensor.set_name(name);
  tensor.set_type(static_cast<int>(Element::kF32));
  for (int64_t size : shape) tensor.add_dims(size);
  tensor.set_raw(std::move(bytes));
  return name;
}

std::string ModelBuilder::Truths(const std::string& wanted, const std::vector<bool>& values,
                                 const std::vector<int64_t>& shape) {
  std::string bytes;
  for (const bool value : values) bytes += static_cast<char>(value ? 1 : 0);
  std::string& name = known_[absl::StrCat("truths ", absl::StrJoin(shape, ","), " ", bytes)];
  if (!name.empty()) return name;
  name = TakeName(wanted);
  proto::OnnxTensor& tensor = constants_.emplace_back();
  tensor.set_name(name);
  tensor.set_type(static_cast<int>(Element::kBool));
  for (int64_t size : shape) tensor.add_dims(size);
  tensor.set_raw(std::move(bytes));
  return name;
}

// Tables of reals are nodes and no initializers, which whoever trains the model takes for weights.
proto::OnnxModel ModelBuilder::Finish() && {
  proto::OnnxGraph& graph = *model_.mutable_graph();
  const int num_nodes = graph.node_size();
  for (proto::OnnxTensor& constant : constants_) {
    const bool is_table =
        constant.type() == static_cast<int>(Element::kF32) && constant.dims_size() > 0;
    if (!is_table) {
      *graph.add_initializer() = std::move(constant);
      continue;
    }
    const std::string name = constant.name();
    AddNode("Constant", {}, {name}, NodeAttributes().Value("value", std::move(constant)));
  }
  // A node stands before those that read it.
  std::rotate(graph.mutable_node()->pointer_begin(),
              std::next(graph.mutable_node()->pointer_begin(), num_nodes),
              graph.mutable_node()->pointer_end());
  return std::move(model_);
}

}  // namespace weir::onnx
