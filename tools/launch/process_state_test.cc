#include "tools/launch/process_state.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tools/launch/stalled_connections.h"

namespace weir::launch {
namespace {

using Kind = ProcessState::Kind;

class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(0);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  // Returns whether the process reaches that state.
  bool Becomes(Kind kind) const {
    for (int i = 0; i < 10'000; ++i) {
      if (ReadProcessState(pid_).kind == kind) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

 private:
  const pid_t pid_;
};

void Sleep() {
  while (true) ::pause();
}
void Work() {
  for (volatile int i = 0;;) i = 1 - i;
}

TEST(ProcessStateTest, AProcessThatIsKilledIsEndingAtOnceAndStaysSo) {
  for (void (*const body)() : {Sleep, Work}) {
    Child child(body);
    EXPECT_FALSE(IsEnding(child.pid()));
    ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
    EXPECT_TRUE(IsEnding(child.pid())) << "it may not have run since";
    EXPECT_TRUE(child.Becomes(Kind::kGone));
    EXPECT_TRUE(IsEnding(child.pid())) << "nobody has collected it";
  }
  EXPECT_TRUE(IsEnding(0x7ffffff0)) << "there is no such process";
}

TEST(ProcessStateTest, AProcessIsAsleepReadyStoppedOrGone) {
  Child sleeps(Sleep), works(Work);
  EXPECT_TRUE(sleeps.Becomes(Kind::kAsleep));
  EXPECT_TRUE(works.Becomes(Kind::kReady));
  ::kill(sleeps.pid(), SIGSTOP);
  EXPECT_TRUE(sleeps.Becomes(Kind::kStopped));
  ::kill(works.pid(), SIGKILL);
  EXPECT_TRUE(works.Becomes(Kind::kGone));
}

TEST(ProcessStateTest, OnlyStatesThatSomebodyCanChangeHaveAdvice) {
  EXPECT_NE(StateAdvice(Kind::kStopped, 12), "");
  EXPECT_NE(StateAdvice(Kind::kUninterruptible, 12).find("/proc/12/wchan"), std::string::npos);
  EXPECT_EQ(StateAdvice(Kind::kAsleep, 12), "");
  EXPECT_EQ(StateAdvice(Kind::kReady, 12), "");
}

constexpr int64_t kTicks = 100, kSecond = 1'000'000'000;

TEST(SilentProcessTest, AStoppedProcessIsSuspendedForAsLongAsItIsStopped) {
  Child child(Sleep);
  ASSERT_TRUE(child.Becomes(Kind::kAsleep));
  ::kill(child.pid(), SIGSTOP);
  ASSERT_TRUE(child.Becomes(Kind::kStopped));
  SilentProcess silent(child.pid(), kTicks, 10 * kSecond);
  for (int look = 1; look < 100; ++look) EXPECT_TRUE(silent.IsSuspended(look * kSecond));
}

// This is the case of a frozen control group, where nothing else shows.
TEST(SilentProcessTest, AProcessOfWhichNoThreadEverRunsIsSuspended) {
  Child child(Sleep);
  ASSERT_TRUE(child.Becomes(Kind::kAsleep));
  SilentProcess silent(child.pid(), kTicks, 10 * kSecond);
  for (int look = 1; look < 100; ++look) EXPECT_TRUE(silent.IsSuspended(look * kSecond));
}

TEST(SilentProcessTest, AProcessThatRunsAndSaysNothingIsNot) {
  Child child([] {
    while (true) ::usleep(1'000);
  });
  ASSERT_TRUE(child.Becomes(Kind::kAsleep));
  SilentProcess silent(child.pid(), kTicks, 10 * kSecond);
  bool suspended = true;
  for (int look = 1; look < 100 && suspended; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    suspended = silent.IsSuspended(look * kSecond);
  }
  EXPECT_FALSE(suspended);
}

TEST(SilentProcessTest, AProcessThatIsGoneIsNot) {
  Child child([] {});
  ASSERT_TRUE(child.Becomes(Kind::kGone));
  EXPECT_FALSE(SilentProcess(child.pid(), kTicks, 10 * kSecond).IsSuspended(kSecond));
}

// Returns a line of /proc/net/tcp: a socket of process 1 (inode 4711), or its other end.
std::string Line(const std::string& ends, const std::string& queues, const std::string& timer,
                 const std::string& repeats, const std::string& inode) {
  return absl::StrCat("   3: ", ends, " 01 ", queues, " ", timer, ":00000BB8 ", repeats,
                      "     0        0 ", inode, " 2 0000");
}
constexpr char kOut[] = "0100007F:A86D 0100007F:C350", kBack[] = "0100007F:C350 0100007F:A86D";
const std::map<uint64_t, pid_t> kOwners = {{4711, 1}};

TEST(StalledConnectionsTest, WhatIsSentAgainAndAgainIsStalled) {
  const std::vector<StalledConnection> stalled =
      StalledAmong({Line(kOut, "00001F40:00000000", "01", "00000004", "4711")}, kOwners);
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].pid, 1);
  EXPECT_EQ(stalled[0].local, "127.0.0.1:43117");
  EXPECT_EQ(stalled[0].remote, "127.0.0.1:50000");
  EXPECT_EQ(stalled[0].bytes_waiting, 8000);
  EXPECT_EQ(stalled[0].times_repeated, 4);
}

TEST(StalledConnectionsTest, WhatCannotBeSentThoughTheReceiverHasReadAllIsStalled) {
  const std::string held = Line(kOut, "00001F40:00000000", "04", "00000002", "4711");
  const std::vector<StalledConnection> stalled =
      StalledAmong({held, Line(kBack, "00000000:00000000", "00", "00000000", "4712")}, kOwners);
  ASSERT_EQ(stalled.size(), 1u);
  EXPECT_EQ(stalled[0].times_repeated, 0);
  // The receiver has not read what came, or is not of this host.
  EXPECT_TRUE(
      StalledAmong({held, Line(kBack, "00000000:00001000", "00", "00000000", "4712")}, kOwners)
          .empty());
  EXPECT_TRUE(StalledAmong({held}, kOwners).empty());
}

TEST(StalledConnectionsTest, OtherConnectionsAreNot) {
  // The connection is idle, sends its data for the first time, or belongs to nobody of the job.
  for (const std::string& line :
       {Line(kOut, "00000000:00000000", "02", "00000000", "4711"),
        Line(kOut, "00001F40:00000000", "01", "00000000", "4711"),
        Line(kOut, "00001F40:00000000", "01", "00000004", "4713"),
        std::string("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"),
        std::string()}) {
    EXPECT_TRUE(StalledAmong({line}, kOwners).empty()) << line;
  }
}

}  // namespace
}  // namespace weir::launch
