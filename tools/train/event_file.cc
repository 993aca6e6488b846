#include "tools/train/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/event_file.pb.h"
#include "runtime/base/checksum.h"
#include "runtime/base/status.h"
#include "runtime/store/pending_file.h"
#include "tools/train/open_output.h"

namespace weir::train {
namespace {

constexpr char kVersion[] = "brain.Event:2";
constexpr int kNamesTried = 100;
constexpr char kPrefix[] = "events.out.tfevents.";
constexpr size_t kDigits = 10;  // of the seconds in a name

void AppendNumber(uint64_t number, int bytes, std::string* to) {
  for (int i = 0; i < bytes; ++i) to->push_back(static_cast<char>(number >> (8 * i)));
}

// Returns the checksum of some bytes in the form of the frame: turned and moved, so that a checksum
// of bytes that have checksums inside is none of them.
uint32_t MaskedChecksum(const std::string& bytes) {
  const uint32_t checksum = Crc32c(bytes.data(), bytes.size());
  return ((checksum >> 15) | (checksum << 17)) + 0xa282ead8u;
}

std::string FrameOfEvent(const proto::LogEvent& event) {
  return FrameOf(event.SerializeAsString());
}

// Returns the seconds for the name of a new file. TensorBoard reads files in the order of their
// names, so the seconds are after those of each file in the folder, also of a run that began in
// this second.
int64_t SecondsOfName(const std::string& folder, int64_t now) {
  int64_t seconds = now;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    const std::string filename = file->path().filename();
    absl::string_view name = filename;
    int64_t of_file = 0;
    if (absl::ConsumePrefix(&name, kPrefix) && name.find('.') == kDigits &&
        absl::SimpleAtoi(name.substr(0, kDigits), &of_file))
      seconds = std::max(seconds, of_file + 1);
  }
  return seconds;
}

}  // namespace

std::string FrameOf(const std::string& event) {
  std::string frame;
  AppendNumber(event.size(), 8, &frame);
  AppendNumber(MaskedChecksum(frame), 4, &frame);
  frame += event;
  AppendNumber(MaskedChecksum(event), 4, &frame);
  return frame;
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::Status EventFile::CheckFolder(const std::string& folder) {
  struct stat info;
  const bool is_there = ::stat(folder.c_str(), &info) == 0;
  int error = ENOTDIR;
  if (is_there && S_ISDIR(info.st_mode)) {
    error = store::PendingFile::Try(folder + "/" + kPrefix);
  } else if (!is_there) {
    // Where a file can be made, a folder can be made.
    error = store::PendingFile::Try((std::filesystem::path(folder) / "").parent_path().string());
  }
  if (error == 0) return absl::OkStatus();
  return Missing({"W0075", "--tensorboard " + folder, "a folder in which files can be made",
                  strerror(error), "check that the folder above exists, or name another"});
}

std::string EventFile::Tag(const std::string& metric) {
  if (metric == "lr") return "learning_rate";
  if (metric == "step_seconds") return "step_time";
  if (metric == "recovery_seconds") return "recovery_time";
  if (metric == "growth_seconds") return "growth_time";
  if (metric == "checkpoint_seconds") return "checkpoint_time";
  if (metric == "checkpoint_stall_seconds") return "checkpoint_stall_time";
  if (metric == "tokens_per_second" || metric == "samples_per_second")
    return metric.substr(0, metric.size() - strlen("econd"));
  if (absl::StartsWith(metric, "eval_")) return "eval/" + metric.substr(strlen("eval_"));
  return metric;
}

// Makes a file of a name that no other file has, and begins it.
int EventFile::Open(int64_t step, double wall_seconds) {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  size_ = 0;
  if (::mkdir(folder_.c_str(), 0777) != 0 && errno != EEXIST) return errno;
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  const int64_t seconds = SecondsOfName(folder_, static_cast<int64_t>(wall_seconds));
  for (int i = 0; i < kNamesTried && descriptor_ < 0; ++i) {
    path_ = absl::StrFormat("%s/%s%010d.%s.%d.%d", folder_, kPrefix, seconds, host, ::getpid(), i);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) return errno;
  }
  if (descriptor_ < 0) return EEXIST;
  proto::LogEvent version, start;
  version.set_wall_time(wall_seconds);
  version.set_file_version(kVersion);
  start.set_wall_time(wall_seconds);
  start.set_step(step);
  start.mutable_session_log()->set_status(proto::LogSession::START);
  const int error = Append(FrameOfEvent(version) + FrameOfEvent(start));
  if (error != 0) {  // an event file without its begin would be none
    ::unlink(path_.c_str());
    ::close(std::exchange(descriptor_, -1));
  }
  return error;
}

int EventFile::Append(const std::string& bytes) {
  ssize_t done = -1;
  do {
    done = ::write(descriptor_, bytes.data(), bytes.size());
  } while (done < 0 && errno == EINTR);
  if (done == static_cast<ssize_t>(bytes.size())) {
    size_ += done;
    return 0;
  }
  if (done < 0) return errno;
  return ::ftruncate(descriptor_, size_) == 0 ? ENOSPC : EIO;
}

int EventFile::FollowPath(int64_t step, double wall_seconds, std::string* news) {
  const OpenOutput output = FindOpenOutput(descriptor_, path_);
  if (output.place == OpenOutput::Place::kAtPath) {
    lost_file_.NoteAtPath();
    return 0;
  }
  const std::string path = path_;
  const int64_t size = size_;
  const int old = std::exchange(descriptor_, -1);
  const int error = Open(step, wall_seconds);
  if (lost_file_.KeepsFile(output, error, last_step_, step, news)) {
    descriptor_ = old;
    path_ = path;
    size_ = size;
    return 0;
  }
  ::close(old);
  return error;
}

std::string EventFile::Write(int64_t step, double wall_seconds, const Scalars& values) {
  std::string news;
  int error = descriptor_ < 0 ? Open(step, wall_seconds) : FollowPath(step, wall_seconds, &news);
  if (error == 0) {
    proto::LogEvent event;
    event.set_wall_time(wall_seconds);
    event.set_step(step);
    for (const auto& [name, value] : values) {
      proto::ScalarValue* to = event.mutable_summary()->add_value();
      to->set_tag(Tag(name));
      to->set_simple_value(static_cast<float>(value));
    }
    error = Append(FrameOfEvent(event));
  }
  if (error == 0) last_step_ = step;
  const std::string lost = lost_.Note(error);
  return absl::StrCat(news, news.empty() || lost.empty() ? "" : "\n", lost);
}

}  // namespace weir::train
