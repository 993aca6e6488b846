// How Weir opens a file that somebody names as an input: for reading, and only if it is a regular
// file.
//
// A pipe, a device or a socket is refused at once: the open never waits for a writer, and what a
// device does when it is opened (a terminal, a tape) does not happen. Whoever reads a job from a
// pipe names it `-`. Thread rule: any thread; an InputFile has one owner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace weir {

class InputFile {
 public:
  // What the error says if there is no such file, or none that is regular and readable.
  struct Naming {
    std::string code = "W0040";
    std::string expected;  // "a readable file (text to train on)"
    std::string hint = "check the path; relative paths count from the current directory";
  };
  // kNotFound, as `naming` says it.
  static absl::StatusOr<InputFile> Open(const std::string& path, const Naming& naming);

  InputFile(InputFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  int descriptor() const { return descriptor_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // Leaves the descriptor to the caller, who closes it.
  int Release() { return std::exchange(descriptor_, -1); }

 private:
  InputFile(int descriptor, int64_t size) : descriptor_(descriptor), size_(size) {}

  int descriptor_;
  int64_t size_;
};

}  // namespace weir
