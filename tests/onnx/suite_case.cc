#include "tests/onnx/suite_case.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "tools/onnx/import_model.h"
#include "tools/onnx/model_file.h"

namespace weir::onnx {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<Tensor> ReadTensor(const std::string& path) {
  WEIR_ASSIGN_OR_RETURN(const auto file, store::MappedFile::Open(path, "tensor"));
  WEIR_ASSIGN_OR_RETURN(const proto::OnnxTensor tensor,
                        ParseTensor(file->text(), fs::path(path).filename().string()));
  return Decode(tensor, {}, kFoldedElementsMax, fs::path(path).filename().string());
}

// Returns the inputs of the graph that are no initializers.
std::vector<const proto::OnnxValue*> FreeInputs(const proto::OnnxGraph& graph) {
  std::vector<const proto::OnnxValue*> inputs;
  for (const proto::OnnxValue& input : graph.input()) {
    bool given = false;
    for (const proto::OnnxTensor& tensor : graph.initializer())
      given = given || tensor.name() == input.name();
    if (!given) inputs.push_back(&input);
  }
  return inputs;
}

// Returns what kept a status from being ok, on one line and without the advice.
std::string ReasonOf(const absl::Status& status) {
  std::string text(status.message());
  text = text.substr(0, text.rfind(". Try: "));
  const size_t expected = text.find("expected "), found = text.find("; found ");
  if (absl::StartsWith(text, "W0833") && found != std::string::npos)
    text = text.substr(found + 8);
  else if (absl::StartsWith(text, "W") && expected != std::string::npos)
    text = text.substr(expected);
  return absl::StrReplaceAll(text, {{"\n", " "}});
}

absl::StatusOr<CaseResult::Kind> Run(const SuiteCase& suite_case, CoveredOperations* covered) {
  ImportOptions options;
  for (const proto::OnnxValue* input : FreeInputs(suite_case.model.graph())) {
    const auto& dims = input->type().tensor().shape();
    for (int d = 0; d < dims.dim_size(); ++d) {
      if (dims.dim(d).kind_case() != proto::OnnxDim::kSize)
        options.dims[absl::StrCat(input->name(), "[", d, "]")] =
            suite_case.inputs.at(input->name()).shape[d];
    }
  }
  WEIR_ASSIGN_OR_RETURN(const Lowered lowered, Lower(suite_case.model, options));
  WEIR_ASSIGN_OR_RETURN(const std::vector<ops::HostTensor> values,
                        RunGraph(lowered.graph, suite_case.inputs, covered));
  bool folded = true;
  for (size_t i = 0; i < lowered.outputs.size() && i < suite_case.outputs.size(); ++i) {
    const LoweredOutput& output = lowered.outputs[i];
    std::string difference;
    std::vector<int64_t> shape;
    if (output.constant != nullptr) {
      sbp::TensorType type{output.constant->is_real() ? DType::kF32 : DType::kI32, {}};
      for (int64_t size : output.constant->shape)
        type.dims.push_back({absl::StrCat("n", size), size, 1});
      ops::HostTensor host(type);
      for (int64_t k = 0; k < output.constant->size(); ++k) host.Set(k, output.constant->number(k));
      difference = DifferenceFrom(suite_case.outputs[i], host);
      shape = output.constant->shape;
    } else {
      folded = false;
      difference = DifferenceFrom(suite_case.outputs[i], values[output.value]);
      shape = lowered.graph.shape(output.value);
    }
    if (shape != suite_case.outputs[i].shape) difference = "another shape";
    if (!difference.empty())
      return absl::InternalError(absl::StrCat("output ", output.name, ": ", difference));
  }
  return folded ? CaseResult::Kind::kFolded : CaseResult::Kind::kPass;
}

}  // namespace

absl::StatusOr<SuiteCase> ReadSuiteCase(const std::string& folder) {
  SuiteCase read;
  WEIR_ASSIGN_OR_RETURN(read.model, ReadModelFile(folder + "/model.onnx"));
  const std::string data = folder + "/test_data_set_0/";
  const std::vector<const proto::OnnxValue*> inputs = FreeInputs(read.model.graph());
  for (size_t i = 0; i < inputs.size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(absl::StrCat(data, "input_", i, ".pb")));
    if (inputs[i]->type().tensor().shape().dim_size() != static_cast<int>(tensor.shape.size()))
      return absl::InvalidArgumentError(
          absl::StrCat("input ", inputs[i]->name(), " has no fixed rank"));
    read.inputs.emplace(inputs[i]->name(), std::move(tensor));
  }
  for (int i = 0; i < read.model.graph().output_size(); ++i) {
    WEIR_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(absl::StrCat(data, "output_", i, ".pb")));
    read.outputs.push_back(std::move(tensor));
  }
  return read;
}

bool FixIntegers(SuiteCase* suite_case) {
  bool any = false;
  for (const auto& [name, tensor] : suite_case->inputs) {
    if (tensor.is_real()) continue;
    any = true;
    proto::OnnxTensor* fixed = suite_case->model.mutable_graph()->add_initializer();
    fixed->set_name(name);
    fixed->set_type(static_cast<int>(tensor.element));
    for (int64_t size : tensor.shape) fixed->add_dims(size);
    for (int64_t value : tensor.integers) {
      if (tensor.element == Element::kI64)
        fixed->add_longs(value);
      else if (tensor.element == Element::kU32 || tensor.element == Element::kU64)
        fixed->add_unsigned_longs(static_cast<uint64_t>(value));
      else
        fixed->add_ints(static_cast<int32_t>(value));
    }
  }
  return any;
}

CaseResult RunSuiteCase(const std::string& folder, CoveredOperations* covered) {
  auto read = ReadSuiteCase(folder);
  if (!read.ok()) return {CaseResult::Kind::kFail, ReasonOf(read.status())};
  auto live = Run(*read, covered);
  if (live.ok()) return {*live, ""};
  if (!FixIntegers(&*read)) return {CaseResult::Kind::kFail, ReasonOf(live.status())};
  auto fixed = Run(*read, covered);
  if (!fixed.ok()) return {CaseResult::Kind::kFail, ReasonOf(fixed.status())};
  return {*fixed == CaseResult::Kind::kPass ? CaseResult::Kind::kConstants : *fixed, ""};
}

std::string LineOf(const CaseResult& result) {
  switch (result.kind) {
    case CaseResult::Kind::kPass: return "pass";
    case CaseResult::Kind::kConstants: return "pass, integers as constants";
    case CaseResult::Kind::kFolded: return "pass, computed at import";
    case CaseResult::Kind::kFail: break;
  }
  return absl::StrCat("no: ", result.reason);
}

}  // namespace weir::onnx
