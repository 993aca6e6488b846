// Writes exported models.
#include <cstring>
#include <filesystem>
#include <memory>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/names_beside.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/replaced_files.h"
#include "runtime/store/whole_file.h"
#include "tools/onnx/export_model.h"

namespace weir::onnx {
namespace {

namespace fs = std::filesystem;

int64_t BytesOf(const ExportedWeight& weight) {
  return NumElements(weight.shape) * static_cast<int64_t>(sizeof(float));
}

void AddEntry(const std::string& key, const std::string& value, proto::OnnxTensor* tensor) {
  proto::OnnxEntry* entry = tensor->add_external();
  entry->set_key(key);
  entry->set_value(value);
}

// Gives a model and its weights their names. A model is never beside the weights of another one:
// the earlier files are set aside before, the model first, and come back if the disk refuses.
absl::Status CommitBoth(const std::string& path, store::SealedFile* model,
                        const std::string& data_path, store::SealedFile* data) {
  for (const std::string& each : {path, data_path}) {
    if (const int error = store::PendingFile::Try(each))  // nothing is renamed yet
      return store::CannotWrite(each, "cannot make a file there", error);
  }
  store::ReplacedFiles replaced;
  size_t num_published = 0;
  const auto replace = [&]() -> absl::Status {
    for (std::string target : {path, data_path}) {
      store::FollowLinks(&target);
      if (const int error = replaced.SetAside(target))
        return store::CannotWrite(target, "cannot rename the file of the earlier export", error);
    }
    ++num_published;
    WEIR_RETURN_IF_ERROR(data->Commit());
    ++num_published;
    return model->Commit();
  };
  const absl::Status done = replace();
  if (!done.ok()) return replaced.GoBack(done, {data_path, path}, num_published);
  replaced.Drop();  // what stays, the next export removes
  return absl::OkStatus();
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
                        const std::string& path, const store::PathLock& lock) {
  const bool beside = IsBeside(exported, place);
  const std::string data_path = absl::StrCat(path, ".data");
  // Without locks, what lies beside the path may be of an export that goes on.
  if (lock.excludes_others())
    WEIR_RETURN_IF_ERROR(store::ReplacedFiles::ClearUp(path, {data_path}));
  int64_t offset = 0;
  // Puts the weights into the model if `data` is null.
  const auto put = [&](std::ostream* data) -> absl::Status {
    for (size_t i = 0; i < exported.weights.size(); ++i) {
      const ExportedWeight& weight = exported.weights[i];
      proto::OnnxTensor* tensor =
          exported.model.mutable_graph()->mutable_initializer(static_cast<int>(i));
      std::string bytes(BytesOf(weight), '\0');
      std::vector<float> numbers(NumElements(weight.shape));
      WEIR_RETURN_IF_ERROR(source(weight, numbers.data()));
      std::memcpy(bytes.data(), numbers.data(), bytes.size());
      if (data == nullptr) {
        tensor->set_raw(std::move(bytes));
        continue;
      }
      data->write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      tensor->set_place(1);
      AddEntry("location", fs::path(data_path).filename().string(), tensor);
      AddEntry("offset", absl::StrCat(offset), tensor);
      AddEntry("length", absl::StrCat(bytes.size()), tensor);
      offset += static_cast<int64_t>(bytes.size());
    }
    return absl::OkStatus();
  };
  std::unique_ptr<store::SealedFile> data;
  if (beside) {
    WEIR_ASSIGN_OR_RETURN(
        data, store::SealedFile::Seal(data_path, [&](std::ostream& out) { return put(&out); }));
  } else {
    WEIR_RETURN_IF_ERROR(put(nullptr));
  }
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SealedFile> model,
                        store::SealedFile::Seal(path, [&](std::ostream& out) {
                          out << exported.model.SerializeAsString();
                          return absl::OkStatus();
                        }));
  return beside ? CommitBoth(path, model.get(), data_path, data.get()) : model->Commit();
}

}  // namespace weir::onnx
