#include "tests/onnx/graph_run.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ops/testing/layout_law.h"
#include "runtime/base/status.h"

namespace weir::onnx {
namespace {

constexpr uint64_t kSeed = 20;

ops::HostTensor FromTensor(const Tensor& tensor, const sbp::TensorType& type) {
  ops::HostTensor host(type);
  for (int64_t i = 0; i < tensor.size(); ++i) host.Set(i, tensor.number(i));
  return host;
}

// Returns the largest size of a finite element, and at least 1.
double LargestOf(const std::vector<ops::HostTensor>& tensors) {
  double largest = 1;
  for (const ops::HostTensor& tensor : tensors) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      if (std::isfinite(tensor.Get(i))) largest = std::max(largest, std::abs(tensor.Get(i)));
    }
  }
  return largest;
}

// Returns what breaks the law of layouts first, or "".
std::string Violation(const ops::LawSubject& subject) {
  const std::vector<sbp::AxisSignature> signatures = ops::UsableSignatures(subject);
  for (const char* text : {"a=2", "a=4"}) {
    const sbp::Mesh mesh = *sbp::Mesh::Parse(text);
    for (const sbp::AxisSignature& signature : signatures) {
      std::string violation = ops::LawViolation(subject, {signature}, mesh);
      if (!violation.empty()) return violation;
    }
  }
  const sbp::Mesh mesh = *sbp::Mesh::Parse("a=2,b=2");
  for (const sbp::AxisSignature& first : signatures) {
    for (const sbp::AxisSignature& second : signatures) {
      std::string violation = ops::LawViolation(subject, {first, second}, mesh);
      if (!violation.empty()) return violation;
    }
  }
  return "";
}

// Returns what legal layouts depend on: operation, attributes and types.
std::string OperationText(const GraphNode& node, const ops::OpExample& example) {
  std::string text = absl::StrCat(node.op, ToText(example.attrs));
  for (const sbp::TensorType& type : example.input_types) absl::StrAppend(&text, " ", ToText(type));
  return text;
}

}  // namespace

absl::StatusOr<std::vector<ops::HostTensor>> RunGraph(const WeirGraph& graph,
                                                      const std::map<std::string, Tensor>& inputs,
                                                      CoveredOperations* covered) {
  std::vector<ops::HostTensor> values;
  for (const GraphValue& value : graph.values) values.emplace_back(value.type);
  for (const GraphInput& input : graph.inputs) {
    const auto found = inputs.find(input.name);
    if (found == inputs.end())
      return absl::NotFoundError(absl::StrCat("no elements for input ", input.name));
    values[input.value] = FromTensor(found->second, graph.values[input.value].type);
  }
  for (const GraphParameter& parameter : graph.parameters) {
    std::optional<Tensor> decoded;
    if (parameter.stored != nullptr) {
      WEIR_ASSIGN_OR_RETURN(decoded,
                            Decode(*parameter.stored, {}, kWeightElementsMax, parameter.name));
    }
    values[parameter.value] = FromTensor(decoded.has_value() ? *decoded : *parameter.constant,
                                         graph.values[parameter.value].type);
  }
  for (const GraphNode& node : graph.nodes) {
    ops::OpExample example;
    example.def = ops::OpRegistry::Find(node.op);
    example.attrs = node.attrs;
    WEIR_RETURN_IF_ERROR(ops::CheckSchema(example.def->schema, static_cast<int>(node.inputs.size()),
                                          static_cast<int>(node.outputs.size()), &example.attrs,
                                          node.name));
    for (ValueId input : node.inputs) {
      example.input_types.push_back(graph.values[input].type);
      example.inputs.push_back(values[input]);
    }
    for (ValueId output : node.outputs) {
      example.output_types.push_back(graph.values[output].type);
      example.outputs.emplace_back(graph.values[output].type);
    }
    const Attributes attrs = example.attrs;
    auto subject =
        ops::MakeLawSubject(node.name, std::move(example), {node.op, attrs, 0, 0, kSeed, 1, {}});
    if (!subject.ok()) return At(absl::StrCat("node ", node.name), subject.status());
    // Partial operands round as numbers of their own size do, whatever their sum is.
    subject->tolerance = 5e-5 * LargestOf(subject->example.inputs);
    if (covered != nullptr && covered->insert(OperationText(node, subject->example)).second) {
      const std::string violation = Violation(*subject);
      if (!violation.empty())
        return absl::InternalError(absl::StrCat("layouts of ", node.op, ": ", violation));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) values[node.outputs[i]] = subject->whole[i];
  }
  return values;
}

std::string DifferenceFrom(const Tensor& expected, const ops::HostTensor& found) {
  if (found.size() != expected.size())
    return absl::StrCat(found.size(), " elements in place of ", expected.size());
  for (int64_t i = 0; i < expected.size(); ++i) {
    const double want = expected.number(i), got = found.Get(i);
    if ((std::isnan(want) && std::isnan(got)) || want == got) continue;
    if (!(std::abs(got - want) <= 1e-7 + 1e-3 * std::abs(want)))
      return absl::StrCat("element ", i, " is ", got, " in place of ", want);
  }
  return "";
}

}  // namespace weir::onnx
