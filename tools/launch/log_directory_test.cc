#include "tools/launch/log_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"

namespace weir::launch {
namespace {

namespace fs = std::filesystem;

class LogDirectoryTest : public ::testing::Test {
 protected:
  // Makes the directory of a job with one log file.
  std::string Job(const std::string& name, const std::string& text) {
    const std::string path = absl::StrCat(base_, "/", name);
    EXPECT_TRUE(MakeDirectories(path).ok());
    std::ofstream(path + "/rank-0.log") << text;
    PointLatestAt(path);
    return path;
  }
  std::string Latest() const {
    return fs::is_symlink(base_ + "/latest") ? fs::read_symlink(base_ + "/latest").string() : "";
  }

  const TemporaryFolder folder_;
  const std::string base_ = folder_.PathFor("weir-logs");
};

TEST_F(LogDirectoryTest, LatestLeadsToTheJobThatBeganLast) {
  Job("20310109-070500-1", "a line\n");
  EXPECT_EQ(Latest(), "20310109-070500-1");
  Job("20310109-070501-2", "a line\n");
  EXPECT_EQ(Latest(), "20310109-070501-2");
  std::ifstream log(base_ + "/latest/rank-0.log");
  std::string line;
  EXPECT_TRUE(std::getline(log, line));
}

TEST_F(LogDirectoryTest, LinksOfKilledJobsAreSweptAndThoseOfOthersStay) {
  Job("20310109-070500-1", "a line\n");
  const std::string old = base_ + "/.latest-17", fresh = base_ + "/.latest-18";
  fs::create_symlink("20310109-070500-1", old);
  fs::create_symlink("20310109-070500-1", fresh);
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, old.c_str(), long_ago, AT_SYMLINK_NOFOLLOW), 0);
  Job("20310109-070501-2", "a line\n");
  EXPECT_FALSE(fs::is_symlink(old));
  EXPECT_TRUE(fs::is_symlink(fresh)) << "its job may be about to rename it";
}

TEST_F(LogDirectoryTest, EmptyLogsLeaveNothingBehind) {
  RemoveEmptyLogs(Job("20310109-070500-1", ""));
  EXPECT_FALSE(fs::exists(base_));
}

TEST_F(LogDirectoryTest, LogsWithALineStay) {
  const std::string path = Job("20310109-070500-1", "a line\n");
  RemoveEmptyLogs(path);
  EXPECT_TRUE(fs::exists(path + "/rank-0.log"));
  EXPECT_EQ(Latest(), "20310109-070500-1");
}

TEST_F(LogDirectoryTest, LatestThenLeadsToTheJobBefore) {
  const std::string before = Job("20310109-070500-1", "a line\n"),
                    last = Job("20310109-070501-2", "");
  RemoveEmptyLogs(last);
  EXPECT_FALSE(fs::exists(last));
  EXPECT_EQ(Latest(), "20310109-070500-1");
}

TEST_F(LogDirectoryTest, AJobThatEndsLeavesLatestOfALaterOneAlone) {
  const std::string first = Job("20310109-070500-1", ""), last = Job("20310109-070501-2", "");
  RemoveEmptyLogs(first);
  EXPECT_EQ(Latest(), "20310109-070501-2");
  EXPECT_TRUE(fs::exists(last));
}

TEST_F(LogDirectoryTest, JobsThatEndAtTheSameMomentLeaveNothingBehind) {
  for (int round = 0; round < 500; ++round) {
    const std::string first = Job("20310109-070500-1", ""), last = Job("20310109-070501-2", "");
    std::thread other([&first] { RemoveEmptyLogs(first); });
    RemoveEmptyLogs(last);
    other.join();
    ASSERT_FALSE(fs::exists(base_)) << "round " << round;
  }
}

TEST_F(LogDirectoryTest, FilesThatAreNoLogsAreKept) {
  const std::string path = Job("20310109-070500-1", "");
  fs::create_directory(path + "/mine");
  RemoveEmptyLogs(path);
  EXPECT_TRUE(fs::exists(path + "/mine"));
  EXPECT_TRUE(fs::exists(path + "/rank-0.log"));
}

}  // namespace
}  // namespace weir::launch
