// Folders for the files of a test. Not for the product, which keeps no temporary folders.
// Thread rule: a TemporaryFolder belongs to one thread; any thread may call TemporaryPath.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace weir {

// A TemporaryFolder is an empty folder of its own below the test's temporary directory. The folder
// goes with all that is in it when the object does. A copy of the object in a forked process
// removes nothing.
class TemporaryFolder {
 public:
  TemporaryFolder() : maker_(::getpid()) {
    path_ = absl::StrCat(::testing::TempDir(), "/folder-XXXXXX");
    if (::mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "cannot make a folder " << path_;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (::getpid() == maker_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathFor(absl::string_view name) const { return absl::StrCat(path_, "/", name); }

  // Writes a whole file, in folders that are made where they lack. Returns the path of the file.
  std::string Write(absl::string_view name, absl::string_view bytes) const {
    const std::filesystem::path path = PathFor(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }

 private:
  std::string path_;
  pid_t maker_;
};

// Returns the folder that all tests of this process share.
inline const TemporaryFolder& SharedTemporaryFolder() {
  static const TemporaryFolder folder;
  return folder;
}

// Do the same there as the functions of a folder.
inline std::string TemporaryPath(absl::string_view name) {
  return SharedTemporaryFolder().PathFor(name);
}
inline std::string WriteTemporary(absl::string_view name, absl::string_view bytes) {
  return SharedTemporaryFolder().Write(name, bytes);
}

}  // namespace weir
