#include "runtime/device/kernel_thread.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "gtest/gtest.h"
#include "runtime/device/thread_team.h"

namespace weir::device {
namespace {

bool Blocks(int signal) {
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return ::sigismember(&blocked, signal) == 1;
}

TEST(KernelThread, GetsNoSignalsButThoseOfItsOwnFaults) {
  std::thread([] {
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGALRM, SIGUSR1})
      EXPECT_FALSE(Blocks(signal));
    BecomeKernelThread();
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGXCPU, SIGALRM, SIGUSR1})
      EXPECT_TRUE(Blocks(signal));
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) EXPECT_FALSE(Blocks(signal));
  }).join();
  EXPECT_FALSE(Blocks(SIGTERM)) << "the thread is another";
}

std::atomic<int> num_handled{0};

TEST(KernelThread, ASignalToTheProcessFindsAnotherThread) {
  ::signal(SIGUSR1, [](int) { ++num_handled; });
  std::thread([] {
    BecomeKernelThread();
    ::kill(::getpid(), SIGUSR1);
    while (num_handled == 0) std::this_thread::yield();
  }).join();
  EXPECT_EQ(num_handled, 1);
  ::signal(SIGUSR1, SIG_DFL);
}

TEST(KernelThread, TheWorkersOfATeamAreKernelThreadsAndTheirLeaderIsNoneByItself) {
  ThreadTeam team(2);
  std::atomic<int> num_entered{0};
  std::atomic<int> num_blocking{0};
  team.For(2, [&](int64_t, int worker) {
    ++num_entered;
    while (num_entered < 2) std::this_thread::yield();  // both threads take a piece
    if (worker > 0) num_blocking += Blocks(SIGXCPU) ? 1 : 0;
  });
  EXPECT_EQ(num_blocking, 1);
  EXPECT_FALSE(Blocks(SIGXCPU));
}

}  // namespace
}  // namespace weir::device
