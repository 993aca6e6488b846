// An InputFile is a file that a user names as an input. Weir opens input files for reading, and
// only if they are regular files.
//
// A pipe, a device or a socket is refused at once: the open never waits for a writer, and never
// triggers an action of a device (a terminal, a tape). A user who reads a job from a pipe names it
// `-`. Thread rule: any thread; an InputFile has one owner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace weir::store {

class InputFile {
 public:
  // Naming is the text of the error if there is no such file, or the file is not regular and
  // readable.
  struct Naming {
    std::string code = "W0040";
    std::string expected;  // "a readable file (text to train on)"
    std::string hint = "check the path; relative paths count from the current directory";
  };
  // kNotFound, with the text of `naming`.
  static absl::StatusOr<InputFile> Open(const std::string& path, const Naming& naming);

  InputFile(InputFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Gives the descriptor to the caller, who closes it.
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  InputFile(int descriptor, int64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  int64_t size_;
};

}  // namespace weir::store
