#include "runtime/store/pending_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/store/files_testing.h"
#include "runtime/store/whole_file.h"

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PendingFileTest : public FilesTest {
 protected:
  static absl::Status Replace(const std::string& path, const std::string& text) {
    return WriteWholeFile(path, [&](std::ostream& out) {
      out << text;
      return absl::OkStatus();
    });
  }
  static mode_t ModeOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777;
  }
};

TEST_F(PendingFileTest, ASealedFileHasItsNameOnlyOnceItIsCommitted) {
  const auto write = [](std::ostream& out) {
    out << "new";
    return absl::OkStatus();
  };
  Put(Path("a"), "old");
  { EXPECT_TRUE(SealedFile::Seal(Path("a"), write).ok()); }
  const std::unique_ptr<SealedFile> sealed = SealedFile::Seal(Path("a"), write).value();
  EXPECT_EQ(Text(Path("a")), "old");
  EXPECT_EQ(sealed->Commit(), absl::OkStatus());
  EXPECT_EQ(Text(Path("a")), "new");
  EXPECT_EQ(Names(), std::set<std::string>{"a"});
}

TEST_F(PendingFileTest, ARemovedFileLeavesTheLinkThatNamesIt) {
  Put(Path("a"), "old");
  std::filesystem::create_symlink("a", Path("link"));
  EXPECT_EQ(RemovePublished(Path("link")), 0);
  EXPECT_EQ(Names(), std::set<std::string>{"link"});
  EXPECT_EQ(RemovePublished(Path("link")), 0) << "there is nothing to remove";
  EXPECT_EQ(Replace(Path("link"), "new"), absl::OkStatus());
  EXPECT_EQ(Text(Path("a")), "new");
}

TEST_F(PendingFileTest, ANewFileHasWhatTheUmaskLeavesAndAReplacedOneItsMode) {
  for (mode_t mask : {022, 077, 007}) {
    const mode_t old = ::umask(mask);
    const std::string path = Path(absl::StrCat("new.", mask));
    EXPECT_EQ(Replace(path, "one"), absl::OkStatus());
    EXPECT_EQ(ModeOf(path), 0666 & ~mask);
    for (mode_t mode : {0600, 0640, 0444}) {
      ASSERT_EQ(::chmod(path.c_str(), mode), 0);
      EXPECT_EQ(Replace(path, "two"), absl::OkStatus());
      EXPECT_EQ(ModeOf(path), mode);
      EXPECT_EQ(Text(path), "two");
    }
    ::umask(old);
  }
}

TEST_F(PendingFileTest, ALinkIsFollowedAndStays) {
  std::filesystem::create_directory(Path("elsewhere"));
  Put(Path("elsewhere/file"), "old");
  ASSERT_EQ(::symlink("elsewhere/file", Path("relative").c_str()), 0);
  ASSERT_EQ(::symlink(Path("relative").c_str(), Path("of a link").c_str()), 0);
  ASSERT_EQ(::symlink("elsewhere/not yet", Path("into nothing").c_str()), 0);
  for (const char* name : {"relative", "of a link"}) {
    EXPECT_EQ(Replace(Path(name), name), absl::OkStatus());
    EXPECT_TRUE(std::filesystem::is_symlink(Path(name)));
    EXPECT_EQ(Text(Path("elsewhere/file")), name);
  }
  EXPECT_EQ(Replace(Path("into nothing"), "new"), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("into nothing")));
  EXPECT_EQ(Text(Path("elsewhere/not yet")), "new");
  ASSERT_EQ(::symlink("round", Path("round").c_str()), 0);
  EXPECT_THAT(std::string(Replace(Path("round"), "").message()), HasSubstr("W0046"));
}

TEST_F(PendingFileTest, WhatIsNoFileIsNotReplaced) {
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(Path("folder"));
  for (const char* name : {"pipe", "folder"}) {
    EXPECT_NE(PendingFile::Try(Path(name)), 0);
    const absl::Status status = Replace(Path(name), "text");
    EXPECT_TRUE(IsCannotWrite(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path(name)));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(Path("pipe")));
}

