#include "runtime/store/replaced_files.h"

#include <errno.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "runtime/store/files_testing.h"

namespace weir::store {
namespace {

class ReplacedFilesTest : public FilesTest {
 protected:
  // Writes `text` into files and sets them aside together, as a process that is killed then. Later
  // renamings have a later time.
  void KillWithAside(const std::string& text, const std::vector<std::string>& names) {
    ReplacedFiles files;
    for (const std::string& name : names) {
      Put(Path(name), text);
      ASSERT_EQ(files.SetAside(Path(name)), 0);
    }
    const auto end = TimeOf(Path(names.back()) + files.ending());
    do {
      Put(Path("clock"), "x");
    } while (TimeOf(Path("clock")) <= end);
    std::filesystem::remove(Path("clock"));
  }
  static std::pair<int64_t, int64_t> TimeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return {info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
  }
};

TEST_F(ReplacedFilesTest, FilesSetAsideComeBackOrGo) {
  Put(Path("a"), "old a");
  Put(Path("b"), "old b");
  ReplacedFiles files;
  for (const char* name : {"a", "b", "none"}) EXPECT_EQ(files.SetAside(Path(name)), 0);
  EXPECT_EQ(Names(), (std::set<std::string>{"a" + files.ending(), "b" + files.ending()}));
  Put(Path("b"), "new b");
  // Another process finds them.
  std::filesystem::create_directory(Path("a.replaced-0123456789abcdef"));  // of the user
  auto found = ReplacedFiles::LeftBeside({Path("a"), Path("b"), Path("none")});
  std::filesystem::remove(Path("a.replaced-0123456789abcdef"));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].paths(), files.paths());
  EXPECT_EQ(found[0].ending(), files.ending());
  EXPECT_EQ(found[0].PutBack(), 0);
  EXPECT_EQ(Text(Path("a")), "old a");
  EXPECT_EQ(Text(Path("b")), "old b");
  EXPECT_EQ(Names(), (std::set<std::string>{"a", "b"}));
  ReplacedFiles dropped;
  EXPECT_EQ(dropped.SetAside(Path("a")), 0);
  EXPECT_EQ(dropped.Drop(), 0);
  EXPECT_EQ(Names(), std::set<std::string>{"b"});
}

// A file that others need to be readable does not come back before them.
TEST_F(ReplacedFilesTest, TheFirstFileStaysAsideUntilTheOthersAreBack) {
  Put(Path("index"), "old");
  Put(Path("b"), "old");
  ReplacedFiles files;
  for (const char* name : {"index", "b"}) EXPECT_EQ(files.SetAside(Path(name)), 0);
  std::filesystem::create_directory(Path("b"));
  EXPECT_EQ(files.PutBack(), EISDIR);
  EXPECT_EQ(files.paths(), (std::vector<std::string>{Path("index"), Path("b")}));
  std::filesystem::remove(Path("b"));
  EXPECT_EQ(files.PutBack(), 0);
  EXPECT_EQ(Names(), (std::set<std::string>{"b", "index"}));
}

TEST_F(ReplacedFilesTest, AReplacementThatFailsGoesBackWhateverTheErrorIs) {
  for (const char* name : {"index", "a"}) Put(Path(name), "old");
  ReplacedFiles files;
  for (const char* name : {"index", "a"}) EXPECT_EQ(files.SetAside(Path(name)), 0);
  for (const char* name : {"a", "b"}) Put(Path(name), "new");
  const absl::Status failure = absl::InternalError("out of luck");  // has no problem
  const absl::Status told = files.GoBack(failure, {Path("a"), Path("b"), Path("index")}, 2);
  EXPECT_EQ(told, absl::InternalError("out of luck; the earlier export is in its place again"));
  for (const char* name : {"index", "a"}) EXPECT_EQ(Text(Path(name)), "old") << name;
  EXPECT_EQ(Names(), (std::set<std::string>{"a", "index"}));
}

// The newer set has the files of the state that its index describes.
TEST_F(ReplacedFilesTest, OfTwoWholeSetsTheNewerComesBackAndTheOtherGoes) {
  KillWithAside("older", {"index", "a", "b"});
  KillWithAside("newer", {"index", "b"});
  Put(Path("a"), "newer");
  EXPECT_EQ(ReplacedFiles::ClearUp(Path("index"), {Path("a"), Path("b")}), absl::OkStatus());
  for (const char* name : {"index", "a", "b"}) EXPECT_EQ(Text(Path(name)), "newer") << name;
  EXPECT_EQ(Names(), (std::set<std::string>{"a", "b", "index"}));
}

// The newer set was made where the index of the older one was aside already: what each process has
// done is undone, the last first.
TEST_F(ReplacedFilesTest, ASetWithoutIndexComesBackBeforeTheOneThatHasIt) {
  KillWithAside("old", {"index", "a"});
  KillWithAside("half", {"a"});
  KillWithAside("old", {"b"});
  EXPECT_EQ(ReplacedFiles::ClearUp(Path("index"), {Path("a"), Path("b")}), absl::OkStatus());
  for (const char* name : {"index", "a", "b"}) EXPECT_EQ(Text(Path(name)), "old") << name;
  EXPECT_EQ(Names(), (std::set<std::string>{"a", "b", "index"}));
}

TEST_F(ReplacedFilesTest, WhereTheIndexIsThereWhatWasSetAsideGoes) {
  KillWithAside("old", {"index", "a"});
  for (const char* name : {"index", "a"}) Put(Path(name), "new");
  EXPECT_EQ(ReplacedFiles::ClearUp(Path("index"), {Path("a")}), absl::OkStatus());
  EXPECT_EQ(Text(Path("a")), "new");
  EXPECT_EQ(Names(), (std::set<std::string>{"a", "index"}));
}

}  // namespace
}  // namespace weir::store
