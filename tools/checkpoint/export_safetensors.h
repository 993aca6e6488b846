// Writes a checkpoint as safetensors that other programs read: one file, or several files with an
// index beside them ("model.safetensors.index.json") if it is large.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/checkpoint/open_tensors.h"

namespace weir::checkpoint {

struct ExportOrder {
  std::string path;  // "model.safetensors"
  // A file gets no further tensor that would make it larger. A tensor is never cut.
  int64_t file_bytes_max = int64_t{5} << 30;
  // kAll writes all states and all facts of the checkpoint (checkpoint_metadata.h), so that a run
  // can resume from the export. kAverages writes weights, and in place of a weight its average, if
  // there is one.
  enum class What : uint8_t { kWeights, kAll, kAverages } what = What::kWeights;
};

// Checks all of `from` (CheckSound), writes the files of tools/weights/export_files.h, and returns
// their paths. kInvalidArgument (W0723): a tensor has a type that Weir does not hold, or there is
// no tensor to write; (W0084): there is no average, or an error of weights::CheckAverages. Other
// errors: those of CheckSound, of reading, or of weights::ExportFiles.
absl::StatusOr<std::vector<std::string>> ExportSafetensors(const OpenTensors& from,
                                                           const ExportOrder& order);

}  // namespace weir::checkpoint
