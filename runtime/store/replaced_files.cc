#include "runtime/store/replaced_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/problem.h"
#include "runtime/base/unit_text.h"
#include "runtime/store/names_beside.h"
#include "runtime/store/pending_file.h"

namespace weir::store {

std::vector<ReplacedFiles> ReplacedFiles::LeftBeside(const std::vector<std::string>& paths) {
  struct Set {
    ReplacedFiles files;
    std::pair<int64_t, int64_t> time;  // of the renaming of its first file
  };
  std::map<std::string, Set> sets;  // by ending
  for (NameBeside& beside : NamesBeside(paths, kReplacedMark)) {
    struct stat info;
    if (::lstat(beside.name.c_str(), &info) != 0) continue;
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) continue;
    const std::string ending = beside.name.substr(beside.name.rfind(kReplacedMark));
    const auto [it, is_new] = sets.try_emplace(ending);
    if (is_new) {
      it->second.files.ending_ = ending;
      it->second.time = {info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
    }
    it->second.files.files_.push_back({std::move(beside.path), std::move(beside.name)});
  }
  std::vector<Set> sorted;
  for (auto& [ending, set] : sets) sorted.push_back(std::move(set));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Set& a, const Set& b) { return a.time > b.time; });
  std::vector<ReplacedFiles> left;
  for (Set& set : sorted) left.push_back(std::move(set.files));
  return left;
}

absl::Status ReplacedFiles::ClearUp(const std::string& first,
                                    const std::vector<std::string>& others) {
  const std::vector<std::string> firsts = WithTargets({first});
  std::vector<std::string> paths = firsts;
  for (std::string& path : WithTargets(others)) paths.push_back(std::move(path));
  PendingFile::RemoveLeftovers(paths);
  struct stat info;
  bool is_whole = ::stat(first.c_str(), &info) == 0;
  for (ReplacedFiles& left : LeftBeside(paths)) {
    const bool has_first =
        std::find(firsts.begin(), firsts.end(), left.files_[0].path) != firsts.end();
    if (const int error = is_whole ? left.Drop() : left.PutBack()) {
      return CannotWrite(left.files_.back().path,
                         is_whole ? "cannot remove what an earlier export has replaced"
                                  : "cannot put the file of an earlier export back",
                         error);
    }
    is_whole = is_whole || has_first;
  }
  return absl::OkStatus();
}

int ReplacedFiles::SetAside(const std::string& path) {
  if (ending_.empty()) {
    if (const int error = NewNameBeside("", kReplacedMark, &ending_)) return error;
  }
  const std::string aside = path + ending_;
  if (::rename(path.c_str(), aside.c_str()) != 0) return errno == ENOENT ? 0 : errno;
  files_.push_back({path, aside});
  return FlushFolderOf(path);
}

int ReplacedFiles::Flush() const {
  // Files that lie elsewhere are those to which links lead.
  std::string last;
  for (const File& file : files_) {
    if (FolderOf(file.path) == last) continue;
    last = FolderOf(file.path);
    if (const int error = FlushFolderOf(file.path)) return error;
  }
  return 0;
}

int ReplacedFiles::PutBack() {
  if (files_.empty()) return 0;
  const ReplacedFiles all = *this;
  while (!files_.empty()) {
    // The first makes the others readable, so they come to disk before it. A disk that does not
    // flush is no reason to leave the first aside.
    if (files_.size() == 1) all.Flush();
    const File& file = files_.back();
    if (::rename(file.aside.c_str(), file.path.c_str()) != 0 && errno != ENOENT) return errno;
    files_.pop_back();
  }
  all.Flush();
  return 0;
}

int ReplacedFiles::Drop() {
  while (!files_.empty()) {
    if (::unlink(files_.back().aside.c_str()) != 0 && errno != ENOENT) return errno;
    files_.pop_back();
  }
  return 0;
}

absl::Status ReplacedFiles::GoBack(const absl::Status& failure,
                                   const std::vector<std::string>& paths, size_t num_published) {
  struct stat info;
  const auto has_last = [&] { return ::stat(paths.back().c_str(), &info) == 0; };
  if (num_published == paths.size() && has_last()) return failure;
  for (size_t i = 0; i < num_published; ++i) {
    std::string target = paths[i];
    if (FollowLinks(&target) != 0) continue;
    const bool is_replaced = std::any_of(files_.begin(), files_.end(), [&](const File& file) {
      return std::filesystem::path(file.path).lexically_normal() ==
             std::filesystem::path(target).lexically_normal();
    });
    // PutBack replaces the others in one step.
    if (!is_replaced) ::unlink(target.c_str());
  }
  std::string text, hint;
  if (const int error = PutBack()) {
    text = absl::StrCat(
        "; ", files_.back().path, " of the earlier export cannot be put back: ", strerror(error),
        "; ", Plural(static_cast<int64_t>(files_.size()), "file"), " of it, from ", files_[0].path,
        " on, ", files_.size() == 1 ? "has" : "have", " ", ending_, " at the end of the name");
    hint =
        "mend what hinders that, and export again, which first puts them back where the file "
        "system has locks";
  } else {
    text = has_last() ? "; the earlier export is in its place again"
                      : "; no file of the new export stays";
  }
  std::optional<Problem> problem = ProblemOf(failure);
  if (!problem.has_value())
    return absl::Status(failure.code(), absl::StrCat(failure.message(), text));
  problem->found += text;
  if (!hint.empty()) problem->hint = hint;
  return ErrorOf(failure.code(), *problem);
}

std::vector<std::string> ReplacedFiles::paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

}  // namespace weir::store
