#include "tools/launch/parent_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace weir::launch {
namespace {

// Starts a child that takes signals from this process alone and says "ready".
pid_t StartChild() {
  int pipe[2];
  EXPECT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    TakeSignalsFromParentAlone();
    if (::write(pipe[1], "r", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte;
  EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
  ::close(pipe[0]);
  ::close(pipe[1]);
  return child;
}

TEST(ParentSignalsTest, TheParentsSignalEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    int status = 0;
    const pid_t child = StartChild();
    ::kill(child, signal);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), signal);
  }
}

TEST(ParentSignalsTest, SignalsOfOthersAreIgnored) {
  int status = 0;
  const pid_t child = StartChild();
  const pid_t other = ::fork();
  if (other == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::kill(child, signal);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  // The three signals have been delivered before this one, or with it.
  ::kill(child, SIGUSR1);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGUSR1);
}

// A process that ends with its parent, which a thread of the parent has made.
class Orphan {
 public:
  Orphan() {
    EXPECT_EQ(::pipe(said_), 0);
    EXPECT_EQ(::pipe(told_), 0);
    parent_ = ::fork();
    if (parent_ == 0) BeParent();
    ::close(said_[1]);
  }
  ~Orphan() {
    for (const int end : {said_[0], told_[0], told_[1]}) ::close(end);
  }

  // Returns the next byte that the process or its parent says; 0 after the end of the process.
  char Said() const {
    char byte = 0;
    return ::read(said_[0], &byte, 1) == 1 ? byte : '\0';
  }
  void Tell() const { EXPECT_EQ(::write(told_[1], "x", 1), 1); }
  void KillParent() const {
    EXPECT_EQ(::kill(parent_, SIGKILL), 0);
    EXPECT_EQ(::waitpid(parent_, nullptr, 0), parent_);
  }

 private:
  void Say(const char* byte) const {
    if (::write(said_[1], byte, 1) != 1) ::_exit(1);
  }
  [[noreturn]] void BeParent() const {
    std::thread maker([this] {
      if (::fork() == 0) BeChild();
    });
    maker.join();
    Say("j");
    ::close(said_[1]);
    while (true) ::pause();
  }
  [[noreturn]] void BeChild() const {
    EndWithParent();
    Say("r");
    char byte;
    while (::read(told_[0], &byte, 1) == 1) Say("l");
    while (true) ::pause();
  }

  int said_[2], told_[2];
  pid_t parent_ = 0;
};

TEST(ParentSignalsTest, AProcessEndsWithItsParentAndNotWithAThreadOfIt) {
  const Orphan orphan;
  const std::string both = {orphan.Said(), orphan.Said()};  // in any order
  EXPECT_TRUE(both == "rj" || both == "jr") << both;
  orphan.Tell();
  EXPECT_EQ(orphan.Said(), 'l') << "it has ended with the thread that made it";
  orphan.KillParent();
  EXPECT_EQ(orphan.Said(), '\0');
}

}  // namespace
}  // namespace weir::launch
