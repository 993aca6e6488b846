#include "tests/disk/planted_faults.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace weir::disk {
namespace {

constexpr absl::string_view kPartial = ".partial-";

absl::string_view BaseName(absl::string_view path) {
  while (absl::EndsWith(path, "/")) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

bool IsShard(absl::string_view path) { return absl::StartsWith(BaseName(path), "rank-"); }
bool IsIndex(absl::string_view path) { return BaseName(path) == "index.pb"; }
bool IsLatest(absl::string_view path) { return absl::StartsWith(BaseName(path), "latest"); }
bool IsStep(absl::string_view path) { return absl::StartsWith(BaseName(path), "step-"); }
bool IsPartialStep(absl::string_view path) {
  return IsStep(path) && absl::StrContains(BaseName(path), kPartial);
}
bool IsFinalStep(absl::string_view path) {
  return IsStep(path) && !absl::StrContains(BaseName(path), ".");
}

}  // namespace

const char* Name(Planted planted) {
  switch (planted) {
    case Planted::kNothing: return "nothing";
    case Planted::kShardsNotFlushed: return "shards-not-flushed";
    case Planted::kIndexNotFlushed: return "index-not-flushed";
    case Planted::kPartialFolderNotFlushed: return "partial-folder-not-flushed";
    case Planted::kCommitNotFlushed: return "commit-not-flushed";
    case Planted::kLatestNotFlushed: return "latest-not-flushed";
    case Planted::kLatestNameNotFlushed: return "latest-name-not-flushed";
    case Planted::kOuterFolderNotFlushed: return "outer-folder-not-flushed";
    case Planted::kRemovedBeforeItsName: return "removed-before-its-name";
    case Planted::kSweptBeforeItsName: return "swept-before-its-name";
    case Planted::kCommittedBeforeItsShards: return "committed-before-its-shards";
    case Planted::kLatestBeforeTheCommit: return "latest-before-the-commit";
    case Planted::kLatestInPlace: return "latest-in-place";
  }
  return "?";
}

// A file whose flush may be left out, and whose writes may come late.
class FaultyFile final : public store::OpenedFile {
 public:
  FaultyFile(PlantedFaults* faults, std::string path, std::unique_ptr<store::OpenedFile> file)
      : faults_(faults), path_(std::move(path)), file_(std::move(file)) {}

  int TryLock(Lock lock) override { return file_->TryLock(lock); }
  int Reserve(int64_t bytes) override { return file_->Reserve(bytes); }
  int WriteAt(int64_t position, const void* data, int64_t bytes) override {
    if (!IsLate()) return file_->WriteAt(position, data, bytes);
    std::string text(static_cast<const char*>(data), static_cast<size_t>(bytes));
    faults_->later_.push_back([file = file_, position, text = std::move(text)] {
      return file->WriteAt(position, text.data(), static_cast<int64_t>(text.size()));
    });
    return 0;
  }
  int Flush() override {
    if (faults_->SkipsFlush(path_)) return 0;
    if (!IsLate()) return file_->Flush();
    faults_->later_.push_back([file = file_] { return file->Flush(); });
    return 0;
  }
  bool IsAt(const std::string& path) override { return file_->IsAt(path); }

 private:
  bool IsLate() const {
    return faults_->planted_ == Planted::kCommittedBeforeItsShards && IsShard(path_);
  }

  PlantedFaults* const faults_;
  const std::string path_;
  const std::shared_ptr<store::OpenedFile> file_;
};

bool PlantedFaults::SkipsFlush(const std::string& path) const {
  const bool is_directory = BaseName(path) == "run";
  switch (planted_) {
    case Planted::kShardsNotFlushed: return IsShard(path);
    case Planted::kIndexNotFlushed: return IsIndex(path);
    case Planted::kPartialFolderNotFlushed: return IsPartialStep(path);
    case Planted::kLatestNotFlushed: return IsLatest(path);
    case Planted::kCommitNotFlushed: return is_directory && last_ == Last::kCommit;
    case Planted::kLatestNameNotFlushed: return is_directory && last_ == Last::kLatest;
    case Planted::kOuterFolderNotFlushed: return BaseName(path) == "data";
    case Planted::kRemovedBeforeItsName: return is_directory && last_ == Last::kRemoved;
    case Planted::kSweptBeforeItsName: return is_directory && last_ == Last::kListed;
    default: return false;
  }
}

int PlantedFaults::Create(const std::string& path, std::unique_ptr<store::OpenedFile>* file) {
  std::string made = path;
  if (planted_ == Planted::kLatestInPlace && IsLatest(path)) {
    made = path.substr(0, path.find(".partial-"));
    disk_->RemoveFile(made);
  }
  std::unique_ptr<store::OpenedFile> opened;
  if (const int error = disk_->Create(made, &opened)) return error;
  *file = std::make_unique<FaultyFile>(this, path, std::move(opened));
  return 0;
}

int PlantedFaults::Open(const std::string& path, std::unique_ptr<store::OpenedFile>* file) {
  std::unique_ptr<store::OpenedFile> opened;
  if (const int error = disk_->Open(path, &opened)) return error;
  *file = std::make_unique<FaultyFile>(this, path, std::move(opened));
  return 0;
}

int PlantedFaults::MakeFolder(const std::string& path) {
  last_ = Last::kOther;
  const int error = disk_->MakeFolder(path);
  if (error == 0 && IsStep(path)) later_.clear();  // those of a save that has failed
  return error;
}

int PlantedFaults::Rename(const std::string& from, const std::string& to) {
  const bool commits = IsPartialStep(from) && IsFinalStep(to);
  last_ = commits ? Last::kCommit : IsLatest(to) ? Last::kLatest : Last::kRemoved;
  if (planted_ == Planted::kLatestInPlace && IsLatest(to)) return 0;
  if (planted_ == Planted::kLatestBeforeTheCommit && commits && KindOf(to) == Kind::kNone) {
    later_.push_back([this, from, to] { return disk_->Rename(from, to); });
    return 0;
  }
  if (const int error = disk_->Rename(from, to)) return error;
  if (!commits && !IsLatest(to)) return 0;
  for (const auto& act : std::exchange(later_, {})) {
    if (const int error = act()) return error;
  }
  return 0;
}

int PlantedFaults::Exchange(const std::string& a, const std::string& b) {
  last_ = Last::kCommit;
  if (const int error = disk_->Exchange(a, b)) return error;
  for (const auto& act : std::exchange(later_, {})) {
    if (const int error = act()) return error;
  }
  return 0;
}

int PlantedFaults::RemoveFile(const std::string& path) {
  if (planted_ == Planted::kLatestInPlace && IsLatest(path)) return 0;
  return disk_->RemoveFile(path);
}

std::vector<std::string> PlantedFaults::NamesIn(const std::string& path) {
  last_ = Last::kListed;
  return disk_->NamesIn(path);
}

}  // namespace weir::disk
