#include "tools/weights/find_weights.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/names_beside.h"
#include "runtime/store/weight_index.h"

namespace weir::weights {
namespace {

namespace fs = std::filesystem;

constexpr int kFilesMax = 10'000;  // of a folder
constexpr size_t kIndicesShown = 8;
constexpr char kJobEnding[] = ".textproto";
constexpr char kMapEnding[] = ".weights.textproto";

bool IsOfPyTorch(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  for (const char* known : {".pt", ".pth", ".bin", ".ckpt", ".pkl"}) {
    if (ending == known) return true;
  }
  return false;
}

absl::Status NoPickles(const std::string& path) {
  const std::string file = fs::path(path).filename().string();
  return Rejected({"W0049", path, "safetensors",
                   "a file of PyTorch (a pickle, which runs code when it is read)",
                   absl::StrCat("python -c \"import torch, safetensors.torch as s; s.save_file({k: "
                                "v.contiguous().clone() for k, v in torch.load('",
                                file, "', weights_only=True).items()}, 'model.safetensors')\"")});
}

// Returns the index in a folder whose files of safetensors are `found`; "": there is none.
absl::StatusOr<std::string> OnlyIndex(const std::string& folder,
                                      const std::vector<std::string>& found) {
  const std::vector<std::string> indices = store::WeightIndicesIn(folder);
  if (indices.empty()) return "";
  size_t num_others = found.size();
  if (indices.size() == 1) {
    WEIR_ASSIGN_OR_RETURN(const store::WeightIndex index, store::ReadWeightIndex(indices[0]));
    for (const std::string& file : index.files)
      num_others -= std::count(found.begin(), found.end(), fs::path(file).filename().string());
    if (num_others == 0) return indices[0];
  }
  std::vector<std::string> shown = indices;
  shown.resize(std::min(shown.size(), kIndicesShown));
  return Missing(
      {"W0049", folder, "a folder with one index of weights, and no files but those that it names",
       indices.size() > 1
           ? absl::StrCat(indices.size(), " indices")
           : absl::StrCat("one index, and ", Plural(static_cast<int64_t>(num_others), "file"),
                          " of safetensors that it does not name"),
       absl::StrCat("the path of an index, ", absl::StrJoin(shown, " or "))});
}

absl::StatusOr<std::string> FileInFolder(const std::string& folder) {
  std::vector<std::string> found;
  std::string pickle;
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (++count > kFilesMax) break;
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, ".safetensors")) found.push_back(name);
    if (IsOfPyTorch(name)) pickle = name;
  }
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"}) {
    std::error_code ignored;
    if (fs::is_regular_file(fs::path(folder) / name, ignored))
      return (fs::path(folder) / name).string();
  }
  WEIR_RETURN_IF_ERROR(store::CheckStepIsThere(folder));
  for (const std::string& name : found) {
    const std::string index = store::IndexOfShard((fs::path(folder) / name).string());
    if (!index.empty()) WEIR_RETURN_IF_ERROR(store::CheckIndexIsThere(index));
  }
  WEIR_ASSIGN_OR_RETURN(const std::string index, OnlyIndex(folder, found));
  if (!index.empty()) return index;
  if (found.size() == 1) return (fs::path(folder) / found[0]).string();
  if (found.empty() && !pickle.empty()) return NoPickles((fs::path(folder) / pickle).string());
  return Missing({"W0049", folder,
                  "a folder with model.safetensors.index.json, model.safetensors, or one file of "
                  "safetensors",
                  found.empty() ? "no file of safetensors"
                                : absl::StrCat(found.size(), " files of safetensors"),
                  "the path of the file"});
}

absl::StatusOr<std::shared_ptr<const WeightMap>> Shared(absl::StatusOr<WeightMap> map) {
  if (!map.ok()) return map.status();
  return std::make_shared<const WeightMap>(*std::move(map));
}

const BuiltInMap* FindBuiltIn(const std::string& name) {
  for (const BuiltInMap& map : BuiltInMaps()) {
    if (map.name == name) return &map;
  }
  return nullptr;
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return !path.empty() && fs::is_regular_file(path, error);
}

// Returns the path of the constants of a map; empty: the map has none, or they are not there.
std::string ConstantsPath(const WeightMap& map, const std::string& job_file) {
  const std::string& name = map.message().constants_file();
  if (name.empty() || job_file.empty() || job_file == "-") return "";
  std::string path = (fs::path(job_file).parent_path() / name).string();
  return IsFile(path) ? path : "";
}

