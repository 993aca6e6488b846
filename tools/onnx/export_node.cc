#include "tools/onnx/export_node.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weir::onnx {
namespace {

// Returns the names of an item such as "batch*sequence", "heads=4/1".
std::vector<std::string> NamesOf(absl::string_view item) {
  const std::vector<std::string> parts = absl::StrSplit(item, '=');
  std::vector<std::string> names;
  for (absl::string_view name : absl::StrSplit(parts[0], '*'))
    names.emplace_back(absl::StripAsciiWhitespace(name));
  return names;
}

// Returns all open dimensions of a shape, sorted, and the product of its numbers.
OpenSize Product(const std::vector<OpenSize>& sizes) {
  OpenSize all;
  for (const OpenSize& size : sizes) {
    all.factor *= size.factor;
    all.open.insert(all.open.end(), size.open.begin(), size.open.end());
  }
  std::sort(all.open.begin(), all.open.end());
  return all;
}

}  // namespace

ExportNode::ExportNode(const compiler::Node& node, const OpenDims& open,
                       std::vector<const ExportedValue*> inputs,
                       std::vector<ExportedValue*> outputs, ModelBuilder* builder)
    : node_(node),
      open_(open),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      builder_(builder) {
  FindSizes();
}

void ExportNode::FindSizes() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    ExportedValue& output = *outputs_[i];
    output.sizes.clear();
    if (node_.op == "reshape") {
      output.sizes = SizesOfText();
      continue;
    }
    for (const sbp::TensorDim& dim : output.type.dims) output.sizes.push_back(SizeOfResult(dim));
  }
}

// A dimension of a result is open if an operand has it open.
OpenSize ExportNode::SizeOfResult(const sbp::TensorDim& dim) const {
  for (const ExportedValue* input : inputs_) {
    if (input == nullptr) continue;
    for (size_t d = 0; d < input->type.dims.size(); ++d) {
      const sbp::TensorDim& other = input->type.dims[d];
      if (other.name == dim.name && other.size == dim.size && input->sizes[d].is_open())
        return input->sizes[d];
    }
  }
  return {dim.size, {}};
}

// The text of a reshape says which dimensions a product is made of.
std::vector<OpenSize> ExportNode::SizesOfText() const {
  const std::vector<sbp::TensorDim>& dims = outputs_[0]->type.dims;
  std::vector<std::string> items;
  const std::string text = attrs().Str("to");
  if (!text.empty()) items = absl::StrSplit(text, ',');
  std::vector<OpenSize> sizes;
  for (size_t d = 0; d < dims.size(); ++d) {
    OpenSize size{dims[d].size, {}};
    if (d < items.size()) {
      for (const std::string& name : NamesOf(items[d])) {
        const auto found = open_.find(name);
        if (found == open_.end() || size.factor % found->second.size != 0) continue;
        size.factor /= found->second.size;
        size.open.push_back(name);
      }
    }
    sizes.push_back(std::move(size));
  }
  return sizes;
}

std::string ExportNode::Add(const std::string& op, const std::vector<std::string>& inputs,
                            const NodeAttributes& attributes) {
  const std::string name = builder_->TakeName(absl::StrCat(outputs_[0]->name, ".", op));
  builder_->AddNode(op, inputs, {name}, attributes);
  return name;
}

void ExportNode::Result(int i, const std::string& op, const std::vector<std::string>& inputs,
                        const NodeAttributes& attributes) {
  builder_->AddNode(op, inputs, {outputs_[i]->name}, attributes);
}

std::string ExportNode::PutAxes(const std::string& x, const std::vector<int64_t>& axes) {
  return axes.empty() ? x : Add("Unsqueeze", {x, Ints(axes)});
}

std::string ExportNode::Transposed(const std::string& x, int rank) {
  std::vector<int64_t> perm;
  for (int64_t d = 0; d < rank; ++d) perm.push_back(d);
  std::swap(perm[rank - 2], perm[rank - 1]);
  return Add("Transpose", {x}, NodeAttributes().Ints("perm", perm));
}

std::string ExportNode::SizeOf(int i, int axis) {
  return Add("Shape", {In(i)}, NodeAttributes().Int("start", axis).Int("end", axis + 1));
}

std::string ExportNode::CutLike(const std::string& constant, int axis, int i, int of_axis) {
  if (!input(i).sizes[of_axis].is_open()) return constant;
  return Add("Slice", {constant, Ints({0}), SizeOf(i, of_axis), Ints({axis})});
}

void ExportNode::Fixes(int i, int axis) {
  const OpenSize& size = inputs_[i]->sizes[axis];
  fixed_.insert(size.open.begin(), size.open.end());
}

void ExportNode::Fail(const std::string& problem) {
  if (problem_.empty()) problem_ = problem;
}

void ExportNode::Reshape() {
  const std::vector<OpenSize>&from = input(0).sizes, &to = output(0).sizes;
  if (Product(from) != Product(to)) {
    // An open dimension comes from a number or goes into one.
    for (const std::vector<OpenSize>* sizes : {&from, &to}) {
      for (const OpenSize& size : *sizes) fixed_.insert(size.open.begin(), size.open.end());
    }
    return;
  }
  std::vector<int64_t> target;
  int unknown = 0;
  for (size_t d = 0; d < to.size(); ++d) {
    if (!to[d].is_open()) {
      target.push_back(to[d].factor);
    } else if (d < from.size() && from[d] == to[d]) {
      target.push_back(0);  // as in the operand
    } else {
      target.push_back(-1);  // what remains
      ++unknown;
    }
  }
  if (unknown <= 1) return Result(0, "Reshape", {In(0), Ints(target)});
  // Each size is a product of sizes that inputs of the model have.
  std::vector<std::string> parts;
  for (const OpenSize& size : to) {
    std::string part = Ints({size.factor});
    for (const std::string& name : size.open) {
      const OpenDim& dim = open_.at(name);
      if (dim.input.empty()) {
        fixed_.insert(name);
        return;
      }
      const std::string open = Add(
          "Shape", {dim.input}, NodeAttributes().Int("start", dim.axis).Int("end", dim.axis + 1));
      part = size.factor == 1 && size.open.size() == 1 ? open : Add("Mul", {part, open});
    }
    parts.push_back(part);
  }
  Result(0, "Reshape", {In(0), Add("Concat", parts, NodeAttributes().Int("axis", 0))});
}

}  // namespace weir::onnx
