// Writes weights under other names: those of a public file under the names of a job, and those of a
// job under the names of public files. Both go through one map, so what one writes the other reads
// back with equal bytes. One weight, or one public tensor, is in memory at a time.
// Thread rule: pure functions, except for reading and writing files.
#pragma once

#include <memory>
#include <string>

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
};
// Writes the weights in `from`, which has the names of the job, as public tensors. Returns the name
// of the map. kInvalidArgument: no map has a rule for each weight (W0071); the shape of a tensor is
// not known, a tensor is not covered, or two weights disagree about it (W0063).
absl::StatusOr<std::string> WritePublic(const store::SafetensorsReader& from,
                                        const WeightTypes& weights, const ExportOrder& order);

}  // namespace weir::weights