// Opens the constants of a map; null: the map has none, or they are not there.
absl::StatusOr<std::shared_ptr<const store::SafetensorsReader>> ConstantsOf(
    const WeightMap& map, const std::string& job_file) {
  const std::string path = ConstantsPath(map, job_file);
  if (path.empty()) return nullptr;
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::SafetensorsReader> file,
                        store::SafetensorsReader::Open(path));
  return std::shared_ptr<const store::SafetensorsReader>(std::move(file));
}

}  // namespace

absl::StatusOr<std::string> WeightFileOf(const std::string& path) {
  std::error_code error;
  if (store::IsCheckpointFolder(path)) return path;
  if (fs::is_directory(path, error)) return FileInFolder(path);
  if (IsOfPyTorch(path)) return NoPickles(path);
  return path;
}

std::string MapBeside(const std::string& job_file) {
  if (job_file.empty() || job_file == "-") return "";
  std::string stem = job_file;
  if (absl::EndsWith(stem, kJobEnding)) stem.resize(stem.size() - (sizeof(kJobEnding) - 1));
  return stem + kMapEnding;
}

std::string ConstantsBeside(const std::string& job_file) {
  const std::string beside = MapBeside(job_file);
  if (!IsFile(beside)) return "";
  const absl::StatusOr<WeightMap> map = WeightMap::Read(beside);
  return map.ok() ? ConstantsPath(*map, job_file) : "";
}

std::vector<std::string> FilesBeside(const std::string& job_file) {
  std::vector<std::string> files;
  if (const std::string map = MapBeside(job_file); IsFile(map)) files.push_back(map);
  const auto maps = MapsFor({"", job_file});
  if (!maps.ok()) return files;  // MapWeights returns the error
  for (const std::shared_ptr<const WeightMap>& map : *maps) {
    std::string constants = ConstantsPath(*map, job_file);
    if (!constants.empty() && std::count(files.begin(), files.end(), constants) == 0)
      files.push_back(std::move(constants));
  }
  return files;
}

absl::StatusOr<std::vector<std::shared_ptr<const WeightMap>>> MapsFor(const MapPlaces& places) {
  std::vector<std::shared_ptr<const WeightMap>> maps;
  if (!places.map.empty()) {
    const BuiltInMap* const known = IsFile(places.map) ? nullptr : FindBuiltIn(places.map);
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const WeightMap> map,
                          Shared(known != nullptr ? WeightMap::Parse(known->text, known->name)
                                                  : WeightMap::Read(places.map)));
    maps.push_back(std::move(map));
    return maps;
  }
  if (const std::string beside = MapBeside(places.job_file); IsFile(beside)) {
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const WeightMap> map, Shared(WeightMap::Read(beside)));
    maps.push_back(std::move(map));
  }
  for (const BuiltInMap& known : BuiltInMaps()) {
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const WeightMap> map,
                          Shared(WeightMap::Parse(known.text, known.name)));
    maps.push_back(std::move(map));
  }
  return maps;
}

absl::StatusOr<MappedWeights> NearestMap(std::shared_ptr<const store::SafetensorsReader> file,
                                         const MapPlaces& places, const WeightTypes& weights) {
  std::optional<MappedWeights> nearest;
  // The names that do not fit, and then whether shapes do not: a file may have the names of the job
  // for tensors that the map of the job reshapes.
  std::pair<size_t, bool> least;
  const auto fits = [&](MappedWeights mapped) {
    const size_t names = mapped.Compare(weights).size();
    const std::pair<size_t, bool> lack = {names, names > 0 || !mapped.Check(weights).ok()};
    if (nearest.has_value() && lack >= least) return false;
    nearest = std::move(mapped);
    least = lack;
    return lack == std::pair<size_t, bool>(0, false);
  };
  bool found = places.map.empty() && fits(MappedWeights(file));
  if (!found) {
    WEIR_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<const WeightMap>> maps,
                          MapsFor(places));
    for (const std::shared_ptr<const WeightMap>& map : maps) {
      WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const store::SafetensorsReader> constants,
                            ConstantsOf(*map, places.job_file));
      if ((found = fits(MappedWeights(file, map, std::move(constants))))) break;
    }
  }
  return *std::move(nearest);
}

absl::StatusOr<MappedWeights> MapWeights(std::shared_ptr<const store::SafetensorsReader> file,
                                         const MapPlaces& places, const WeightTypes& weights) {
  WEIR_ASSIGN_OR_RETURN(MappedWeights nearest, NearestMap(std::move(file), places, weights));
  WEIR_RETURN_IF_ERROR(nearest.Check(weights));
  return nearest;
}

}  // namespace weir::weights
