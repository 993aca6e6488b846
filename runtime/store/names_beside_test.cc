#include "runtime/store/names_beside.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::store {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

TEST(NamesBesideTest, NamesAreFoundInTheOrderOfThePathsAndNoOthers) {
  const TemporaryFolder folder, other;
  const std::string a = folder.PathFor("a"), b = folder.PathFor("b"), c = other.PathFor("c");
  std::vector<std::string> expected;
  for (const std::string& path : {c, b, a}) expected.push_back(path + kReplacedMark + kDigits);
  for (const TemporaryFolder* in : {&folder, &other}) {
    for (const char* name : {"a", "b", "c"})
      in->Write(std::string(name) + ".partial-" + kDigits, "");
  }
  for (const char* name : {"a", "b", "d"})
    folder.Write(name + std::string(kReplacedMark) + kDigits, "");
  for (const char* ending : {"0123", "0123456789abcdeg", "0123456789abcdef.txt"})
    folder.Write(std::string("a") + kReplacedMark + ending, "");
  other.Write(std::string("c") + kReplacedMark + kDigits, "");
  std::vector<std::string> found;
  for (const NameBeside& beside : NamesBeside({c, b, a, folder.path() + "/"}, kReplacedMark)) {
    EXPECT_EQ(PathOfNameBeside(beside.name, kReplacedMark), beside.path);
    found.push_back(beside.name);
  }
  EXPECT_EQ(found, expected);
}

TEST(NamesBesideTest, ANewNameIsFoundAgain) {
  std::string name;
  EXPECT_EQ(NewNameBeside("folder/a", kPartialMark, &name), 0);
  EXPECT_EQ(PathOfNameBeside(name, kPartialMark), "folder/a");
  EXPECT_EQ(PathOfNameBeside(name, kReplacedMark), "");
}

}  // namespace
}  // namespace weir::store
