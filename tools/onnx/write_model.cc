// Writes exported models.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/pending_file.h"
#include "tools/onnx/export_model.h"

namespace weir::onnx {
namespace {

namespace fs = std::filesystem;

int64_t BytesOf(const ExportedWeight& weight) {
  return NumElements(weight.shape) * static_cast<int64_t>(sizeof(float));
}

absl::Status WriteAll(store::PendingFile& file, const std::string& path, const char* bytes,
                      size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = write(file.descriptor(), bytes + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return store::CannotWrite(path, "model", errno);
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

void AddEntry(const std::string& key, const std::string& value, proto::OnnxTensor* tensor) {
  proto::OnnxEntry* entry = tensor->add_external();
  entry->set_key(key);
  entry->set_value(value);
}

}  // namespace

bool IsBeside(const ExportedModel& exported, WeightPlace place) {
  int64_t bytes = 0;
  for (const ExportedWeight& weight : exported.weights) {
    bytes += BytesOf(weight);
    if (bytes > kModelWeightBytesMax) return true;
  }
  return place == WeightPlace::kBeside && bytes > 0;
}

absl::Status WriteModel(ExportedModel exported, WeightPlace place, const WeightSource& source,
                        const std::string& path) {
  const bool beside = IsBeside(exported, place);
  const std::string data_path = absl::StrCat(path, ".data");
  store::PendingFile data, model;
  if (beside) {
    if (const int error = data.Create(data_path))
      return store::CannotWrite(data_path, "weights", error);
  }
  if (const int error = model.Create(path)) return store::CannotWrite(path, "model", error);
  int64_t offset = 0;
  for (size_t i = 0; i < exported.weights.size(); ++i) {
    const ExportedWeight& weight = exported.weights[i];
    proto::OnnxTensor* tensor =
        exported.model.mutable_graph()->mutable_initializer(static_cast<int>(i));
    std::string bytes(BytesOf(weight), '\0');
    std::vector<float> numbers(NumElements(weight.shape));
    WEIR_RETURN_IF_ERROR(source(weight, numbers.data()));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    if (!beside) {
      tensor->set_raw(std::move(bytes));
      continue;
    }
    WEIR_RETURN_IF_ERROR(WriteAll(data, data_path, bytes.data(), bytes.size()));
    tensor->set_place(1);
    AddEntry("location", fs::path(data_path).filename().string(), tensor);
    AddEntry("offset", absl::StrCat(offset), tensor);
    AddEntry("length", absl::StrCat(bytes.size()), tensor);
    offset += static_cast<int64_t>(bytes.size());
  }
  const std::string text = exported.model.SerializeAsString();
  WEIR_RETURN_IF_ERROR(WriteAll(model, path, text.data(), text.size()));
  if (beside) {
    if (const int error = data.Publish()) return store::CannotWrite(data_path, "weights", error);
  }
  if (const int error = model.Publish()) return store::CannotWrite(path, "model", error);
  return absl::OkStatus();
}

}  // namespace weir::onnx
