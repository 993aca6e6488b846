#include "tools/launch/parent_signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace weir::launch
