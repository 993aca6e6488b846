#include "tools/fleet/input_watch.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/problem.h"

namespace weir::fleet {

InputWatch::InputWatch(std::vector<std::string> data, std::vector<std::string> start)
    : data_(std::move(data)), start_(std::move(start)) {
  for (const std::string& path : FilesFor(Use::kDataAndStart)) known_.emplace(path, Look(path));
}

std::vector<std::string> InputWatch::FilesFor(Use use) const {
  std::vector<std::string> files = data_;
  if (use == Use::kDataAndStart) files.insert(files.end(), start_.begin(), start_.end());
  return files;
}

InputWatch::Known InputWatch::Look(const std::string& path) {
  Known file;
  struct stat info;
  if (::stat(path.c_str(), &info) == 0) {
    file.device = info.st_dev;
    file.inode = info.st_ino;
    file.changed_seconds = info.st_mtim.tv_sec;
  }
  file.print = FingerprintOf(path);
  return file;
}

std::string InputWatch::Text(const Known& file) {
  const std::string text = FingerprintText(file.print);
  if (file.print.size < 0) return text;
  return absl::StrCat(
      text, ", last changed ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::FromUnixSeconds(file.changed_seconds),
                       absl::UTCTimeZone()));
}

absl::Status InputWatch::CheckKnown(const std::vector<std::string>& files) const {
  std::vector<Problem> problems;
  for (const std::string& path : files) {
    const auto known = known_.find(path);
    if (known == known_.end()) continue;
    const Known& before = known->second;
    const Known now = Look(path);
    if (now.print == before.print) continue;
    const bool is_replaced = now.device != before.device || now.inode != before.inode;
    const std::string how = now.print.size < 0 ? ""
                            : is_replaced      ? "another file in its place: "
                                               : "other contents in the same file: ";
    problems.push_back({"W0968", path, absl::StrCat("the file as the run began: ", Text(before)),
                        absl::StrCat(how, Text(now)),
                        "put that file back and go on with --resume; or go on with --resume, or "
                        "begin anew, on the file as it is now"});
  }
  return problems.empty() ? absl::OkStatus() : ErrorOfAll(absl::StatusCode::kDataLoss, problems);
}

std::optional<FileFingerprint> InputWatch::PrintOf(const std::string& path) const {
  const auto known = known_.find(path);
  if (known == known_.end()) return std::nullopt;
  return known->second.print;
}

}  // namespace weir::fleet
