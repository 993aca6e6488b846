#include "tools/checkpoint/export_safetensors.h"

#include <filesystem>
#include <map>
#include <memory>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/whole_file.h"
#include "tools/checkpoint/rewrite.h"
#include "tools/checkpoint/tensor_pieces.h"
#include "tools/weights/convert_weights.h"

namespace weir::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr char kEnding[] = ".safetensors";
// An average is named WEIGHT/average (Training::average of proto/job.proto).
constexpr char kAverageEnding[] = "/average";

// Puts the average of each weight that has one in the place of the weight.
absl::Status TakeAverages(const OpenTensors& from, std::map<std::string, NewTensor>* tensors) {
  int taken = 0;
  for (auto& [name, tensor] : *tensors) {
    if (tensor.owner != store::StateOwner::kWeight) continue;
    const auto average = tensors->find(absl::StrCat(name, kAverageEnding));
    if (average == tensors->end()) continue;
    tensor = average->second;
    tensor.owner = store::StateOwner::kWeight;
    ++taken;
  }
  if (taken == 0) {
    return Rejected({"W0084", from.reader->path(), "averages of weights", "none",
                     "a run with training { average {} }, or no --average"});
  }
  // The first update sets the averages; before, they are zeros.
  if (from.facts.optimizer_step > 0) return absl::OkStatus();
  return Rejected({"W0084", from.reader->path(), "averages of at least one update",
                   absl::StrCat("step ", from.facts.step, ", before the first update"),
                   "a later checkpoint, or no --average"});
}

int64_t BytesOf(const NewTensor& tensor) {
  return TensorSlice::Whole(tensor.dtype, tensor.shape).bytes();
}

absl::Status WriteFile(const std::string& path, const std::map<std::string, NewTensor>& tensors,
                       const std::vector<std::string>& names, const store::Metadata& metadata) {
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const std::string& name : names)
    entries.push_back({name, tensors.at(name).dtype, tensors.at(name).shape});
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsWriter> writer,
                        store::SafetensorsWriter::Create(path, std::move(entries), metadata));
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsPart> part,
                        store::SafetensorsPart::Open(writer->temporary_path(), path));
  std::string bytes;
  for (const std::string& name : names) {
    const NewTensor& tensor = tensors.at(name);
    const absl::Status copied =
        ForEachPiece(TensorSlice::Whole(tensor.dtype, tensor.shape), [&](const TensorSlice& piece) {
          bytes.resize(static_cast<size_t>(piece.bytes()));
          const absl::Status read = tensor.from->Read(tensor.source, piece, bytes.data());
          return read.ok() ? part->Write(name, piece, bytes.data()) : read;
        });
    WEIR_RETURN_IF_ERROR(copied);
    WEIR_RETURN_IF_ERROR(writer->NotePart(name, NumElements(tensor.shape)));
  }
  WEIR_RETURN_IF_ERROR(part->Flush());
  return writer->Commit();
}

// An export of weights is no checkpoint, nor is one of all states that comes from weights alone.
store::Metadata MetadataOf(const OpenTensors& from, ExportOrder::What what) {
  return what == ExportOrder::What::kAll && store::IsOfCheckpoint(from.reader->metadata())
             ? store::CheckpointMetadataOf(from.facts)
             : store::WeightsMetadataOf(from.facts.job, from.facts.step);
}

// Packs tensors into files in the order of their names.
std::vector<std::vector<std::string>> Pack(const std::map<std::string, NewTensor>& tensors,
                                           int64_t bytes_max) {
  std::vector<std::vector<std::string>> files;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const int64_t size = BytesOf(tensor);
    if (files.empty() || (bytes > 0 && bytes + size > bytes_max)) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(name);
    bytes += size;
  }
  return files;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExportSafetensors(const OpenTensors& from,
                                                           const ExportOrder& order) {
  WEIR_ASSIGN_OR_RETURN(auto tensors, AllOf(from));
  if (order.what == ExportOrder::What::kAverages)
    WEIR_RETURN_IF_ERROR(TakeAverages(from, &tensors));
  if (order.what != ExportOrder::What::kAll) {
    std::erase_if(tensors, [](const auto& entry) {
      return entry.second.owner != store::StateOwner::kWeight;
    });
  }
  if (tensors.empty()) {
    return Rejected({"W0723", from.reader->path(), "tensors to write", "none",
                     "--all, which also writes optimizer states"});
  }
  const std::vector<std::vector<std::string>> files = Pack(tensors, order.file_bytes_max);
  WEIR_RETURN_IF_ERROR(weights::CheckNoOtherExport(order.path, files.size()));
  const store::Metadata metadata = MetadataOf(from, order.what);
  if (files.size() == 1) {
    WEIR_RETURN_IF_ERROR(WriteFile(order.path, tensors, files[0], metadata));
    return std::vector<std::string>{order.path};
  }
  const std::string stem = absl::EndsWith(order.path, kEnding)
                               ? order.path.substr(0, order.path.size() - (sizeof(kEnding) - 1))
                               : order.path;
  const weights::EarlierShards earlier(order.path);
  weights::UnfinishedExport unfinished;
  std::vector<std::string> paths;
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  int64_t total = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    paths.push_back(
        absl::StrFormat("%s-%05d-of-%05d%s", stem, i + 1, files.size(), std::string(kEnding)));
    unfinished.Add(paths.back());
    WEIR_RETURN_IF_ERROR(WriteFile(paths.back(), tensors, files[i], metadata));
    for (const std::string& name : files[i]) {
      map[name] = fs::path(paths.back()).filename().string();
      total += BytesOf(tensors.at(name));
    }
  }
  paths.push_back(absl::StrCat(stem, kEnding, ".index.json"));
  WEIR_RETURN_IF_ERROR(store::WriteWholeFile(paths.back(), [&](std::ostream& out) {
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                          {"weight_map", map}};
    out << index.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
    return absl::OkStatus();
  }));
  unfinished.Finish();
  earlier.RemoveOthers(paths);
  return paths;
}

}  // namespace weir::checkpoint
