#include "tools/train/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/checkpoint_index.h"
#include "tools/train/output_paths.h"

namespace weir::train {
namespace {

namespace fs = std::filesystem;

fs::path AbsolutePath(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error).lexically_normal();
  return absolute.has_filename() ? absolute : absolute.parent_path();
}

// The run knows at most this number of the checkpoints with which it could begin.
constexpr size_t kKnownOfStartMax = 8;

// Returns whether a checkpoint is at the path: one in a folder, or any file.
bool IsThere(const std::string& path, bool is_folder) {
  std::error_code error;
  return !path.empty() &&
         fs::exists(is_folder ? absl::StrCat(path, "/", store::kIndexFile) : path, error);
}

std::optional<checkpoint::Identity> IdentityIfReadable(const std::string& path) {
  absl::StatusOr<checkpoint::Identity> identity = checkpoint::IdentityOf(path);
  if (!identity.ok()) return std::nullopt;
  return *std::move(identity);
}

std::string RemovedText(const std::string& path) {
  return absl::StrCat("the checkpoint ", path, " is passed over: it is no longer there");
}

}  // namespace

bool IsFolderPath(const std::string& path) {
  std::error_code error;
  return !path.empty() && (path.back() == '/' || fs::is_directory(path, error));
}

absl::Status CheckPlaceOfCheckpoints(const std::string& path) {
  WEIR_RETURN_IF_ERROR(CheckOutsideOfCheckpoints("--checkpoint", path));
  if (!IsFolderPath(path)) return absl::OkStatus();
  WEIR_RETURN_IF_ERROR(store::FolderClaim::Check(store::WithoutSlashes(path)));
  return store::TryFolder(store::WithoutSlashes(path));
}

RunFolder::RunFolder(const std::string& path, Loads loads)
    : path_(store::WithoutSlashes(path)),
      is_folder_(IsFolderPath(path)),
      loads_(loads),
      run_id_(store::PendingCheckpoint::NewToken()) {}

std::string RunFolder::PathFor(int64_t step) const {
  return is_folder_ ? absl::StrCat(path_, "/", store::StepFolderName(step)) : path_;
}

absl::Status RunFolder::Claim() {
  if (claim_ == nullptr) WEIR_RETURN_IF_ERROR(TakeFolder());
  has_begun_ = true;
  return absl::OkStatus();
}

absl::Status RunFolder::TakeFolder() {
  WEIR_RETURN_IF_ERROR(CheckOutsideOfCheckpoints("--checkpoint", path_));
  if (!is_folder_) return absl::OkStatus();
  // The folder may have its name back, and its lock excludes this run, too.
  if (renamed_ != nullptr && renamed_->IsInPlace()) {
    claim_ = std::move(renamed_);
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<store::FolderClaim> claim, store::FolderClaim::Take(path_));
  WEIR_RETURN_IF_ERROR(store::TryFolder(path_));
  claim_ = std::move(claim);
  return absl::OkStatus();
}

std::string RunFolder::NoteRenaming() {
  if (claim_ == nullptr || claim_->IsInPlace()) return "";
  // If there is a renamed folder already, this one has got no checkpoint of the run.
  if (renamed_ == nullptr && !claim_->PresentPath().empty()) renamed_ = std::move(claim_);
  claim_.reset();
  if (renamed_ == nullptr) written_.clear();
  const std::string folder = written_.empty() ? "" : PresentFolder();
  return absl::StrCat(
      "somebody has renamed or removed ", path_, ", into which this run writes its checkpoints. ",
      folder.empty() ? "" : absl::StrCat("Those of before are in ", folder, " now, and count. "),
      "The next one goes into the folder that has the name then, or makes it");
}

std::string RunFolder::PresentFolder() const {
  if (renamed_ != nullptr) return renamed_->PresentPath();
  return claim_ != nullptr ? claim_->PresentPath() : "";
}

std::string RunFolder::PathOfWritten(int64_t step) const {
  if (!is_folder_) return path_;
  const std::string folder = PresentFolder();
  return folder.empty() ? "" : absl::StrCat(folder, "/", store::StepFolderName(step));
}

void RunFolder::NoteWritten(int64_t step, uint32_t index_sum) {
  own_.insert({step, index_sum});
  NoteKnown({step, "", checkpoint::Identity{run_id_, step, index_sum}});
}

void RunFolder::NoteFile(int64_t step, uint32_t header_sum) {
  NoteKnown({step, "", checkpoint::Identity{"", step, header_sum}});
}

void RunFolder::NoteKnown(Known written) {
  if (renamed_ != nullptr || !is_folder_) written_.clear();
  renamed_.reset();
  // Those that --keep has removed meanwhile are gone, and later ones are of before a restart.
  std::error_code error;
  std::erase_if(written_, [&](const Known& other) {
    return other.step >= written.step || !fs::exists(PathOfWritten(other.step), error);
  });
  written_.push_back(std::move(written));
}

std::optional<RunFolder::Written> RunFolder::Last() const {
  for (size_t i = written_.size(); i > 0; --i) {
    std::string path = PathOfWritten(written_[i - 1].step);
    if (IsThere(path, is_folder_)) return Written{written_[i - 1].step, std::move(path)};
  }
  return std::nullopt;
}

absl::Status RunFolder::Check(const std::string& path, const Known& known, Depth depth) {
  if (known.identity.has_value())
    WEIR_RETURN_IF_ERROR(checkpoint::CheckIdentity(path, *known.identity));
  return depth == Depth::kContents ? checkpoint::CheckWhole(path) : absl::OkStatus();
}

