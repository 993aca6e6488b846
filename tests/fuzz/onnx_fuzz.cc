// Bytes of anybody as a model of ONNX: the model is imported, or refused with a code.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "tools/onnx/import_model.h"
#include "tools/onnx/model_file.h"

namespace {

// Ends the program if a refusal has no code.
void ExpectCode(const absl::Status& status) {
  if (status.ok() || absl::StartsWith(status.message(), "W")) return;
  std::fprintf(stderr, "an error without a code: %s\n", std::string(status.message()).c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto model = weir::onnx::ParseModel(bytes, "fuzz.onnx");
  ExpectCode(model.status());
  if (!model.ok()) return 0;
  for (const char* loss : {"cross_entropy", ""}) {
    weir::onnx::ImportOptions options;
    options.loss = loss;
    // Every open dimension gets a size.
    for (const weir::proto::OnnxValue& input : model->graph().input()) {
      for (const weir::proto::OnnxDim& dim : input.type().tensor().shape().dim()) {
        if (!dim.symbol().empty()) options.dims[dim.symbol()] = 3;
      }
    }
    ExpectCode(weir::onnx::ImportModel(*model, options).status());
  }
  return 0;
}
