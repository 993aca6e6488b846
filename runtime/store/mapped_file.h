// A MappedFile is a whole file as read-only memory.
//
// A MappedFile is not a stream and not for pipes: the path must name a regular file. If another
// program shortens the file while it is mapped, reading the lost part ends the process with W0986,
// the file's name and exit code 66, since there is nothing to return. Use a WatchedFile for a file
// that is read for a long time. Weir itself replaces files only by rename.
// Thread rule: immutable after Open; any thread reads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weir::store {

class MappedFile {
 public:
  // kNotFound: no such file, not a regular file, or not readable. An empty file is legal and has
  // size() == 0. `purpose` ("training text") goes into errors.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path,
                                                          const std::string& purpose);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  int64_t size() const { return size_; }
  // Returns the same bytes as characters.
  absl::string_view text() const {
    return {reinterpret_cast<const char*>(data_), static_cast<size_t>(size_)};
  }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const uint8_t* data, int64_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const uint8_t* data_;
  int64_t size_;
};

}  // namespace weir::store
