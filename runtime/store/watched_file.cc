#include "runtime/store/watched_file.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/store/input_file.h"
#include "zlib.h"

namespace weir::store {
namespace {

constexpr int64_t kSamples = 64;
constexpr int64_t kSampleBytes = 4096;

int64_t TimeNs(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::unique_ptr<WatchedFile>> WatchedFile::Open(const std::string& path,
                                                               const std::string& purpose) {
  WEIR_ASSIGN_OR_RETURN(InputFile input,
                        InputFile::Open(path, {.expected = "a readable file (" + purpose + ")"}));
  struct stat info = {};
  ::fstat(input.descriptor(), &info);
  const int64_t size = input.size();
  std::unique_ptr<WatchedFile> file(new WatchedFile(path, input.Release(), size));
  file->time_ns_.store(TimeNs(info), std::memory_order_relaxed);
  WEIR_ASSIGN_OR_RETURN(file->fingerprint_, file->Fingerprint());
  return file;
}

WatchedFile::~WatchedFile() { ::close(descriptor_); }

absl::Status WatchedFile::Changed(const std::string& found) const {
  return Damaged({"W0985", path_,
                  absl::StrCat("the ", size_, " bytes that were there when the job began"), found,
                  "leave the file alone while a job reads it: write a new one and rename it; "
                  "--resume goes on from the last checkpoint"});
}

absl::Status WatchedFile::Read(int64_t offset, int64_t bytes, uint8_t* out) const {
  while (bytes > 0) {
    const ssize_t count = ::pread(descriptor_, out, static_cast<size_t>(bytes), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Changed(absl::StrCat("that byte ", offset, " cannot be read: ", strerror(errno)));
    if (count == 0)
      return Changed(absl::StrCat("that the file became shorter and ends before byte ", offset));
    out += count;
    offset += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> WatchedFile::Fingerprint() const {
  std::vector<uint8_t> sample(kSampleBytes);
  uLong sum = ::crc32(0, nullptr, 0);
  const int64_t step = std::max(kSampleBytes, size_ / kSamples);
  for (int64_t begin = 0; begin < size_; begin += step) {
    const int64_t bytes = std::min(kSampleBytes, size_ - begin);
    WEIR_RETURN_IF_ERROR(Read(begin, bytes, sample.data()));
    sum = ::crc32(sum, sample.data(), static_cast<uInt>(bytes));
  }
  return static_cast<uint32_t>(sum);
}

absl::Status WatchedFile::CheckUnchanged() const {
  struct stat info;
  if (::fstat(descriptor_, &info) != 0) return Changed(strerror(errno));
  if (info.st_size < size_)
    return Changed(absl::StrCat("that the file became shorter: ", info.st_size, " bytes"));
  const int64_t time_ns = TimeNs(info);
  if (time_ns == time_ns_.load(std::memory_order_relaxed)) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(const uint32_t fingerprint, Fingerprint());
  if (fingerprint != fingerprint_)
    return Changed("other contents: somebody has written into the file");
  time_ns_.store(time_ns, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status WatchedFile::ReadAt(int64_t offset, int64_t bytes, uint8_t* out) const {
  if (offset < 0 || bytes < 0 || offset > size_ - bytes) {
    return absl::InternalError(absl::StrCat("bytes ", offset, " to ", offset + bytes, " of ", path_,
                                            ", which has ", size_));
  }
  WEIR_RETURN_IF_ERROR(CheckUnchanged());
  return Read(offset, bytes, out);
}

int64_t WatchedFile::SkipHole(int64_t offset) const {
  const off_t data = ::lseek(descriptor_, offset, SEEK_DATA);
  if (data >= 0) return std::clamp<int64_t>(data, offset, size_);
  return errno == ENXIO ? size_ : offset;  // no data follows, or the file system tells no holes
}

}  // namespace weir::store
