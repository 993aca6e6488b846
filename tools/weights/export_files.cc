#include "tools/weights/export_files.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "runtime/base/status.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/names_beside.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/weight_index.h"

namespace weir::weights {
namespace {

namespace fs = std::filesystem;

constexpr char kEnding[] = ".safetensors";

int64_t BytesOf(const store::SafetensorsWriter::Entry& entry) {
  return NumElements(entry.shape) * SizeOf(entry.dtype);
}

bool Contains(const std::vector<std::string>& paths, const std::string& path) {
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& other) {
    return fs::path(other).lexically_normal() == fs::path(path).lexically_normal();
  });
}

// Returns the files of tensors that an earlier export to several files has left beside `path`, as
// its index names them. Only names of FilesOfExport count.
std::vector<std::string> EarlierShards(const std::string& path) {
  std::vector<std::string> files;
  const absl::StatusOr<store::WeightIndex> index =
      store::ReadWeightIndex(store::IndexOfExport(path));
  if (!index.ok() || index->files.size() < 2) return files;
  for (std::string& file : FilesOfExport(path, index->files.size())) {
    if (Contains(index->files, file)) files.push_back(std::move(file));
  }
  return files;
}

// Returns the paths, other than that of the index, at which an export to `path` may have left
// temporary files and files set aside.
std::vector<std::string> PathsOfExports(const std::string& path) {
  std::vector<std::string> paths =
      store::ShardsBeside(store::IndexOfExport(path), {store::kPartialMark, store::kReplacedMark});
  paths.push_back(path);
  return paths;
}

std::string AndLikeIt(const std::string& file, size_t num_files) {
  if (num_files == 1) return file;
  return absl::StrCat(file, " and ", Plural(static_cast<int64_t>(num_files) - 1, "file"),
                      " like it");
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
  const std::string stem(absl::StripSuffix(path, kEnding));
  std::vector<std::string> files;
  for (size_t f = 1; f <= num_files; ++f)
    files.push_back(absl::StrFormat("%s-%05d-of-%05d%s", stem, f, num_files, kEnding));
  files.push_back(store::IndexOfExport(path));
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
  std::vector<std::string> strays = store::ShardsBeside(store::IndexOfExport(path));
  std::erase_if(strays, [&](const std::string& file) { return Contains(files, file); });
  std::vector<std::string> sentences;
  if (!strays.empty()) {
    sentences.push_back(absl::StrCat("no index names ", AndLikeIt(strays[0], strays.size()),
                                     ", left of another export; remove what you do not need"));
  }
  std::vector<std::string> paths = PathsOfExports(path);
  paths.push_back(store::IndexOfExport(path));
  if (std::string aside = AsideText(paths); !aside.empty()) sentences.push_back(std::move(aside));
  return absl::StrJoin(sentences, "; ");
}

std::string AsideText(const std::vector<std::string>& paths) {
  const std::vector<store::NameBeside> aside =
      store::NamesBeside(store::WithTargets(paths), store::kReplacedMark);
  if (aside.empty()) return "";
  return absl::StrCat("an export has set aside ", AndLikeIt(aside[0].name, aside.size()),
                      ": that stays on a file system without locks, or if the disk refuses to "
                      "remove it; remove what you do not need");
}

ExportFiles::ExportFiles(const std::string& path, std::vector<Entries> files)
    : path_(path), files_(std::move(files)), paths_(FilesOfExport(path, files_.size())) {}

absl::Status ExportFiles::Begin() {
  // One file and several files of one name have one lock.
  WEIR_ASSIGN_OR_RETURN(
      lock_, store::PathLock::Take(absl::StrCat(absl::StripSuffix(path_, kEnding), kEnding)));
  // Without locks, what lies beside the path may be of an export that goes on.
  if (lock_->excludes_others())
    WEIR_RETURN_IF_ERROR(
        store::ReplacedFiles::ClearUp(store::IndexOfExport(path_), PathsOfExports(path_)));
  WEIR_RETURN_IF_ERROR(CheckNoOtherExport(path_, files_.size()));
  return TryPaths();
}

absl::Status ExportFiles::TryPaths() const {
  for (const std::string& path : paths_) {
    if (const int error = store::PendingFile::Try(path))
      return store::CannotWrite(path, "cannot make a file there", error);
  }
  return absl::OkStatus();
}

absl::Status ExportFiles::Seal(const std::map<std::string, std::string>& metadata,
                               const Fill& fill) {
  WEIR_RETURN_IF_ERROR(Begin());
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

absl::Status ExportFiles::SetAside(const std::string& path) {
  const int error = replaced_.SetAside(path);
  return error == 0
             ? absl::OkStatus()
             : store::CannotWrite(path, "cannot rename the file of the earlier export", error);
}

std::vector<ExportFiles::Operation> ExportFiles::Operations() {
  const std::vector<std::string> earlier = EarlierShards(path_);
  std::vector<Operation> operations;
  if (index_ == nullptr) {
    operations.push_back([this] { return writers_[0]->Commit(); });
    return operations;
  }
  // A link at a path of the new export stays, and what the link leads to is replaced.
  const auto target_of = [](std::string path) {
    store::FollowLinks(&path);
    return path;
  };
  operations.push_back([this, path = target_of(paths_.back())] { return SetAside(path); });
  for (size_t f = 0; f < writers_.size(); ++f) {
    operations.push_back([this, path = target_of(paths_[f])] { return SetAside(path); });
    operations.push_back([this, f] {
      ++num_published_;
      return writers_[f]->Commit();
    });
  }
  for (const std::string& path : earlier) {
    if (!Contains(paths_, path)) operations.push_back([this, path] { return SetAside(path); });
  }
  operations.push_back([this] {
    ++num_published_;
    return index_->Commit();
  });
  operations.push_back([this] {
    replaced_.Drop();  // what stays, the next export removes
    return absl::OkStatus();
  });
  return operations;
}

absl::Status ExportFiles::Commit() {
  WEIR_RETURN_IF_ERROR(TryPaths());  // nothing is renamed yet
  for (const Operation& operation : Operations()) {
    absl::Status done = operation();
    if (!done.ok())
      return index_ == nullptr ? done : replaced_.GoBack(done, paths_, num_published_);
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
