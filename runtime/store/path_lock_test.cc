// The function flock of this program stands in front of that of the C library and behaves like that
// of another file system on demand.
#include "runtime/store/path_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/store/files_testing.h"
#include "runtime/store/pending_file.h"

namespace {

bool needs_writing = false;  // NFS locks only what is open for writing
int lock_error = 0;          // 0: the file system has locks

}  // namespace

extern "C" int flock(int descriptor, int operation) noexcept {
  if (needs_writing && (::fcntl(descriptor, F_GETFL) & O_ACCMODE) == O_RDONLY)
    errno = EBADF;
  else if (lock_error != 0)
    errno = lock_error;
  else
    return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  return -1;
}

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PathLockTest : public FilesTest {
 protected:
  ~PathLockTest() override {
    needs_writing = false;
    lock_error = 0;
  }
};

TEST_F(PathLockTest, APathHasOneHolderOfItsLockAndTheFileOfTheLockGoesWithIt) {
  auto first = PathLock::Take(Path("c")).value();
  EXPECT_TRUE(first->excludes_others());
  const absl::Status refused = PathLock::Take(Path("c")).status();
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("W0961"), HasSubstr(absl::StrCat("(pid ", ::getpid(), ")"))));
  EXPECT_TRUE(PathLock::Take(Path("d")).ok());
  EXPECT_EQ(Names(), std::set<std::string>{"c.lock"});
  first.reset();
  EXPECT_TRUE(Names().empty());
  EXPECT_TRUE(IsCannotWrite(PathLock::Take(Path("no/folder")).status()));
}

TEST_F(PathLockTest, AFolderThatDoesNotExistIsNamedAndNotTheFileOfTheLock) {
  EXPECT_THAT(
      std::string(PathLock::Take(Path("none/c")).status().message()),
      HasSubstr("W0046 at " + Path("none/c") + ": expected to write the file; found the folder " +
                Path("none/") + " does not exist: No such file"));
}

TEST_F(PathLockTest, AFileOfTheUserThatHasTheNameOfALockStays) {
  Put(Path("c.lock"), "notes");
  EXPECT_TRUE(PathLock::Take(Path("c")).ok());
  EXPECT_EQ(Text(Path("c.lock")), "notes");
}

TEST_F(PathLockTest, AFileSystemThatLocksOnlyWhatIsOpenForWritingHasOneHolder) {
  needs_writing = true;
  const auto first = PathLock::Take(Path("c")).value();
  EXPECT_TRUE(first->excludes_others());
  EXPECT_THAT(std::string(PathLock::Take(Path("c")).status().message()), HasSubstr("W0961"));
  Put(Path("d.partial-0123456789abcdef"), "half");
  PendingFile::RemoveLeftovers({Path("d")});
  EXPECT_EQ(Names(), std::set<std::string>{"c.lock"});
}

TEST_F(PathLockTest, AFileSystemWithoutLocksHasAnyNumberOfHoldersAndOtherErrorsAreErrors) {
  for (const int error : {ENOSYS, EOPNOTSUPP, ENOLCK}) {
    lock_error = error;
    const auto first = PathLock::Take(Path("c")).value();
    EXPECT_FALSE(first->excludes_others()) << error;
    EXPECT_TRUE(PathLock::Take(Path("c")).ok()) << error;
  }
  lock_error = EIO;
  const absl::Status refused = PathLock::Take(Path("c")).status();
  EXPECT_TRUE(IsCannotWrite(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("cannot lock"), HasSubstr(Path("c.lock"))));
}

TEST_F(PathLockTest, ALockOfAnotherUserThatCannotBeLockedIsNamedWithItsRemedy) {
  constexpr uid_t kNobody = 65534;
  constexpr mode_t kOthersMayRead = 0644, kNobodyElseMayRead = 0600;
  std::string folder = "/tmp/path_lock_test.XXXXXX";  // each user reaches a folder there
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  Put(folder + "/c.lock", "");
  needs_writing = true;
  const uid_t own = ::geteuid();
  bool is_other = own == 0;
  for (const mode_t mode : {kOthersMayRead, kNobodyElseMayRead}) {
    ASSERT_EQ(::chmod((folder + "/c.lock").c_str(), mode), 0);
    is_other = is_other && ::seteuid(kNobody) == 0;
    const absl::Status refused =
        is_other ? PathLock::Take(folder + "/c").status() : absl::OkStatus();
    ASSERT_EQ(::seteuid(own), 0);
    if (!is_other) break;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("W0046"), HasSubstr("remove " + folder + "/c.lock")))
        << mode;
  }
  std::filesystem::remove_all(folder);
  if (!is_other) GTEST_SKIP() << "only root becomes another user";
}

}  // namespace
}  // namespace weir::store
