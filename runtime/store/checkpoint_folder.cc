#include "runtime/store/checkpoint_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/whole_file.h"

namespace weir::store {
namespace {

namespace fs = std::filesystem;

constexpr char kLatestFile[] = "latest";
constexpr char kStepPrefix[] = "step-";
constexpr char kPartialMark[] = ".partial-";
constexpr char kRemovedMark[] = ".removed-";
constexpr int64_t kLatestBytesMax = 256;
constexpr size_t kStepsShown = 8;

std::string Join(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}
bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::vector<std::string> NamesIn(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  return names;
}

int FlushFolderAt(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return errno;
  // Some file systems cannot flush a folder, and say so by EINVAL.
  const int error = ::fsync(folder) == 0 || errno == EINVAL ? 0 : errno;
  ::close(folder);
  return error;
}

std::string LatestText(const std::string& name) {
  return absl::StrCat(name, " ", absl::Hex(Crc32c(name.data(), name.size()), absl::kZeroPad8),
                      "\n");
}

std::string CommittedText(const std::string& directory) {
  const std::vector<int64_t> steps = CommittedSteps(directory);
  if (steps.empty()) return "no committed checkpoint";
  std::vector<std::string> names;
  for (size_t i = steps.size() - std::min(steps.size(), kStepsShown); i < steps.size(); ++i)
    names.push_back(StepFolderName(steps[i]));
  return absl::StrJoin(names, ", ");
}

absl::Status NoneNamed(const std::string& directory, const std::string& expected,
                       const std::string& found) {
  const std::vector<int64_t> steps = CommittedSteps(directory);
  return Missing({"W0711", directory, expected, found,
                  steps.empty() ? "the folder that a run was given as --checkpoint"
                                : absl::StrCat("a committed checkpoint by its own path, ",
                                               Join(directory, StepFolderName(steps.back())))});
}

// Removes folders that nobody writes into any more, and halves of removed checkpoints.
void RemoveLeftovers(const std::string& directory) {
  for (const std::string& name : NamesIn(directory)) {
    if (!absl::StartsWith(name, kStepPrefix)) continue;
    const std::string path = Join(directory, name);
    std::error_code ignored;
    if (absl::StrContains(name, kRemovedMark)) fs::remove_all(path, ignored);
    if (!absl::StrContains(name, kPartialMark)) continue;
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) continue;
    if (::flock(folder, LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, ignored);
    ::close(folder);
  }
}

}  // namespace

std::string StepFolderName(int64_t step) { return absl::StrFormat("%s%09d", kStepPrefix, step); }

std::optional<int64_t> StepOfName(const std::string& name) {
  int64_t step = 0;
  if (!absl::StartsWith(name, kStepPrefix) ||
      !absl::SimpleAtoi(name.substr(sizeof(kStepPrefix) - 1), &step) || step < 0 ||
      StepFolderName(step) != name)
    return std::nullopt;
  return step;
}

std::vector<int64_t> CommittedSteps(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const std::string& name : NamesIn(directory)) {
    const std::optional<int64_t> step = StepOfName(name);
    if (step.has_value() && IsFile(Join(Join(directory, name), kIndexFile))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool IsCheckpointFolder(const std::string& path) {
  return IsFolder(path) && (IsFile(Join(path, kIndexFile)) || IsFile(Join(path, kLatestFile)) ||
                            !CommittedSteps(path).empty());
}

absl::StatusOr<std::optional<int64_t>> ReadLatest(const std::string& directory) {
  const std::string path = Join(directory, kLatestFile);
  if (!IsFile(path)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(kLatestBytesMax, '\0');
  file.read(text.data(), kLatestBytesMax);
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  const std::string name = text.substr(0, text.find(' '));
  const std::optional<int64_t> step = StepOfName(name);
  if (step.has_value() && text == LatestText(name)) return step;
  const std::vector<int64_t> steps = CommittedSteps(directory);
  return Damaged({"W0711", path, "the name of a checkpoint and its CRC32C", "other bytes",
                  steps.empty() ? ""
                                : absl::StrCat("a committed checkpoint by its own path, ",
                                               Join(directory, StepFolderName(steps.back())))});
}

absl::StatusOr<std::string> ResolveCheckpoint(const std::string& path) {
  if (IsFile(Join(path, kIndexFile))) return path;
  WEIR_ASSIGN_OR_RETURN(const std::optional<int64_t> step, ReadLatest(path));
  if (!step.has_value()) {
    return NoneNamed(path, "a checkpoint, or a folder whose `latest` names one",
                     CommittedText(path) + " and no `latest`");
  }
  std::string folder = Join(path, StepFolderName(*step));
  if (IsFile(Join(folder, kIndexFile))) return folder;
  return NoneNamed(path, absl::StrCat(StepFolderName(*step), ", which `latest` names"),
                   CommittedText(path));
}

std::vector<std::string> FilesOfCheckpoint(const std::string& path) {
  const absl::StatusOr<std::string> folder = ResolveCheckpoint(path);
  if (!folder.ok()) return {};
  std::vector<std::string> files = {Join(*folder, kIndexFile)};
  const absl::StatusOr<CheckpointIndex> index = ReadIndex(files[0]);
  if (!index.ok()) return files;
  for (const ShardFileRecord& file : index->files) {
    if (IsFile(Join(*folder, file.name))) files.push_back(Join(*folder, file.name));
  }
  return files;
}

absl::Status PointLatest(const std::string& directory, int64_t step) {
  return WriteWholeFile(Join(directory, kLatestFile), [step](std::ostream& out) {
    out << LatestText(StepFolderName(step));
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<FolderClaim>> FolderClaim::Take(const std::string& directory,
                                                               Absent absent) {
  if (absent == Absent::kMake && ::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
    return CannotWrite(directory, "cannot make the folder", errno);
  const int lock = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0 && errno == ENOENT && absent == Absent::kLeave) return nullptr;
  if (lock < 0) return CannotWrite(directory, "cannot open the folder", errno);
  auto claim = std::unique_ptr<FolderClaim>(new FolderClaim(lock));
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return claim;
  return Rejected({"W0741", directory, "a folder into which no other run writes checkpoints",
                   "another run that goes on and writes there",
                   "another folder, or wait for the end of that run (`weir top` lists the runs of "
                   "this machine)"});
}

FolderClaim::~FolderClaim() { ::close(lock_); }

std::string PendingCheckpoint::NewToken() {
  uint64_t bits = 0;
  (void)!::getrandom(&bits, sizeof(bits), 0);
  return absl::StrCat(absl::Hex(bits, absl::kZeroPad16));
}

absl::StatusOr<std::unique_ptr<PendingCheckpoint>> PendingCheckpoint::Open(
    const std::string& directory, int64_t step, const std::string& token, Role role) {
  auto pending = std::unique_ptr<PendingCheckpoint>(new PendingCheckpoint());
  pending->directory_ = directory;
  pending->role_ = role;
  pending->final_path_ = Join(directory, StepFolderName(step));
  const std::string folder = absl::StrCat(pending->final_path_, kPartialMark, token);
  if (::mkdir(directory.c_str(), 0777) != 0 && errno != EEXIST)
    return CannotWrite(directory, "cannot make the folder", errno);
  if (role == Role::kMake) RemoveLeftovers(directory);
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    return CannotWrite(folder, "cannot make the folder", errno);
  pending->folder_ = folder;
  pending->lock_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (pending->lock_ < 0) return CannotWrite(folder, "cannot open the folder", errno);
  // A file system without locks has no leftovers removed, either.
  ::flock(pending->lock_, LOCK_SH | LOCK_NB);
  return pending;
}

PendingCheckpoint::~PendingCheckpoint() {
  if (lock_ >= 0) ::close(lock_);
  if (role_ != Role::kMake || is_published_ || folder_.empty()) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

absl::Status PendingCheckpoint::Publish(const CheckpointIndex& index) {
  const std::string bytes = EncodeIndex(index);
  if (static_cast<int64_t>(bytes.size()) > kIndexBytesMax) {
    return Rejected({"W0046", final_path_,
                     absl::StrCat("an index of at most ", kIndexBytesMax, " bytes"),
                     absl::StrCat(bytes.size(), " bytes"), ""});
  }
  WEIR_RETURN_IF_ERROR(WriteWholeFile(Join(folder_, kIndexFile), [&](std::ostream& out) {
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return absl::OkStatus();
  }));
  if (const int error = FlushFolderAt(folder_))
    return CannotWrite(folder_, "cannot flush the folder", error);
  bool had_earlier = false;
  if (::rename(folder_.c_str(), final_path_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST)
      return CannotWrite(final_path_, "cannot give the folder its name", errno);
    // An earlier checkpoint of that step goes away under the partial name.
    had_earlier = true;
    if (::renameat2(AT_FDCWD, folder_.c_str(), AT_FDCWD, final_path_.c_str(), RENAME_EXCHANGE) !=
        0) {
      const std::string earlier = absl::StrCat(final_path_, kRemovedMark, NewToken());
      if (::rename(final_path_.c_str(), earlier.c_str()) != 0 ||
          ::rename(folder_.c_str(), final_path_.c_str()) != 0)
        return CannotWrite(final_path_, "cannot replace the earlier one", errno);
    }
  }
  is_published_ = true;
  if (const int error = FlushFolderAt(directory_))
    return CannotWrite(final_path_, "it is in its place, but its folder cannot be flushed", error);
  if (had_earlier) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    RemoveLeftovers(directory_);
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointIndex> MakeIndex(CheckpointFacts facts,
                                          std::map<std::string, TensorFacts> tensors,
                                          std::vector<ShardFileRecord> files,
                                          const std::string& path) {
  CheckpointIndex index{std::move(facts), std::move(tensors), std::move(files)};
  SealFacts(&index.facts);
  std::sort(index.files.begin(), index.files.end(),
            [](const ShardFileRecord& a, const ShardFileRecord& b) { return a.name < b.name; });
  for (auto& [name, tensor] : index.tensors) tensor.content = 0;
  for (const ShardFileRecord& file : index.files) {
    for (const ShardRecord& shard : file.shards) {
      const auto tensor = index.tensors.find(shard.tensor);
      if (tensor != index.tensors.end()) tensor->second.content += shard.content;
    }
  }
  WEIR_RETURN_IF_ERROR(CheckOwners(index, path));
  return index;
}

std::vector<int64_t> StepsToRemove(const std::vector<int64_t>& committed,
                                   const Retention& retention, std::optional<int64_t> latest,
                                   const std::set<int64_t>& in_use) {
  if (retention.keep <= 0) return {};
  std::vector<int64_t> steps = committed;
  std::sort(steps.begin(), steps.end(), std::greater<int64_t>());
  std::vector<int64_t> removed;
  for (size_t i = static_cast<size_t>(retention.keep); i < steps.size(); ++i) {
    const int64_t step = steps[i];
    if (retention.keep_every > 0 && step % retention.keep_every == 0) continue;
    if (step == latest || in_use.count(step) > 0) continue;
    removed.push_back(step);
  }
  std::reverse(removed.begin(), removed.end());
  return removed;
}

absl::Status RemoveCheckpoint(const std::string& directory, int64_t step) {
  const std::string path = Join(directory, StepFolderName(step));
  const std::string removed = absl::StrCat(path, kRemovedMark, PendingCheckpoint::NewToken());
  if (::rename(path.c_str(), removed.c_str()) != 0)
    return CannotWrite(path, "cannot remove the checkpoint", errno);
  std::error_code error;
  fs::remove_all(removed, error);
  if (error) return CannotWrite(removed, "cannot remove the checkpoint", error.value());
  return absl::OkStatus();
}

}  // namespace weir::store
