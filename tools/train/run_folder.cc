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

RunFolder::RunFolder(const std::string& path)
    : path_(store::WithoutSlashes(path)),
      is_folder_(IsFolderPath(path)),
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
  if (renamed_ == nullptr) steps_.clear();
  const std::string folder = steps_.empty() ? "" : PresentFolder();
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

void RunFolder::NoteWritten(int64_t step) {
  if (renamed_ != nullptr || !is_folder_) steps_.clear();
  renamed_.reset();
  // Those that --keep has removed meanwhile are gone, and later ones are of before a restart.
  std::error_code error;
  std::erase_if(steps_, [&](int64_t other) {
    return other >= step || !fs::exists(PathOfWritten(other), error);
  });
  steps_.push_back(step);
}

std::optional<RunFolder::Written> RunFolder::Last() const {
  std::error_code error;
  for (size_t i = steps_.size(); i > 0; --i) {
    std::string path = PathOfWritten(steps_[i - 1]);
    const std::string seen = is_folder_ ? absl::StrCat(path, "/", store::kIndexFile) : path;
    if (!path.empty() && fs::exists(seen, error)) return Written{steps_[i - 1], std::move(path)};
  }
  return std::nullopt;
}

checkpoint::WholeCheckpoint RunFolder::GoBackToWhole() {
  checkpoint::WholeCheckpoint whole;
  const int64_t newest = steps_.empty() ? 0 : steps_.back();
  for (; !steps_.empty(); steps_.pop_back()) {
    const int64_t step = steps_.back();
    const std::optional<Written> last = Last();
    if (!last.has_value() || last->step != step) {
      const std::string path = PathOfWritten(step);
      whole.warnings.push_back(absl::StrCat("the checkpoint ", path.empty() ? PathFor(step) : path,
                                            " is passed over: somebody has removed it"));
      continue;
    }
    const absl::Status status = is_folder_ ? checkpoint::CheckWhole(last->path) : absl::OkStatus();
    if (status.ok()) {
      whole.path = last->path;
      if (step < newest)
        whole.warnings.push_back(checkpoint::GoesOnFromText(whole.path, newest - step));
      break;
    }
    whole.warnings.push_back(checkpoint::PassedOverText(last->path, status));
  }
  return whole;
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
