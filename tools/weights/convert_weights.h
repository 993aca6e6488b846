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
// Returns the names of the files that WritePublic may make beside `path` if the tensors need
// `num_files`: NAME-00001-of-00003.safetensors, ..., and NAME.safetensors.index.json.
std::vector<std::string> FilesOfExport(const std::string& path, size_t num_files);
// kInvalidArgument (W0841): the tensors need `num_files` files, and beside `path` is an export of
// the other kind, the index or the single file, which a reader of the folder would not tell from
// the new one.
absl::Status CheckNoOtherExport(const std::string& path, size_t num_files);

// The files of tensors that an earlier export to several files has left beside `path`, as its index
// names them. With another number of files a new export replaces the index, and these files would
// stay with nothing that names them.
class EarlierShards {
 public:
  // Reads the index, if there is one. Only names of FilesOfExport count.
  explicit EarlierShards(const std::string& path);
  // Removes the files that are not among `files`, once the index of `files` is written. A file that
  // cannot be removed stays.
  void RemoveOthers(const std::vector<std::string>& files) const;

 private:
  std::vector<std::string> files_;
};

// The files of an export to several files, until its index is written. If the export ends before,
// the destructor removes the new ones: without an index they are no model, and nobody would look
// for them. Those that replace files of an earlier export stay, since its index names them.
class UnfinishedExport {
 public:
  UnfinishedExport() = default;
  ~UnfinishedExport();
  UnfinishedExport(const UnfinishedExport&) = delete;
  UnfinishedExport& operator=(const UnfinishedExport&) = delete;
  // Call before the file gets its name.
  void Add(const std::string& file);
  void Finish() { files_.clear(); }

 private:
  std::vector<std::string> files_;  // the new ones
};

// Writes the weights in `from`, which has the names of the job, as public tensors. Each file
// appears as a whole, the index last. `check` gets the paths before anything is written, and its
// error ends the work. kInvalidArgument: no map has a rule for each weight (W0071); the shape of a
// tensor is not known, a tensor is not covered, or two weights disagree about it (W0063).
using CheckPaths = std::function<absl::Status(const std::vector<std::string>& paths)>;
absl::StatusOr<Exported> WritePublic(const store::SafetensorsReader& from,
                                     const WeightTypes& weights, const ExportOrder& order,
                                     const CheckPaths& check = nullptr);

}  // namespace weir::weights
