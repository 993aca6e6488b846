#include "runtime/store/watched_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/mapped_file.h"

namespace weir::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WatchedFileTest : public ::testing::Test {
 protected:
  WatchedFileTest() : path_(TemporaryPath("text")) {
    Write(path_, Text('a'));
    file_ = WatchedFile::Open(path_, "text to train on").value();
  }
  static std::string Text(char letter) { return std::string(300'000, letter); }
  // Writes in place, and sets a time that differs, because the clocks of file systems are coarse.
  static void Write(const std::string& path, const std::string& text) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }
  absl::Status ReadAll() {
    std::string bytes(static_cast<size_t>(file_->size()), '?');
    absl::Status status = file_->ReadAt(0, file_->size(), reinterpret_cast<uint8_t*>(bytes.data()));
    if (status.ok()) {
      EXPECT_EQ(bytes, Text('a'));
    }
    return status;
  }
  void ExpectRefused(const std::string& what) {
    const absl::Status status = ReadAll();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("W0985"), HasSubstr(path_), HasSubstr(what)));
  }

  const std::string path_;
  std::unique_ptr<WatchedFile> file_;
};

TEST_F(WatchedFileTest, AFileThatBecomesShorterIsAnErrorWithItsName) {
  ASSERT_EQ(::truncate(path_.c_str(), 1000), 0);
  ExpectRefused("became shorter");
}

TEST_F(WatchedFileTest, AFileThatIsWrittenAnewInPlaceIsAnErrorWithItsName) {
  Write(path_, Text('b'));
  ExpectRefused("other contents");
}

TEST_F(WatchedFileTest, HolesArePassedOver) {
  const std::string path = TemporaryPath("sparse");
  constexpr int64_t kAt = int64_t{8} << 20, kSize = int64_t{1} << 40;
  std::ofstream(path).seekp(kAt) << "x";
  ASSERT_EQ(::truncate(path.c_str(), kSize), 0);
  const auto file = WatchedFile::Open(path, "tokens").value();
  const int64_t first = file->SkipHole(0);
  EXPECT_GT(first, 0);
  EXPECT_LE(first, kAt);
  EXPECT_EQ(file->SkipHole(kAt), kAt);
  EXPECT_EQ(file->SkipHole(kSize - 1), kSize);
  EXPECT_EQ(file_->SkipHole(7), 7);
}

TEST_F(WatchedFileTest, AFileThatIsDeletedIsReadAsItWas) {
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(WatchedFileTest, AFileThatIsReplacedByAnotherOfItsNameIsReadAsItWas) {
  Write(path_ + ".new", Text('b'));
  ASSERT_EQ(::rename((path_ + ".new").c_str(), path_.c_str()), 0);
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(WatchedFileTest, AFileThatGrowsOrGetsANewTimeOrTheSameContentsIsReadAsItWas) {
  std::ofstream(path_, std::ios::app) << "more";
  EXPECT_TRUE(ReadAll().ok());
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0), 0);
  EXPECT_TRUE(ReadAll().ok());
  Write(path_, Text('a'));
  EXPECT_TRUE(ReadAll().ok());
}

// A mapping has no such error; the process ends, but with the name of the file.
TEST(MappedFileTest, AFileThatBecomesShorterWhileItIsMappedEndsTheProcessWithItsName) {
  const std::string path = TemporaryPath("mapped");
  std::ofstream(path) << std::string(300'000, 'm');
  const auto file = MappedFile::Open(path, "weights").value();
  EXPECT_EXIT(
      {
        if (::truncate(path.c_str(), 0) != 0) ::_exit(1);
        volatile uint8_t byte = file->data()[200'000];
        ::_exit(byte);
      },
      ::testing::ExitedWithCode(66), "W0986 at .*/mapped: .*became shorter");
}

}  // namespace
}  // namespace weir::store
