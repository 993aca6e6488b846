#include "tools/launch/process_threads.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

TEST(ProcessThreadsTest, AFileIsReadWhole) {
  EXPECT_THAT(ReadProcFile("/proc/self/status"), ::testing::HasSubstr("process_thread"));
  EXPECT_GT(ReadProcFile("/proc/self/smaps").size(), 4096u);  // more than one read takes
}

TEST(ProcessThreadsTest, AFileThatOpensAndCannotBeReadIsEmpty) {
  ASSERT_EQ(::access("/proc/self/mem", R_OK), 0);
  EXPECT_EQ(ReadProcFile("/proc/self/mem"), "");  // page 0 belongs to nobody
  EXPECT_EQ(ReadProcFile("/proc/self"), "");
  EXPECT_EQ(ReadProcFile("/proc/no such file"), "");
}

TEST(ProcessThreadsTest, ThreadsOfAProcessAreVisited) {
  int count = 0;
  EXPECT_TRUE(ForEachThread(::getpid(), [&count](const std::string& folder) {
    EXPECT_NE(ReadProcFile(absl::StrCat(folder, "/stat")), "");
    ++count;
  }));
  EXPECT_GE(count, 1);
  EXPECT_FALSE(ForEachThread(0, [](const std::string&) {}));
}

}  // namespace
}  // namespace weir::launch
