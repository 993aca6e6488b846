#include "runtime/limits/process_limits.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::limits {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::KilledBySignal;

// Call only in a process of its own, such as EXPECT_EXIT makes: a lowered limit cannot be raised
// again.
void Limit(__rlimit_resource resource, rlim_t value) {
  const rlimit limit = {value, value};
  if (::setrlimit(resource, &limit) != 0) ::_exit(1);
}
[[noreturn]] void ExitWith(const absl::Status& status) {
  const std::string text(status.message());
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(status.ok() ? 0 : kExitRefused);
}

TEST(ProcessLimitsTest, ALimitIsToldAsTheOptionOfUlimitWithItsValue) {
  EXPECT_EXIT(
      {
        Limit(RLIMIT_NOFILE, 77);
        ExitWith(absl::UnavailableError(LimitText(RLIMIT_NOFILE) + "; " + ShortageAdvice(EMFILE)));
      },
      ExitedWithCode(kExitRefused), "ulimit -n: 77; raise the limit .ulimit -n: 77.");
  EXPECT_EQ(LimitValue(RLIMIT_AS, 3 << 20), "3072 KiB");
  EXPECT_EQ(ShortageAdvice(ENOENT), "");
}

TEST(ProcessLimitsTest, TooFewDescriptorsAreARefusalWithHowManyThereAre) {
  EXPECT_TRUE(CheckRoomForFiles("here", 10).ok());
  EXPECT_EXIT(
      {
        Limit(RLIMIT_NOFILE, 8);
        ExitWith(CheckRoomForFiles("worker 3", 10));
      },
      ExitedWithCode(kExitRefused),
      "W0981 at worker 3: expected room for 10 more open files, and there is for [0-9]; .*ulimit "
      "-n: 8");
}

TEST(ProcessLimitsTest, TooFewThreadsAreARefusalWithHowManyThereAre) {
  EXPECT_TRUE(CheckRoomForThreads("here", 20).ok());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become a user without other processes";
  EXPECT_EXIT(
      {
        Limit(RLIMIT_NPROC, 6);
        if (::setgid(54320) != 0 || ::setuid(54320) != 0) ::_exit(1);
        ExitWith(CheckRoomForThreads("worker 3", 20));
      },
      ExitedWithCode(kExitRefused),
      "W0981 at worker 3: expected room for 20 more threads, and there is for [0-5]; .*ulimit -u: "
      "6");
}

TEST(ProcessLimitsTest, TooLittleAddressSpaceIsARefusal) {
  EXPECT_TRUE(CheckRoomForAddresses("here", 1 << 20).ok());
  EXPECT_EXIT(
      {
        Limit(RLIMIT_AS, rlim_t{1} << 30);
        ExitWith(CheckRoomForAddresses("worker 3", int64_t{2} << 30));
      },
      ExitedWithCode(kExitRefused),
      "W0981 at worker 3: expected room for 2048 MiB more of address space; .*ulimit -v: 1048576 "
      "KiB");
}

TEST(ProcessLimitsTest, TooSmallAStackIsARefusal) {
  EXPECT_TRUE(CheckLimits().ok());
  EXPECT_EXIT(
      {
        Limit(RLIMIT_NOFILE, 6);
        ExitWith(CheckLimits());
      },
      ExitedWithCode(kExitRefused),
      "W0982 at this process: expected at least 10 open files; .*ulimit -n: 6");
  EXPECT_EXIT(
      {
        Limit(RLIMIT_STACK, 128 << 10);
        ExitWith(CheckLimits());
      },
      ExitedWithCode(kExitRefused),
      "W0982 at this process: expected a stack of at least 1024 KiB; .*ulimit -s: 128 KiB");
}

void Overflow() { throw std::bad_alloc(); }
void NoThread() { throw std::system_error(EAGAIN, std::generic_category()); }

TEST(ProcessLimitsTest, WhatNobodyCatchesOnAnyThreadIsToldWithTheLimitBehindIt) {
  EXPECT_EXIT(
      {
        Limit(RLIMIT_AS, rlim_t{1} << 40);
        ReportLimitsAtTheEnd(OnTimeUp::kEndAtOnce);
        std::thread(Overflow).join();
      },
      ExitedWithCode(kExitRefused), "weir: W0981 at this process: expected memory; .*ulimit -v");
  EXPECT_EXIT(
      {
        ReportLimitsAtTheEnd(OnTimeUp::kEndAtOnce);
        std::thread(NoThread).join();
      },
      ExitedWithCode(kExitRefused), "weir: W0981 at this process: expected another thread; ");
}

TEST(ProcessLimitsTest, ACrashIsBlamedOnLimitsOnlyWhileThereAreSome) {
  EXPECT_EXIT(
      {
        Limit(RLIMIT_AS, rlim_t{1} << 40);
        ReportLimitsAtTheEnd(OnTimeUp::kEndAtOnce);
        std::raise(SIGSEGV);
      },
      ExitedWithCode(kExitRefused), "weir: W0983 .*ulimit -v");
  EXPECT_EXIT(
      {
        ReportLimitsAtTheEnd(OnTimeUp::kEndAtOnce);
        std::raise(SIGSEGV);
      },
      KilledBySignal(SIGSEGV), "");
}

void UseProcessorTime() {
  for (volatile int i = 0;;) i = 1 - i;
}

TEST(ProcessLimitsTest, TheLimitOfProcessorTimeIsNamedBeforeTheSystemKills) {
  EXPECT_EXIT(
      {
        Limit(RLIMIT_CPU, 2);
        ReportLimitsAtTheEnd(OnTimeUp::kEndAtOnce);
        UseProcessorTime();
      },
      ExitedWithCode(kExitRefused), "weir: W0984 .*ulimit -t: 2 s");
  EXPECT_EXIT(
      {
        Limit(RLIMIT_CPU, 2);
        ReportLimitsAtTheEnd(OnTimeUp::kEndInOrder);
        UseProcessorTime();
      },
      KilledBySignal(SIGTERM), "weir: W0984 .*ulimit -t: 2 s")
      << "whoever handles SIGTERM ends in order";
}

}  // namespace
}  // namespace weir::limits
