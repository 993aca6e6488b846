// A folder for a test of functions on files, and what such a test does with the files in it.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::store {

class FilesTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  static void Put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string Text(const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  // Returns the names of all that is in the folder.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      names.insert(entry.path().filename());
    return names;
  }
  const TemporaryFolder folder_;
};

}  // namespace weir::store
