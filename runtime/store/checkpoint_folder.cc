#include "runtime/store/checkpoint_folder.h"

#include <errno.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/checksum.h"
#include "runtime/base/problem.h"
#include "runtime/base/status.h"
#include "runtime/store/file_lock.h"
#include "runtime/store/names_beside.h"
#include "runtime/store/pending_file.h"

namespace weir::store {
namespace {

namespace fs = std::filesystem;

constexpr char kLatestFile[] = "latest";
constexpr char kStepPrefix[] = "step-";
constexpr char kRemovedMark[] = ".removed-";
constexpr size_t kStepsShown = 8;
constexpr char kCannotMake[] = "cannot make a folder";
constexpr char kInUse[] = "W0741";
constexpr int kClaimAttempts = 5;
constexpr std::chrono::milliseconds kClaimWait(10);

std::string Join(const std::string& directory, const std::string& name) {
  return (fs::path(directory) / name).string();
}

bool IsFile(FileSystem* files, const std::string& path) {
  return files->KindOf(path) == FileSystem::Kind::kFile;
}

// Writes a file from start to end and flushes it. The name is not flushed.
absl::Status WriteFile(FileSystem* files, const std::string& path, const std::string& bytes) {
  std::unique_ptr<OpenedFile> file;
  if (const int error = files->Create(path, &file))
    return CannotWrite(path, "cannot make it", error);
  // The lock is for RemoveLeftovers of another run, where the file system has locks.
  file->TryLock(OpenedFile::Lock::kExclusive);
  if (const int error = file->WriteAt(0, bytes.data(), static_cast<int64_t>(bytes.size())))
    return CannotWrite(path, "write failed", error);
  if (const int error = file->Flush()) return CannotWrite(path, "cannot flush", error);
  return absl::OkStatus();
}

// Makes the folder of checkpoints where there is none.
absl::Status MakeDirectory(FileSystem* files, const std::string& directory) {
  const int error = files->MakeFolder(directory);
  if (error == 0 || error == EEXIST) return absl::OkStatus();
  return CannotWrite(directory, kCannotMake, error);
}

// Returns the folder around the folder of checkpoints, which may be written as "run/.".
std::string OuterFolder(const std::string& directory) {
  return FolderAround(fs::path(directory).lexically_normal().string());
}

std::string LatestText(const std::string& name) {
  return absl::StrCat(name, " ", absl::Hex(Crc32c(name.data(), name.size()), absl::kZeroPad8),
                      "\n");
}

// Returns whether a name is that of a step, perhaps with too few or too many digits.
bool IsLikeStep(const std::string& name) {
  absl::string_view digits = name;
  return absl::ConsumePrefix(&digits, kStepPrefix) && !digits.empty() &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string CommittedText(FileSystem* files, const std::string& directory) {
  const std::vector<int64_t> steps = CommittedSteps(directory, files);
  if (steps.empty()) return "no committed checkpoint";
  std::vector<std::string> names;
  for (size_t i = steps.size() - std::min(steps.size(), kStepsShown); i < steps.size(); ++i)
    names.push_back(StepFolderName(steps[i]));
  return absl::StrJoin(names, ", ");
}

absl::Status NoneNamed(FileSystem* files, const std::string& directory, const std::string& expected,
                       const std::string& found) {
  const std::vector<int64_t> steps = CommittedSteps(directory, files);
  std::string advice = "the folder that a run was given as --checkpoint";
  if (!steps.empty()) {
    advice = absl::StrCat("a committed checkpoint by its own path, ",
                          Join(directory, StepFolderName(steps.back())));
  } else if (const std::vector<std::string> indices = WeightIndicesIn(directory);
             !indices.empty()) {
    advice = absl::StrCat("an index of weights by its own path, ", indices.front());
  }
  return Missing({"W0711", directory, expected, found, advice});
}

// Returns the steps up to `step` of the committed checkpoints that are of the run.
std::vector<int64_t> StepsOfRun(FileSystem* files, const std::string& directory, int64_t step,
                                const Retention& retention) {
  if (retention.keep <= 0) return {step};
  std::vector<int64_t> steps = CommittedSteps(directory, files);
  std::erase_if(steps, [&](int64_t other) {
    if (other >= step || !retention.own.has_value()) return other > step;
    const auto own = retention.own->lower_bound({other, 0});
    if (own == retention.own->end() || own->first != other) return true;
    const std::optional<uint32_t> sum =
        ReadSumOfIndex(Join(Join(directory, StepFolderName(other)), kIndexFile), files);
    return !sum.has_value() || retention.own->count({other, *sum}) == 0;
  });
  return steps;
}

absl::Status InUse(const std::string& directory) {
  return Missing(
      {kInUse, directory, "a folder into which no other run writes checkpoints",
       absl::StrCat("another run that goes on and writes there", LockHolderText(directory)),
       "another folder, or wait for the end of that run (`weir top` lists the runs of "
       "this machine)"});
}

// Removes what nobody writes any more, and halves of removed checkpoints. A checkpoint that was
// about to be replaced gets its name back if the other one has not got the name.
void RemoveLeftovers(FileSystem* files, const std::string& directory) {
  std::vector<std::string> leftovers;
  for (const Leftover& leftover : LeftoversIn(directory, files)) {
    if (leftover.kind != Leftover::Kind::kWithoutIndex) leftovers.push_back(leftover.name);
  }
  if (leftovers.empty()) return;
  for (const std::string& name : leftovers) {
    const size_t mark = name.find(kReplacedMark);
    if (mark == std::string::npos) continue;
    const std::string owner = Join(directory, name.substr(0, mark));
    if (files->KindOf(owner) == FileSystem::Kind::kNone)
      files->Rename(Join(directory, name), owner);
  }
  // A leftover may still have the name of a committed checkpoint on disk. If its files went first
  // and the power failed, the name would be that of a damaged checkpoint.
  if (FlushFolder(files, directory) != 0) return;
  for (const std::string& name : leftovers) {
    const std::string path = Join(directory, name);
    std::unique_ptr<OpenedFile> opened;
    if (files->Open(path, &opened) == 0 && opened->TryLock(OpenedFile::Lock::kExclusive) == 0)
      RemoveTree(files, path);
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

bool IsOfCheckpoints(const std::string& name) {
  return name == kLatestFile ||
         (absl::StartsWith(name, kStepPrefix) && !absl::StrContains(name, kPartialMark));
}

std::vector<int64_t> CommittedSteps(const std::string& directory, FileSystem* files) {
  std::vector<int64_t> steps;
  for (const std::string& name : files->NamesIn(directory)) {
    const std::optional<int64_t> step = StepOfName(name);
    if (step.has_value() && IsFile(files, Join(Join(directory, name), kIndexFile)))
      steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool IsCheckpointFolder(const std::string& path) {
  FileSystem* const files = MachineFiles();
  return files->KindOf(path) == FileSystem::Kind::kFolder &&
         (IsFile(files, Join(path, kIndexFile)) || IsFile(files, Join(path, kLatestFile)) ||
          !CommittedSteps(path).empty());
}

bool IsLatestFile(const std::string& path) {
  return fs::path(path).filename() == kLatestFile && IsFile(MachineFiles(), path) &&
         !CommittedSteps(FolderAround(path)).empty();
}

absl::StatusOr<std::optional<int64_t>> ReadLatest(const std::string& directory, FileSystem* files) {
  const std::string path = Join(directory, kLatestFile);
  const FileSystem::Kind kind = files->KindOf(path);
  if (kind == FileSystem::Kind::kNone) return std::nullopt;
  if (kind != FileSystem::Kind::kFile) {
    return Damaged({"W0711", path, "a file with the name of a checkpoint", "no plain file",
                    "a committed checkpoint by its own path (`weir checkpoint ls`)"});
  }
  WEIR_ASSIGN_OR_RETURN(const FileBytes bytes, files->Map(path, "name of a checkpoint"));
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data),
                               static_cast<size_t>(bytes.size));
  const std::string name(text.substr(0, text.find(' ')));
  const std::optional<int64_t> step = StepOfName(name);
  if (step.has_value() && text == LatestText(name)) return step;
  const std::vector<int64_t> steps = CommittedSteps(directory, files);
  return Damaged({"W0711", path, "the name of a checkpoint and its CRC32C", "other bytes",
                  steps.empty() ? ""
                                : absl::StrCat("a committed checkpoint by its own path, ",
                                               Join(directory, StepFolderName(steps.back())))});
}

absl::Status CheckStepIsThere(const std::string& path, FileSystem* files) {
  const std::string name = fs::path(WithoutSlashes(path)).filename().string();
  const FileSystem::Kind kind = files->KindOf(path);
  const bool is_folder = kind == FileSystem::Kind::kFolder;
  // A folder of another program may have a name that begins like that of a step.
  if (is_folder ? !StepOfName(name).has_value() : !IsLikeStep(name)) return absl::OkStatus();
  const std::string directory = FolderAround(path);
  if (is_folder) {
    // The folder of a run may have any name.
    if (IsFile(files, Join(path, kIndexFile)) || IsFile(files, Join(path, kLatestFile)) ||
        !CommittedSteps(path, files).empty())
      return absl::OkStatus();
    return NoneNamed(files, directory, name + " with its index",
                     absl::StrCat("none in it, beside ", CommittedText(files, directory)));
  }
  if (kind != FileSystem::Kind::kNone || CommittedSteps(directory, files).empty())
    return absl::OkStatus();
  return NoneNamed(files, directory, name, CommittedText(files, directory));
}

absl::StatusOr<std::string> ResolveCheckpoint(const std::string& path, FileSystem* files) {
  if (IsFile(files, Join(path, kIndexFile))) return path;
  WEIR_RETURN_IF_ERROR(CheckStepIsThere(path, files));
  WEIR_ASSIGN_OR_RETURN(const std::optional<int64_t> step, ReadLatest(path, files));
  if (!step.has_value()) {
    return NoneNamed(files, path, "a checkpoint, or a folder whose `latest` names one",
                     files->KindOf(path) == FileSystem::Kind::kNone
                         ? "nothing at this path"
                         : CommittedText(files, path) + " and no `latest`");
  }
  std::string folder = Join(path, StepFolderName(*step));
  if (IsFile(files, Join(folder, kIndexFile))) return folder;
  return NoneNamed(files, path, absl::StrCat(StepFolderName(*step), ", which `latest` names"),
                   CommittedText(files, path));
}

std::vector<std::string> FilesOfCheckpoint(const std::string& path) {
  const absl::StatusOr<std::string> folder = ResolveCheckpoint(path);
  if (!folder.ok()) return {};
  std::vector<std::string> paths = {Join(*folder, kIndexFile)};
  const absl::StatusOr<CheckpointIndex> index = ReadIndex(paths[0]);
  if (!index.ok()) return paths;
  for (const ShardFileRecord& file : index->files) {
    if (IsFile(MachineFiles(), Join(*folder, file.name))) paths.push_back(Join(*folder, file.name));
  }
  return paths;
}

absl::Status PointLatest(const std::string& directory, int64_t step, FileSystem* files) {
  const std::string path = Join(directory, kLatestFile);
  const std::string partial = absl::StrCat(path, kPartialMark, files->NewToken());
  absl::Status written = WriteFile(files, partial, LatestText(StepFolderName(step)));
  if (written.ok()) {
    if (const int error = files->Rename(partial, path))
      written = CannotWrite(path, "cannot put it in its place", error);
  }
  if (!written.ok()) {
    files->RemoveFile(partial);
    return written;
  }
  if (const int error = FlushFolder(files, directory))
    return CannotWrite(path, "it is in its place, but its folder cannot be flushed", error);
  return absl::OkStatus();
}

std::vector<Leftover> LeftoversIn(const std::string& directory, FileSystem* files) {
  std::vector<Leftover> leftovers;
  for (const std::string& name : files->NamesIn(directory)) {
    const bool is_step = absl::StartsWith(name, kStepPrefix);
    if (!is_step && !absl::StartsWith(name, absl::StrCat(kLatestFile, kPartialMark))) continue;
    if (absl::StrContains(name, kPartialMark)) {
      leftovers.push_back({name, Leftover::Kind::kPartial});
    } else if (absl::StrContains(name, kRemovedMark)) {
      leftovers.push_back({name, Leftover::Kind::kRemoved});
    } else if (absl::StrContains(name, kReplacedMark)) {
      leftovers.push_back({name, Leftover::Kind::kReplaced});
    } else if (StepOfName(name).has_value() &&
               !IsFile(files, Join(Join(directory, name), kIndexFile))) {
      leftovers.push_back({name, Leftover::Kind::kWithoutIndex});
    }
  }
  std::sort(leftovers.begin(), leftovers.end(),
            [](const Leftover& a, const Leftover& b) { return a.name < b.name; });
  return leftovers;
}

std::string CheckpointAround(const std::string& path) {
  std::error_code error;
  fs::path folder = fs::weakly_canonical(fs::absolute(path, error), error);
  for (; !error && folder.has_relative_path(); folder = folder.parent_path()) {
    const std::string index = (folder / kIndexFile).string();
    // A checkpoint may have been renamed, and another program's file may have the name of an index.
    if (IsFile(MachineFiles(), index) &&
        (StepOfName(folder.filename().string()).has_value() || ReadIndex(index).ok()))
      return folder.string();
  }
  return "";
}

absl::Status TryFolder(const std::string& directory) {
  FileSystem* const files = MachineFiles();
  const bool is_there = files->KindOf(directory) != FileSystem::Kind::kNone;
  // If this process is killed at the wrong moment, the next checkpoint removes this name.
  const std::string tried =
      is_there ? Join(directory, absl::StrCat(kLatestFile, kPartialMark, files->NewToken()))
               : directory;
  const int error = files->MakeFolder(tried);
  if (error == 0) files->RemoveFolder(tried);
  if (error == 0 || error == EEXIST) return absl::OkStatus();
  if (is_there && (error == ENOSPC || error == EDQUOT)) return absl::OkStatus();
  return CannotWrite(directory, is_there ? "cannot make files in this folder" : kCannotMake, error);
}

absl::StatusOr<std::unique_ptr<FolderClaim>> FolderClaim::Take(const std::string& directory) {
  FileSystem* const files = MachineFiles();
  for (int attempt = 1;; ++attempt) {
    int error = files->MakeFolder(directory);
    const bool is_made = error == 0;
    if (!is_made && error != EEXIST) return CannotWrite(directory, kCannotMake, error);
    std::unique_ptr<OpenedFile> folder;
    error = files->Open(directory + "/", &folder);
    if (error != 0) return CannotWrite(directory, "cannot open the folder", error);
    // Somebody may have renamed the folder before it was locked.
    if (folder->TryLock(OpenedFile::Lock::kExclusive) != EWOULDBLOCK &&
        folder->IsAt(directory + "/"))
      return std::unique_ptr<FolderClaim>(new FolderClaim(directory, std::move(folder), is_made));
    if (attempt == kClaimAttempts) return InUse(directory);
    folder.reset();
    // Check of another program holds a lock for a moment.
    std::this_thread::sleep_for(kClaimWait);
  }
}

FolderClaim::~FolderClaim() {
  if (is_made_ && IsInPlace()) MachineFiles()->RemoveFolder(directory_);
}

bool FolderClaim::IsOfAnotherRun(const absl::Status& status) {
  const std::optional<Problem> problem = ProblemOf(status);
  return absl::IsNotFound(status) && problem.has_value() && problem->code == kInUse;
}

absl::Status FolderClaim::Check(const std::string& directory) {
  std::unique_ptr<OpenedFile> folder;
  // A folder that cannot be opened is no error here: whoever writes into it says so.
  if (MachineFiles()->Open(directory + "/", &folder) != 0) return absl::OkStatus();
  return folder->TryLock(OpenedFile::Lock::kShared) == EWOULDBLOCK ? InUse(directory)
                                                                   : absl::OkStatus();
}

std::string PendingCheckpoint::NewToken() { return MachineFiles()->NewToken(); }

absl::StatusOr<std::unique_ptr<PendingCheckpoint>> PendingCheckpoint::Open(
    const std::string& directory, int64_t step, const std::string& token, Role role,
    FileSystem* files) {
  auto pending = std::unique_ptr<PendingCheckpoint>(new PendingCheckpoint(files));
  pending->directory_ = directory;
  pending->role_ = role;
  pending->final_path_ = Join(directory, StepFolderName(step));
  const std::string folder = absl::StrCat(pending->final_path_, kPartialMark, token);
  WEIR_RETURN_IF_ERROR(MakeDirectory(files, directory));
  if (role == Role::kMake) RemoveLeftovers(files, directory);
  if (const int error = files->MakeFolder(folder); error != 0 && error != EEXIST)
    return CannotWrite(folder, "cannot make the folder", error);
  pending->folder_ = folder;
  if (const int error = files->Open(folder, &pending->lock_))
    return CannotWrite(folder, "cannot open the folder", error);
  // A file system without locks has no leftovers removed, either.
  pending->lock_->TryLock(OpenedFile::Lock::kShared);
  return pending;
}

PendingCheckpoint::~PendingCheckpoint() {
  if (role_ == Role::kMake && !is_published_ && !folder_.empty()) RemoveTree(files_, folder_);
}

absl::Status PendingCheckpoint::Publish(const CheckpointIndex& index) {
  const std::string bytes = EncodeIndex(index);
  if (static_cast<int64_t>(bytes.size()) > kIndexBytesMax) {
    return Rejected({"W0046", final_path_,
                     absl::StrCat("an index of at most ", kIndexBytesMax, " bytes"),
                     absl::StrCat(bytes.size(), " bytes"), ""});
  }
  // Somebody may have renamed the folder of checkpoints, and another run may have made a new one.
  // Shards of this run that come later lie in the new one, under the same name.
  if (!lock_->IsAt(folder_))
    return CannotWrite(folder_, "somebody has renamed or removed the folder", ESTALE);
  WEIR_RETURN_IF_ERROR(WriteFile(files_, Join(folder_, kIndexFile), bytes));
  if (const int error = lock_->Flush())
    return CannotWrite(folder_, "cannot flush the folder", error);
  bool had_earlier = false;
  std::string earlier = folder_;
  if (const int error = files_->Rename(folder_, final_path_)) {
    if (error != ENOTEMPTY && error != EEXIST)
      return CannotWrite(final_path_, "cannot give the folder its name", error);
    // An earlier checkpoint of that step goes away under the partial name.
    had_earlier = true;
    if (files_->Exchange(folder_, final_path_) != 0) {
      earlier = absl::StrCat(final_path_, kReplacedMark, files_->NewToken());
      int failed = files_->Rename(final_path_, earlier);
      if (failed == 0) {
        failed = files_->Rename(folder_, final_path_);
        if (failed != 0) files_->Rename(earlier, final_path_);
      }
      if (failed != 0) return CannotWrite(final_path_, "cannot replace the earlier one", failed);
    }
  }
  is_published_ = true;
  index_sum_ = SumOfIndex(bytes);
  if (const int error = FlushFolder(files_, directory_))
    return CannotWrite(final_path_, "it is in its place, but its folder cannot be flushed", error);
  // A new folder of checkpoints must keep its own name, too. The steps do not wait for this flush.
  if (const int error = FlushFolder(files_, OuterFolder(directory_)))
    return CannotWrite(directory_, "cannot flush the folder around it", error);
  if (had_earlier) RemoveTree(files_, earlier);
  return absl::OkStatus();
}

absl::StatusOr<std::string> PendingCheckpoint::Commit(const CheckpointIndex& index,
                                                      const Retention& retention) {
  WEIR_RETURN_IF_ERROR(Publish(index));
  const int64_t step = index.facts.step;
  WEIR_RETURN_IF_ERROR(PointLatest(directory_, step, files_));
  for (const int64_t old :
       StepsToRemove(StepsOfRun(files_, directory_, step, retention), retention, step, {})) {
    if (const absl::Status removed = RemoveCheckpoint(directory_, old, files_); !removed.ok())
      return absl::StrCat("the checkpoint of step ", old, " stays: ", removed.message());
  }
  return std::string();
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

std::vector<int64_t> StepsToResume(std::vector<int64_t> committed, std::optional<int64_t> latest) {
  std::sort(committed.begin(), committed.end(), std::greater<int64_t>());
  std::vector<int64_t> steps = committed;
  if (latest.has_value()) std::erase_if(steps, [&](int64_t step) { return step > *latest; });
  return steps.empty() ? committed : steps;
}

absl::Status RemoveCheckpoint(const std::string& directory, int64_t step, FileSystem* files) {
  const std::string path = Join(directory, StepFolderName(step));
  const std::string removed = absl::StrCat(path, kRemovedMark, files->NewToken());
  if (const int error = files->Rename(path, removed))
    return CannotWrite(path, "cannot remove the checkpoint", error);
  // Before the new name is on disk, the files belong to a committed checkpoint.
  if (const int error = FlushFolder(files, directory))
    return CannotWrite(removed, "cannot flush the folder around it", error);
  if (const int error = RemoveTree(files, removed))
    return CannotWrite(removed, "cannot remove the checkpoint", error);
  return absl::OkStatus();
}

}  // namespace weir::store
