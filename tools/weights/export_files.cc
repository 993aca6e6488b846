#include "tools/weights/export_files.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/weight_index.h"

namespace weir::weights {
namespace {

namespace fs = std::filesystem;

int64_t BytesOf(const store::SafetensorsWriter::Entry& entry) {
  return NumElements(entry.shape) * SizeOf(entry.dtype);
}

bool Contains(const std::vector<std::string>& paths, const std::string& path) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& other) {
    return fs::path(other).lexically_normal() == fs::path(path).lexically_normal();
  });
}

}  // namespace

std::vector<Entries> PackIntoFiles(const Entries& tensors, int64_t file_bytes_max) {
  std::vector<Entries> files(1);
  int64_t bytes = 0;  // of the last file
  for (const store::SafetensorsWriter::Entry& entry : tensors) {
    if (file_bytes_max > 0 && !files.back().empty() && BytesOf(entry) > file_bytes_max - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += BytesOf(entry);
    files.back().push_back(entry);
  }
  return files;
}

std::vector<std::string> FilesOfExport(const std::string& path, size_t num_files) {
  if (num_files <= 1) return {path};
  constexpr char kEnding[] = ".safetensors";
  const std::string stem(absl::StripSuffix(path, kEnding));
  std::vector<std::string> files;
  for (size_t f = 1; f <= num_files; ++f)
    files.push_back(absl::StrFormat("%s-%05d-of-%05d%s", stem, f, num_files, kEnding));
  files.push_back(absl::StrCat(stem, kEnding, ".index.json"));
  return files;
}

absl::Status CheckNoOtherExport(const std::string& path, size_t num_files) {
  const std::string other = FilesOfExport(path, num_files > 1 ? 1 : 2).back();
  std::error_code error;
  if (!fs::exists(other, error)) return absl::OkStatus();
  return Rejected({"W0841", other,
                   num_files > 1 ? "no single file beside the index of several files"
                                 : "no index of several files beside a single file",
                   "one, whose tensors a reader of the folder may take in place of the new ones",
                   "remove it, or write into another folder"});
}

std::string StrayText(const std::string& path, const std::vector<std::string>& files) {
  std::vector<std::string> strays = store::ShardsBeside(FilesOfExport(path, 2).back());
  std::erase_if(strays, [&](const std::string& file) { return Contains(files, file); });
  if (strays.empty()) return "";
  return absl::StrCat(
      "no index names ", strays[0],
      strays.size() > 1
          ? absl::StrCat(" and ", Plural(static_cast<int64_t>(strays.size()) - 1, "file"),
                         " like it")
          : "",
      ", left of another export; remove what you do not need");
}

EarlierShards::EarlierShards(const std::string& path) {
  const absl::StatusOr<store::WeightIndex> index =
      store::ReadWeightIndex(FilesOfExport(path, 2).back());
  if (!index.ok() || index->files.size() < 2) return;
  for (const std::string& file : FilesOfExport(path, index->files.size())) {
    if (Contains(index->files, file)) files_.push_back(file);
  }
}

void EarlierShards::RemoveOthers(const std::vector<std::string>& files) const {
  for (const std::string& earlier : files_) {
    std::error_code stays;
    if (std::count(files.begin(), files.end(), earlier) == 0) fs::remove(earlier, stays);
  }
}

ExportFiles::ExportFiles(const std::string& path, std::vector<Entries> files)
    : files_(std::move(files)), paths_(FilesOfExport(path, files_.size())), earlier_(path) {}

absl::Status ExportFiles::Seal(const std::map<std::string, std::string>& metadata,
                               const Fill& fill) {
  for (size_t f = 0; f < files_.size(); ++f) {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::SafetensorsWriter> writer,
                          store::SafetensorsWriter::Create(paths_[f], files_[f], metadata));
    WEIR_RETURN_IF_ERROR(fill(writer.get()));
    WEIR_RETURN_IF_ERROR(writer->Seal());
    writers_.push_back(std::move(writer));
  }
  return files_.size() > 1 ? SealIndex() : absl::OkStatus();
}

absl::Status ExportFiles::SealIndex() {
  nlohmann::ordered_json file_of = nlohmann::ordered_json::object();
  int64_t bytes = 0;
  for (size_t f = 0; f < files_.size(); ++f) {
    const std::string name = fs::path(paths_[f]).filename().string();
    for (const store::SafetensorsWriter::Entry& entry : files_[f]) {
      file_of[entry.name] = name;
      bytes += BytesOf(entry);
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", bytes}}},
                                        {"weight_map", std::move(file_of)}};
  WEIR_ASSIGN_OR_RETURN(
      index_, store::SealedFile::Seal(paths_.back(), [&](std::ostream& out) {
        out << index.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
        return absl::OkStatus();
      }));
  return absl::OkStatus();
}

absl::Status ExportFiles::RemoveEarlierIndex() {
  if (const int error = store::RemovePublished(paths_.back()))
    return store::CannotWrite(paths_.back(), "cannot remove the earlier index", error);
  return absl::OkStatus();
}

std::vector<ExportFiles::Operation> ExportFiles::Operations() {
  std::vector<Operation> operations;
  if (index_ != nullptr) operations.push_back([this] { return RemoveEarlierIndex(); });
  for (const auto& writer : writers_)
    operations.push_back([writer = writer.get()] { return writer->Commit(); });
  if (index_ == nullptr) return operations;
  operations.push_back([this] { return index_->Commit(); });
  operations.push_back([this] {
    earlier_.RemoveOthers(paths_);
    return absl::OkStatus();
  });
  return operations;
}

absl::Status ExportFiles::Commit() {
  std::error_code error;
  std::vector<std::string> made;
  for (const std::string& path : paths_) {
    if (!fs::exists(path, error)) made.push_back(path);
  }
  for (const Operation& operation : Operations()) {
    absl::Status done = operation();
    if (done.ok()) continue;
    // Without an index the new files are no model, and nobody would look for them.
    if (index_ != nullptr && !fs::exists(paths_.back(), error)) {
      for (const std::string& path : made) fs::remove(path, error);
    }
    return done;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ExportFiles::CommitSomeForTest(size_t count) {
  const std::vector<Operation> operations = Operations();
  for (size_t i = 0; i < std::min(count, operations.size()); ++i)
    WEIR_RETURN_IF_ERROR(operations[i]());
  return count < operations.size();
}

}  // namespace weir::weights
