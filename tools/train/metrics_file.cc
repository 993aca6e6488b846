#include "tools/train/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/file_lock.h"
#include "tools/train/open_output.h"

namespace weir::train {
namespace {

constexpr char kFirstStep[] = "{\"step\":%lld";  // how MetricLine begins

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path,
                                                               Begin begin) {
  std::unique_ptr<MetricsFile> file(new MetricsFile(path, begin));
  if (const int error = file->Reopen(); error == EWOULDBLOCK) {
    return Missing({"W0961", "--metrics " + path, "a file that no other job writes",
                    absl::StrCat("one that a running job writes", store::LockHolderText(path)),
                    "another name, or wait until that job has ended"});
  } else if (error == ENXIO) {
    return Missing({"W0075", "--metrics " + path, "a file, or a pipe that somebody reads",
                    "a pipe that nobody reads", "start its reader first"});
  } else if (error != 0) {
    return Missing({"W0075", "--metrics " + path, "a file that can be written", strerror(error),
                    "check that the folder exists"});
  }
  return file;
}

std::unique_ptr<MetricsFile> MetricsFile::OpenAgain(const std::string& path, Begin begin) {
  std::unique_ptr<MetricsFile> file(new MetricsFile(path, begin));
  file->Reopen();
  return file;
}

MetricsFile::~MetricsFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int MetricsFile::Reopen() {
  if (descriptor_ >= 0) ::close(descriptor_);
  // A blocking open would wait for ever on a pipe without a reader.
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor_ < 0) return errno;
  ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) & ~O_NONBLOCK);
  struct stat info;
  regular_ = ::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode);
  if (follows_path_ && regular_) kept_bytes_ = info.st_size;
  // A file system without locks has none to respect.
  if (!regular_ || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return 0;
  ::close(descriptor_);
  descriptor_ = -1;
  return EWOULDBLOCK;
}

int MetricsFile::FollowPath(int64_t step, std::string* news) {
  const OpenOutput output = FindOpenOutput(descriptor_, path_);
  if (output.place == OpenOutput::Place::kAtPath) {
    lost_file_.NoteAtPath();
    return 0;
  }
  // Neither the file that somebody has taken away nor that at the path is the run's to empty.
  begin_ = Begin::kAfterOthers;
  follows_path_ = true;
  const int old = std::exchange(descriptor_, -1);
  const off_t old_kept_bytes = kept_bytes_;
  const int error = Reopen();
  if (lost_file_.KeepsFile(output, error, last_step_, step, news)) {
    descriptor_ = old;
    kept_bytes_ = old_kept_bytes;
    regular_ = true;
    return 0;
  }
  ::close(old);
  return error;
}

std::string MetricsFile::Write(const MetricLine& line) {
  std::string news;
  int error = 0;
  if (descriptor_ < 0) {
    error = Reopen();
  } else if (regular_) {
    error = FollowPath(line.step(), &news);
  }
  if (error == 0 && regular_ && begin_ == Begin::kAnew && ::ftruncate(descriptor_, 0) != 0)
    error = errno;
  if (error == 0 && begin_ == Begin::kAfterOthers && kept_steps_.has_value())
    error = CutAfter(*kept_steps_);
  if (error == 0) {
    begin_ = Begin::kAfterOthers;
    kept_steps_.reset();
  }
  if (error == 0) error = WriteText(line.Text() + "\n");
  if (error == 0) last_step_ = line.step();
  const std::string lost = lost_.Note(error);
  return absl::StrCat(news, news.empty() || lost.empty() ? "" : "\n", lost);
}

int MetricsFile::CutAfter(int64_t step) {
  if (!regular_) return 0;
  // The open file may have another name than path_ by now.
  std::ifstream file(absl::StrCat("/proc/self/fd/", descriptor_), std::ios::binary);
  if (!file.seekg(kept_bytes_)) return 0;
  off_t end = kept_bytes_;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    long long of_line = 0;
    if (std::sscanf(line.c_str(), kFirstStep, &of_line) == 1 && of_line > step) break;
    end += static_cast<off_t>(line.size()) + 1;
  }
  struct stat info;
  if (::fstat(descriptor_, &info) != 0) return errno;
  return info.st_size > end && ::ftruncate(descriptor_, end) != 0 ? errno : 0;
}

// Writes the text in one piece, so that other writers cannot come between. If a full disk took only
// a part of the line, that part is removed again.
int MetricsFile::WriteText(const std::string& text) {
  ssize_t done = -1;
  do {
    done = ::write(descriptor_, text.data(), text.size());
  } while (done < 0 && errno == EINTR);
  if (done < 0) return errno;
  if (static_cast<size_t>(done) == text.size()) return 0;
  struct stat info;
  const bool taken_back = regular_ && ::fstat(descriptor_, &info) == 0 &&
                          ::ftruncate(descriptor_, info.st_size - done) == 0;
  return taken_back || done == 0 ? ENOSPC : EIO;
}

}  // namespace weir::train
