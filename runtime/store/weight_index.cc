#include "runtime/store/weight_index.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/store/mapped_file.h"
#include "runtime/store/names_beside.h"

namespace weir::store {
namespace {

using Json = nlohmann::json;

constexpr int64_t kIndexBytesMax = 64 << 20;
constexpr size_t kTensorsMax = 100'000;
constexpr size_t kFilesMax = 10'000;

// An IndexHandler receives the index piece by piece, and builds no document.
class IndexHandler : public nlohmann::json_sax<Json> {
 public:
  std::map<std::string, std::string>& file_names() { return file_names_; }
  const std::string& error() const { return error_; }
  bool has_map() const { return has_map_; }

  bool null() override { return Other("null"); }
  bool boolean(bool) override { return Other("a boolean"); }
  bool number_integer(int64_t) override { return Other("a number"); }
  bool number_unsigned(uint64_t) override { return Other("a number"); }
  bool number_float(double, const std::string&) override { return Other("a number"); }
  bool binary(Json::binary_t&) override { return Other("binary data"); }
  bool string(std::string& value) override {
    if (!InMap()) return Other("a text");
    if (file_names_.size() >= kTensorsMax)
      return Fail(absl::StrCat("more than ", kTensorsMax, " tensors"));
    if (!file_names_.emplace(key_, value).second) return Fail("tensor \"" + key_ + "\" twice");
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    if (depth_ == 2 && key_ == "weight_map") {
      if (has_map_) return Fail("two weight maps");
      has_map_ = in_map_ = true;
      return true;
    }
    return in_map_ ? Fail("an object in the weight map") : true;
  }
  bool end_object() override {
    if (depth_-- == 2) in_map_ = false;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    return in_map_ || depth_ == 1 ? Fail("a list") : true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(std::string& value) override {
    if (depth_ <= 2) key_ = value;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return Fail(error.what());
  }

 private:
  bool InMap() const { return in_map_ && depth_ == 2; }
  // A value that is no text.
  bool Other(const std::string& what) {
    if (in_map_) return Fail(absl::StrCat(what, " as the file of tensor \"", key_, "\""));
    return depth_ == 0 ? Fail(what) : true;
  }
  bool Fail(const std::string& error) {
    error_ = error;
    return false;
  }

  std::map<std::string, std::string> file_names_;
  std::string key_, error_;
  int depth_ = 0;
  bool has_map_ = false, in_map_ = false;
};

absl::Status DamagedIndex(const std::string& path, const std::string& expected,
                          const std::string& found) {
  return Damaged({"W0047", path, expected, found, ""});
}

constexpr char kWeightEnding[] = ".safetensors";
constexpr char kIndexEnding[] = ".index.json";
constexpr size_t kDigits = 5;

// Takes five digits from the end of the text.
bool ConsumeNumber(absl::string_view* text) {
  if (text->size() < kDigits) return false;
  const absl::string_view digits = text->substr(text->size() - kDigits);
  if (!std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return false;
  text->remove_suffix(kDigits);
  return true;
}

// A file of the index lies beside the index.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

bool IsWeightIndex(const std::string& path) { return absl::EndsWith(path, ".json"); }

std::string IndexOfExport(const std::string& path) {
  return absl::StrCat(absl::StripSuffix(path, kWeightEnding), kWeightEnding, kIndexEnding);
}

std::string IndexOfShard(const std::string& path) {
  absl::string_view stem = path;
  if (!absl::ConsumeSuffix(&stem, kWeightEnding) || !ConsumeNumber(&stem) ||
      !absl::ConsumeSuffix(&stem, "-of-") || !ConsumeNumber(&stem) ||
      !absl::ConsumeSuffix(&stem, "-"))
    return "";
  return absl::StrCat(stem, kWeightEnding, kIndexEnding);
}

std::string OneOfSeveralText(const std::string& path) {
  const std::string index = IndexOfShard(path);
  if (index.empty()) return "";
  const absl::string_view stem = absl::StripSuffix(path, kWeightEnding);
  int64_t files = 0;
  if (!absl::SimpleAtoi(stem.substr(stem.size() - kDigits), &files) || files < 2) return "";
  return absl::StrCat("one of the ", files, " files of ", index);
}

std::vector<std::string> ShardsBeside(const std::string& index_path,
                                      const std::vector<std::string>& marks) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(index_path).parent_path();
  const std::string index = fs::path(index_path).filename();
  std::set<std::string> shards;
  for (const std::string& entry : NamesIn(folder.empty() ? "." : folder.string())) {
    std::string name = entry;
    for (const std::string& mark : marks) {
      if (std::string of = PathOfNameBeside(entry, mark); !of.empty()) name = std::move(of);
    }
    if (IndexOfShard(name) == index) shards.insert((folder / name).string());
  }
  return {shards.begin(), shards.end()};
}

absl::Status CheckIndexIsThere(const std::string& index_path) {
  std::error_code error;
  if (std::filesystem::exists(index_path, error)) return absl::OkStatus();
  const std::vector<std::string> shards = ShardsBeside(index_path);
  if (shards.empty()) return absl::OkStatus();
  std::vector<std::string> paths = ShardsBeside(index_path, {kReplacedMark});
  paths.push_back(index_path);
  // With the index of the earlier export, files of two exports would be read as one.
  const bool is_aside = !NamesBeside(WithTargets(paths), kReplacedMark).empty();
  return Missing(
      {"W0047", index_path,
       absl::StrCat("the index of the files of tensors beside it, from ", shards[0], " on"),
       is_aside ? "none: their export was cut short, and files of an earlier one are set aside"
                : "none: their export was cut short, or a copy is incomplete",
       is_aside ? "export again, which first puts the earlier files back"
                : "write the export again, or copy the index"});
}

absl::Status CheckIsNotOfSeveral(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return absl::OkStatus();
  const std::string index = IndexOfExport(path);
  if (!std::filesystem::exists(index, error)) return CheckIndexIsThere(index);
  return Missing({"W0040", path, "a readable file (safetensors weights)",
                  "none, but the index of several files", index});
}

absl::StatusOr<WeightIndex> ReadWeightIndex(const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckIndexIsThere(path));
  WEIR_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path, "index of weights"));
  if (file->size() > kIndexBytesMax) {
    return DamagedIndex(path, absl::StrCat("an index of at most ", kIndexBytesMax, " bytes"),
                        absl::StrCat(file->size(), " bytes"));
  }
  IndexHandler handler;
  const absl::string_view text = file->text();
  if (!Json::sax_parse(text.begin(), text.end(), &handler) || !handler.has_map()) {
    return DamagedIndex(path, "a JSON object whose \"weight_map\" names a file for each tensor",
                        handler.error().empty() ? "no weight_map" : handler.error());
  }
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  WeightIndex index;
  std::map<std::string, int> place;
  for (const auto& [tensor, name] : handler.file_names()) {
    if (!IsPlainName(name)) {
      return DamagedIndex(absl::StrCat(path, ", tensor ", tensor),
                          "the name of a file in the folder of the index",
                          absl::StrCat("\"", name, "\""));
    }
    place.emplace(name, 0);
  }
  if (place.size() > kFilesMax) {
    return DamagedIndex(path, absl::StrCat("at most ", kFilesMax, " files"),
                        absl::StrCat(place.size()));
  }
  for (auto& [name, position] : place) {
    position = static_cast<int>(index.files.size());
    index.files.push_back((folder / name).string());
  }
  for (const auto& [tensor, name] : handler.file_names()) index.file_of[tensor] = place.at(name);
  return index;
}

std::vector<std::string> FilesOfWeights(const std::string& path) {
  std::vector<std::string> files = {path};
  if (!IsWeightIndex(path)) return files;
  const absl::StatusOr<WeightIndex> index = ReadWeightIndex(path);
  if (index.ok()) files.insert(files.end(), index->files.begin(), index->files.end());
  return files;
}

}  // namespace weir::store
