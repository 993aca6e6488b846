#include "runtime/transport/socket_name.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/transport/process_pair_testing.h"

namespace weir::transport {
namespace {

int NewSocket() { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }

// A name of a local socket has room for 107 bytes, and the folders of tests have longer names. So
// the test goes into its folder, and the folder for temporary files is the working folder.
class SocketNameTest : public ::testing::Test {
 protected:
  SocketNameTest() {
    std::filesystem::current_path(folder_.path());
    ::setenv("TMPDIR", ".", 1);
  }
  ~SocketNameTest() override { std::filesystem::current_path("/"); }

  bool IsEmpty() const { return std::filesystem::is_empty(folder_.path()); }

  const TemporaryFolder folder_;
};

TEST_F(SocketNameTest, AProcessThatMayLookIntoThisOneReachesTheSocketAndNoNameRemains) {
  const int socket = NewSocket();
  const int file = BindWithoutName(socket);
  ASSERT_GE(file, 0);
  EXPECT_TRUE(IsEmpty());
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = absl::StrCat("/proc/", ::getpid(), "/fd/", file);
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  const int other = NewSocket();
  EXPECT_EQ(::sendto(other, "x", 1, 0, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 1);
  char byte = 0;
  EXPECT_EQ(::recv(socket, &byte, 1, MSG_DONTWAIT), 1);
  EXPECT_EQ(byte, 'x');
  for (const int fd : {other, file, socket}) ::close(fd);
}

TEST_F(SocketNameTest, AProcessThatIsKilledInTheMidstLeavesNoFolderBehind) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under the thread sanitizer there is no second process (socket_name.cc)";
#endif
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    ForkedProcess binder([&ends] {
      ::close(ends[0]);
      while (true) {
        const int socket = NewSocket();
        ::close(BindWithoutName(socket));
        ::close(socket);
      }
    });
    ::close(ends[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(500, 3000)(random)));
    binder.Signal(SIGKILL);
    // The pipe ends once the second process of the binder has ended, too.
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0);
    ::close(ends[0]);
    ASSERT_TRUE(IsEmpty()) << "after kill " << i;
  }
}

}  // namespace
}  // namespace weir::transport
