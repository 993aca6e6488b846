// A WatchedFile is a file that is read piece by piece for as long as a job runs, and that other
// programs may change meanwhile. A read returns the contents that the file had at the beginning, or
// an error that says what happened to the file: it became shorter, or its contents changed.
//
// A file that is deleted, or replaced by another file of its name, is still read as it was. Growth
// or a new time alone is not an error. Changed contents show when the time of the file changes and
// one of 64 samples of 4 KiB differs. A WatchedFile is not a stream and not for pipes: the path
// must name a regular file. Thread rule: immutable after Open, except for the remembered time of
// the file; any thread reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir::store {

class WatchedFile {
 public:
  // kNotFound: no such file, not a regular file, or not readable. `purpose` ("text to train on")
  // goes into errors.
  static absl::StatusOr<std::unique_ptr<WatchedFile>> Open(const std::string& path,
                                                           const std::string& purpose);
  ~WatchedFile();
  WatchedFile(const WatchedFile&) = delete;
  WatchedFile& operator=(const WatchedFile&) = delete;

  int64_t size() const { return size_; }  // at Open
  const std::string& path() const { return path_; }

  // Reads bytes [offset, offset + bytes), which must lie within size(). kDataLoss (W0985) if the
  // bytes are gone, or the file has changed.
  absl::Status ReadAt(int64_t offset, int64_t bytes, uint8_t* out) const;

  // Returns the first byte from `offset` on that is not in a hole of a sparse file, at most size().
  // All bytes before it are 0.
  int64_t SkipHole(int64_t offset) const;

 private:
  WatchedFile(std::string path, int descriptor, int64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}
  absl::Status CheckUnchanged() const;
  absl::Status Changed(const std::string& found) const;
  absl::StatusOr<uint32_t> Fingerprint() const;
  absl::Status Read(int64_t offset, int64_t bytes, uint8_t* out) const;

  const std::string path_;
  const int descriptor_;
  const int64_t size_;
  uint32_t fingerprint_ = 0;
  mutable std::atomic<int64_t> time_ns_{
      0};  // the latest change that left the contents alone; orders nothing
};

}  // namespace weir::store
