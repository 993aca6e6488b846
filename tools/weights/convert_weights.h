// Writes weights under other names: those of a public file under the names of a job, and those of a
// job under the names of public files. Both go through one map, so what one writes the other reads
// back with equal bytes. One weight, or one public tensor, is in memory at a time.
// Thread rule: pure functions, except for reading and writing files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/safetensors.h"
#include "tools/weights/find_weights.h"
#include "tools/weights/mapped_weights.h"

namespace weir::weights {

// Writes the weights of a job, which pass MappedWeights::Check, to `path`. kInvalidArgument
// (W0063): the file does not have a weight, because the map calls it fresh.
absl::Status WriteForJob(const MappedWeights& from, const WeightTypes& weights,
                         const std::string& path);

struct ExportOrder {
  MapPlaces places;
  // A public file of the model: its names, shapes and element types count. Null: those that the map
  // gives.
  std::shared_ptr<const store::SafetensorsReader> like;
  std::string path;  // of the new file
  // Tensors of more bytes in all go to several files, each of at most so many bytes or of one
  // tensor; 0: one file in any case.
  int64_t file_bytes_max = 0;
};
struct Exported {
  std::string map;                 // its name
  std::vector<std::string> files;  // of tensors, and then the index, if there are several
};
// Writes the weights in `from`, which has the names of the job, as public tensors: the files of
// export_files.h. Their metadata has the step of `from`, if that is known. `check` gets the paths
// before anything is written, and its error ends the work. kInvalidArgument: no map has a rule for
// each weight (W0071); the shape of a tensor is not known, a tensor is not covered, or two weights
// disagree about it (W0063). Other errors: of reading, or of ExportFiles.
using CheckPaths = std::function<absl::Status(const std::vector<std::string>& paths)>;
absl::StatusOr<Exported> WritePublic(const store::SafetensorsReader& from,
                                     const WeightTypes& weights, const ExportOrder& order,
                                     const CheckPaths& check = nullptr);

}  // namespace weir::weights
