#include "tools/checkpoint/export_safetensors.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_metadata.h"
#include "tools/checkpoint/rewrite.h"
#include "tools/checkpoint/tensor_pieces.h"
#include "tools/weights/averages.h"
#include "tools/weights/export_files.h"

namespace weir::checkpoint {
namespace {

// Puts the average of each weight that has one in the place of the weight.
absl::Status TakeAverages(const OpenTensors& from, std::map<std::string, NewTensor>* tensors) {
  int taken = 0;
  for (auto& [name, tensor] : *tensors) {
    if (tensor.owner != store::StateOwner::kWeight) continue;
    const auto average = tensors->find(weights::AverageOf(name));
    if (average == tensors->end()) continue;
    tensor = average->second;
    tensor.owner = store::StateOwner::kWeight;
    ++taken;
  }
  if (taken == 0) {
    return Rejected({"W0084", from.reader->path(), "averages of weights", "none",
                     "a run with training { average {} }, or no --average"});
  }
  return weights::CheckAverages(*from.reader);
}

// Writes the tensors of one file, a piece at a time.
absl::Status Fill(const std::map<std::string, NewTensor>& tensors,
                  store::SafetensorsWriter* writer) {
  WEIR_ASSIGN_OR_RETURN(const std::unique_ptr<store::SafetensorsPart> part,
                        store::SafetensorsPart::Open(writer->temporary_path(), writer->path()));
  std::string bytes;
  for (const store::SafetensorsWriter::Entry& entry : writer->entries()) {
    const NewTensor& tensor = tensors.at(entry.name);
    const absl::Status copied =
        ForEachPiece(TensorSlice::Whole(tensor.dtype, tensor.shape), [&](const TensorSlice& piece) {
          bytes.resize(static_cast<size_t>(piece.bytes()));
          const absl::Status read = tensor.from->Read(tensor.source, piece, bytes.data());
          return read.ok() ? part->Write(entry.name, piece, bytes.data()) : read;
        });
    WEIR_RETURN_IF_ERROR(copied);
    WEIR_RETURN_IF_ERROR(writer->NotePart(entry.name, NumElements(tensor.shape)));
  }
  return part->Flush();
}

// An export of weights is no checkpoint, nor is one of all states that comes from weights alone.
store::Metadata MetadataOf(const OpenTensors& from, ExportOrder::What what) {
  return what == ExportOrder::What::kAll && store::IsOfCheckpoint(from.reader->metadata())
             ? store::CheckpointMetadataOf(from.facts)
             : store::WeightsMetadataOf(from.facts.job, from.facts.step);
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
  weights::Entries entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype, tensor.shape});
  WEIR_RETURN_IF_ERROR(CheckSound(from).status());
  weights::ExportFiles files(order.path, weights::PackIntoFiles(entries, order.file_bytes_max));
  WEIR_RETURN_IF_ERROR(
      files.Seal(MetadataOf(from, order.what),
                 [&](store::SafetensorsWriter* writer) { return Fill(tensors, writer); }));
  WEIR_RETURN_IF_ERROR(files.Commit());
  return files.paths();
}

}  // namespace weir::checkpoint
