#include "tools/launch/worker_output.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weir::launch {
namespace {

// Returns the first `bytes_max` bytes of a line of `length` bytes, without cutting a UTF-8
// character.
std::string Cut(const std::string& line, size_t length, size_t bytes_max) {
  if (length <= bytes_max) return line;
  size_t end = std::min(line.size(), bytes_max);
  for (int back = 0; back < 3 && end > 0 && end < line.size() &&
                     (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80;
       ++back)
    --end;
  return absl::StrCat(line.substr(0, end), "… (", length, " bytes)");
}

}  // namespace

WorkerOutput::WorkerOutput(OwnedDescriptor file, const std::string& label, std::ostream* console)
    : file_(std::move(file)), prefix_(absl::StrCat("[", label, "] ")), console_(console) {}

void WorkerOutput::Append(const char* bytes, size_t count) {
  WriteToFile(bytes, count);
  const char* const end = bytes + count;
  while (bytes < end) {
    const char* newline =
        static_cast<const char*>(::memchr(bytes, '\n', static_cast<size_t>(end - bytes)));
    if (newline == nullptr) {
      AppendToLine(bytes, static_cast<size_t>(end - bytes));
      break;
    }
    AppendToLine(bytes, static_cast<size_t>(newline - bytes));
    EndLine();
    bytes = newline + 1;
  }
  if (console_ != nullptr) console_->flush();
}

void WorkerOutput::Finish() {
  if (line_bytes_ > 0) EndLine();
  if (console_ != nullptr) console_->flush();
  file_.Close();
}

void WorkerOutput::WriteToFile(const char* bytes, size_t count) {
  while (count > 0 && file_.open()) {
    const ssize_t written = ::write(file_.get(), bytes, count);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (num_bytes_lost_ == 0 && console_ != nullptr) {
        *console_ << prefix_ << "log file: " << ::strerror(errno)
                  << "; output is lost from here on\n";
      }
      num_bytes_lost_ += static_cast<int64_t>(count);
      return;
    }
    bytes += written;
    count -= static_cast<size_t>(written);
  }
}

void WorkerOutput::AppendToLine(const char* bytes, size_t count) {
  line_bytes_ += count;
  line_.append(bytes, std::min(count, kConsoleLineBytesMax - line_.size()));
}

void WorkerOutput::EndLine() {
  if (line_bytes_ == line_.size() && !line_.empty() && line_.back() == '\r') {
    line_.pop_back();
    --line_bytes_;
  }
  if (console_ != nullptr)
    *console_ << prefix_ << Cut(line_, line_bytes_, kConsoleLineBytesMax) << '\n';
  last_lines_.push_back(Cut(line_, line_bytes_, kKeptLineBytesMax));
  if (last_lines_.size() > kKeptLinesMax) last_lines_.pop_front();
  line_.clear();
  line_bytes_ = 0;
}

}  // namespace weir::launch
