#include "runtime/store/replaced_files.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <utility>

#include "runtime/store/names_beside.h"

namespace weir::store {
ReplacedFiles ReplacedFiles::LeftBeside(const std::vector<std::string>& paths) {
  ReplacedFiles left;
  for (const std::string& path : paths) {
    for (std::string& aside : NamesBeside(path, kReplacedMark))
      left.files_.push_back({path, std::move(aside)});
  }
  return left;
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

std::vector<std::string> ReplacedFiles::paths() const {
  std::vector<std::string> paths;
  for (const File& file : files_) paths.push_back(file.path);
  return paths;
}

}  // namespace weir::store
