// The index of weights that lie in several safetensors files, as public models have it
// ("model.safetensors.index.json"): a JSON object whose "weight_map" gives for each tensor the name
// of its file in the folder of the index. Weir ignores other keys.
// Thread rule: pure functions, except for reading files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::store {

struct WeightIndex {
  std::vector<std::string> files;      // paths, sorted
  std::map<std::string, int> file_of;  // by tensor, in `files`
};

// Returns whether a path of weights names an index: it ends in ".json".
bool IsWeightIndex(const std::string& path);

// Returns the files of tensors beside an index, whether it is there and names them or not, sorted:
// NAME-00001-of-00003.safetensors and so on beside NAME.safetensors.index.json. With marks
// (names_beside.h) also those that are there only under a name with one of the marks.
std::vector<std::string> ShardsBeside(const std::string& index_path,
                                      const std::vector<std::string>& marks = {});
// Returns the index of an export to several files that is given this path, NAME or
// NAME.safetensors: NAME.safetensors.index.json.
std::string IndexOfExport(const std::string& path);
// Returns the index that a file of such a name belongs to, whether it is there or not; "": the file
// has another name.
std::string IndexOfShard(const std::string& path);
// Returns "one of the 3 files of NAME.safetensors.index.json" for a file of such a name; "": the
// file has another name.
std::string OneOfSeveralText(const std::string& path);
// kNotFound (W0047): there is no index at the path, but files of tensors are beside it. An export
// was cut short (tools/weights/export_files.h), or a copy is incomplete. If files of an earlier
// export are set aside, the advice is only to export again.
absl::Status CheckIndexIsThere(const std::string& index_path);

// kNotFound (W0040): nothing is at the path, but the index of an export that was given this path
// is; the error names the index. (W0047): likewise, and only files of the export are there. OK: in
// any other case, also if nothing is there.
absl::Status CheckIsNotOfSeveral(const std::string& path);

// kNotFound: no file, or see CheckIndexIsThere. kDataLoss (W0047): the file is no JSON, has no
// weight_map of texts, or names a file outside its folder, or is larger than the bounds in
// weight_index.cc.
absl::StatusOr<WeightIndex> ReadWeightIndex(const std::string& path);

// Returns all files that a reader of the weights at `path` opens: the path, and the files of the
// index if the path names one that can be read.
std::vector<std::string> FilesOfWeights(const std::string& path);

}  // namespace weir::store