TEST_F(PendingFileTest, ATryTellsWhetherAFileCanBeWrittenAndLeavesEverythingAsItIs) {
  const std::string dead = "c.partial-0123456789abcdef";
  Put(Path("c"), "old");
  Put(Path(dead), "half");
  ASSERT_EQ(::chmod(Path("c").c_str(), 0444), 0);
  EXPECT_EQ(PendingFile::Try(Path("c")), 0);
  EXPECT_EQ(PendingFile::Try(Path("free")), 0);
  EXPECT_EQ(Text(Path("c")), "old");
  EXPECT_EQ(ModeOf(Path("c")), 0444);
  EXPECT_EQ(Names(), (std::set<std::string>{"c", dead}));
  EXPECT_EQ(PendingFile::Try(Path("no/folder/file")), ENOENT);
  EXPECT_EQ(PendingFile::Try(Path("c/file")), ENOTDIR);
  // Whoever may do everything may write into this folder, but nobody can make a file there.
  EXPECT_NE(PendingFile::Try("/proc/file"), 0);
}

TEST_F(PendingFileTest, AFileOfAnotherUserInAFolderWithTheStickyBitCannotBeReplaced) {
  constexpr uid_t kNobody = 65534;
  std::string folder = "/tmp/pending_file_test.XXXXXX";  // each user reaches a folder there
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Put(folder + "/file", "old");
  ASSERT_EQ(::chmod(folder.c_str(), 01777), 0);
  EXPECT_EQ(PendingFile::Try(folder + "/file"), 0);
  const uid_t own = ::geteuid();
  const bool is_other = own == 0 && ::seteuid(kNobody) == 0;
  const int of_other = is_other ? PendingFile::Try(folder + "/file") : EPERM;
  const int beside = is_other ? PendingFile::Try(folder + "/free") : 0;
  ASSERT_EQ(::seteuid(own), 0);
  std::filesystem::remove_all(folder);
  if (!is_other) GTEST_SKIP() << "only root becomes another user";
  EXPECT_EQ(of_other, EPERM);
  EXPECT_EQ(beside, 0);
}

TEST_F(PendingFileTest, FilesOfDeadMakersAreRemovedAndNoOthers) {
  Put(Path("c"), "old");
  const std::string dead = "c.partial-0123456789abcdef", alive = "c.partial-00000000000000ff";
  Put(Path(dead), "half");
  Put(Path(alive), "half");
  const int held = ::open(Path(alive).c_str(), O_RDONLY);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  const std::set<std::string> others = {"c.partial-012345678", "c.partial-0123456789abcdeg",
                                        "d.partial-0123456789abcdef",
                                        "c.partial-0123456789abcdef.txt"};
  for (const std::string& name : others) Put(Path(name), "another's");
  EXPECT_EQ(Replace(Path("c"), "new"), absl::OkStatus());
  std::set<std::string> expected = others;
  expected.insert({"c", alive});
  EXPECT_EQ(Names(), expected);
  ::close(held);
  EXPECT_EQ(Replace(Path("c"), "newer"), absl::OkStatus());
  expected.erase(alive);
  EXPECT_EQ(Names(), expected);
}

// The maker behaves like a writer that is interrupted between its link and its rename; no other
// process may take that writer for dead.
TEST_F(PendingFileTest, AMakerThatLivesHoldsALockOnItsFile) {
  PendingFile file;
  ASSERT_EQ(file.Create(Path("c")), 0);
  const int other = ::open(file.open_path().c_str(), O_RDONLY);
  ASSERT_GE(other, 0);
  EXPECT_EQ(::flock(other, LOCK_EX | LOCK_NB), -1);
  EXPECT_EQ(errno, EWOULDBLOCK);
  ::close(other);
  EXPECT_EQ(file.Publish(), 0);
  EXPECT_EQ(file.FlushFolder(), 0);
}

TEST_F(PendingFileTest, AnErrorOfWhoFillsItLeavesWhatWasThere) {
  Put(Path("c"), "old");
  const absl::Status status = WriteWholeFile(Path("c"), [](std::ostream& out) {
    out << "half";
    return absl::InternalError("no more");
  });
  EXPECT_EQ(status.message(), "no more");
  EXPECT_EQ(Text(Path("c")), "old");
  EXPECT_EQ(Names(), std::set<std::string>{"c"});
}

TEST_F(PendingFileTest, AFullDiskLeavesWhatWasThereAndIsNamed) {
  if (::mount("weir", folder_.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
    std::cerr << "NOT TESTED: a full disk needs a file system of its own, and this user may not "
                 "mount one: "
              << strerror(errno) << "\n";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  EXPECT_EQ(Replace(Path("c"), "old"), absl::OkStatus());
  const absl::Status status = Replace(Path("c"), std::string(1 << 20, 'x'));
  EXPECT_TRUE(IsCannotWrite(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("make room"));
  EXPECT_EQ(Text(Path("c")), "old");
  EXPECT_EQ(Names(), std::set<std::string>{"c"});
  EXPECT_EQ(::umount(folder_.path().c_str()), 0);
}

}  // namespace
}  // namespace weir::store
