// Finds the weights that a command names, and the map under which they fit a job.
//
// The order: a map that the command names; the names as they are; the map beside the job; the maps
// of the program for public files. The first one counts under which every weight has a source of
// its shape and every tensor a use. Thread rule: pure functions, except for reading files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/store/safetensors.h"
#include "tools/weights/mapped_weights.h"

namespace weir::weights {

// Where to look for maps.
struct MapPlaces {
  std::string map;       // a file, or the name of a map of the program; empty: search
  std::string job_file;  // of the job; empty or "-": nothing lies beside it
};

// Returns the weights that `path` names: the path of a file or of a checkpoint folder
// (checkpoint_folder.h), or in another folder its model.safetensors.index.json, its
// model.safetensors, its only index if that names all files of safetensors, or its only such file.
// kNotFound (W0049): a folder without one, or with more indices or files; (W0047): a folder with
// files of an index that is not there; (W0711): that of a checkpoint whose index lacks.
// kInvalidArgument (W0049): a file of PyTorch, for example a .pt; the advice is the line that makes
// safetensors of it.
absl::StatusOr<std::string> WeightFileOf(const std::string& path);

// Returns the path of the map that belongs to a job, whether it exists or not:
// "gpt.weights.textproto" beside "gpt.textproto". Empty: the job has no file.
std::string MapBeside(const std::string& job_file);

// Returns the files that MapWeights may read besides the weights: the map beside the job, and the
// constants of that map and of the maps of the program, where they exist.
std::vector<std::string> FilesBeside(const std::string& job_file);
// Returns the constants of the map beside the job; empty: there are none.
std::string ConstantsBeside(const std::string& job_file);

// Returns the weights in `file` under the map that fits, or else under the one that lacks least.
absl::StatusOr<MappedWeights> NearestMap(std::shared_ptr<const store::SafetensorsReader> file,
                                         const MapPlaces& places, const WeightTypes& weights);
// Returns the weights in `file` under the map that fits. kInvalidArgument: none fits (W0071, of the
// nearest map), or what MappedWeights::Check returns.
absl::StatusOr<MappedWeights> MapWeights(std::shared_ptr<const store::SafetensorsReader> file,
                                         const MapPlaces& places, const WeightTypes& weights);

// Returns the maps that MapWeights tries, in order, without the names as they are.
absl::StatusOr<std::vector<std::shared_ptr<const WeightMap>>> MapsFor(const MapPlaces& places);

// The maps of the program, as text.
struct BuiltInMap {
  std::string name;  // "gpt2"
  std::string text;
};
const std::vector<BuiltInMap>& BuiltInMaps();

}  // namespace weir::weights