RunFolder::Found RunFolder::FindWritten(Depth depth) const {
  Found found;
  for (size_t i = written_.size(); i > 0; --i) {
    const Known& known = written_[i - 1];
    const std::string path = PathOfWritten(known.step);
    if (!IsThere(path, is_folder_)) {
      found.warnings.push_back(RemovedText(path.empty() ? PathFor(known.step) : path));
      continue;
    }
    const absl::Status status = Check(path, known, depth);
    if (!status.ok()) {
      found.warnings.push_back(checkpoint::PassedOverText(path, status));
      continue;
    }
    const int64_t steps_again = written_.back().step - known.step;
    if (depth == Depth::kContents && steps_again > 0)
      found.warnings.push_back(checkpoint::GoesOnFromText(path, steps_again));
    found.written = Written{known.step, path};
    break;
  }
  return found;
}

void RunFolder::GoBackTo(const Found& found) {
  std::erase_if(written_, [&found](const Known& known) {
    return !found.written.has_value() || known.step > found.written->step;
  });
}

checkpoint::WholeCheckpoint RunFolder::GoBackToWhole() {
  Found found = FindWritten(Depth::kContents);
  GoBackTo(found);
  if (found.written.has_value()) return {found.written->path, std::move(found.warnings)};
  checkpoint::WholeCheckpoint start = FindStart();
  start.warnings.insert(start.warnings.begin(), found.warnings.begin(), found.warnings.end());
  return start;
}

std::optional<checkpoint::WholeCheckpoint> RunFolder::GoBackFurther(const std::string& chosen) {
  std::error_code error;
  const bool is_as_it_was =
      chosen.empty() || (fs::exists(chosen, error) && CheckKnown(chosen, Depth::kContents).ok());
  if (is_as_it_was) return std::nullopt;
  checkpoint::WholeCheckpoint other = GoBackToWhole();
  if (other.path == chosen) return std::nullopt;
  return other;
}

checkpoint::WholeCheckpoint RunFolder::FindStart() const {
  std::vector<std::string> warnings;
  for (const Known& known : begun_with_) {
    const std::string path = PresentPathOf(known.path);
    std::error_code error;
    if (!fs::exists(path, error)) {
      warnings.push_back(RemovedText(path));
      continue;
    }
    const absl::Status status = Check(path, known, Depth::kContents);
    if (!status.ok()) {
      warnings.push_back(checkpoint::PassedOverText(path, status));
      continue;
    }
    if (known.step < begun_with_.front().step)
      warnings.push_back(checkpoint::GoesOnFromText(path, begun_with_.front().step - known.step));
    return {path, std::move(warnings)};
  }
  return {PresentPathOf(first_resume_), {}};  // whoever loads it says what is wrong
}

void RunFolder::NoteStart(const std::string& resume) {
  first_resume_ = resume;
  begun_with_.clear();
  if (resume.empty()) return;
  std::optional<checkpoint::Identity> identity;
  if (loads_ == Loads::kAfterFailures) identity = IdentityIfReadable(resume);
  const std::optional<int64_t> step =
      store::StepOfName(fs::path(store::WithoutSlashes(resume)).filename().string());
  begun_with_.push_back({step.value_or(0), resume, std::move(identity)});
  if (!step.has_value()) return;
  const std::string directory = store::FolderAround(resume);
  std::vector<int64_t> before = store::CommittedSteps(directory);
  std::erase_if(before, [&step](int64_t other) { return other > *step; });
  std::error_code error;
  if (is_folder_ && fs::equivalent(directory, path_, error)) {
    for (const int64_t past : before) {
      const std::optional<uint32_t> sum = store::ReadSumOfIndex(
          (fs::path(directory) / store::StepFolderName(past) / store::kIndexFile).string());
      if (sum.has_value()) own_.insert({past, *sum});
    }
  }
  if (loads_ == Loads::kOnce) return;
  std::erase_if(before, [&step](int64_t other) { return other == *step; });
  for (; !before.empty() && begun_with_.size() < kKnownOfStartMax; before.pop_back()) {
    const std::string path = (fs::path(directory) / store::StepFolderName(before.back())).string();
    // Nothing is known of one that cannot be read, so the run will not go on from it.
    if (std::optional<checkpoint::Identity> of_it = IdentityIfReadable(path); of_it.has_value())
      begun_with_.push_back({before.back(), path, std::move(of_it)});
  }
}

absl::Status RunFolder::CheckKnown(const std::string& path, Depth depth) const {
  const fs::path wanted = AbsolutePath(path);
  absl::Status status;
  // The run may have replaced the checkpoint with which it began.
  for (const Known& known : written_) {
    const std::string own = PathOfWritten(known.step);
    if (own.empty() || AbsolutePath(own) != wanted) continue;
    status = Check(path, known, depth);
    if (status.ok()) return status;
  }
  for (const Known& known : begun_with_) {
    if (AbsolutePath(PresentPathOf(known.path)) != wanted) continue;
    const absl::Status of_start = Check(path, known, depth);
    if (of_start.ok()) return of_start;
    if (status.ok()) status = of_start;
  }
  return status;
}

std::string RunFolder::PresentPathOf(const std::string& checkpoint) const {
  if (!is_folder_ || checkpoint.empty()) return checkpoint;
  const fs::path path = AbsolutePath(checkpoint);
  if (path.parent_path() != AbsolutePath(path_)) return checkpoint;
  const std::string folder = PresentFolder();
  // The path stays in the words of the user as long as it leads there.
  if (folder.empty() || folder == path_) return checkpoint;
  return (fs::path(folder) / path.filename()).string();
}

}  // namespace weir::train
