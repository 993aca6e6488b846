#include "tools/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/testing/process_census.h"
#include "tools/launch/worker_output.h"

namespace weir::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTestWorker[] = "tools/launch/testing/test_worker";
constexpr int64_t kAnHourMs = 3600 * 1000;

// Wakes the supervisor whenever something is printed, so that a test can wait for a text.
class WakingConsole : public std::stringbuf {
 public:
  int sync() override {
    if (supervisor != nullptr) supervisor->Wake();
    return 0;
  }
  Supervisor* supervisor = nullptr;
};

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    std::string pattern = absl::StrCat(::getenv("TEST_TMPDIR"), "/logs-XXXXXX");
    options_.log_directory = absl::StrCat(::mkdtemp(pattern.data()), "/a/b");
    options_.console = &console_;
    options_.grace_ms = kAnHourMs;
  }
  ~SupervisorTest() override {
    buffer_.supervisor = nullptr;
    supervisor_.reset();
    EXPECT_EQ(census_.Leftovers(), "");
  }

  // Starts one worker per command line of the test worker, for example "exit 3".
  absl::Status TryStart(const std::vector<std::string>& lines) {
    std::vector<WorkerLaunch> workers;
    for (const std::string& line : lines) {
      const int rank = static_cast<int>(workers.size());
      std::vector<std::string> arguments =
          absl::StrSplit(absl::StrCat(kTestWorker, " ", line), ' ');
      workers.push_back({arguments, absl::StrCat("rank ", rank), {rank}});
    }
    absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = Supervisor::Start(workers, options_);
    if (!supervisor.ok()) return supervisor.status();
    supervisor_ = *std::move(supervisor);
    buffer_.supervisor = supervisor_.get();
    return absl::OkStatus();
  }
  void Start(const std::vector<std::string>& lines) { ASSERT_TRUE(TryStart(lines).ok()); }

  WorkerExit NextExit() {
    while (true) {
      absl::StatusOr<std::optional<WorkerExit>> exit = supervisor_->Wait(-1);
      EXPECT_TRUE(exit.ok()) << exit.status();
      if (exit->has_value()) return **exit;
    }
  }
  void WaitForText(const std::string& text) {
    while (buffer_.str().find(text) == std::string::npos) ASSERT_TRUE(supervisor_->Wait(-1).ok());
  }
  std::string Log(int worker) const { return FileText(supervisor_->log_path(worker)); }
  std::string Console() const { return buffer_.str(); }

  ProcessCensus census_;
  WakingConsole buffer_;
  std::ostream console_{&buffer_};
  SupervisorOptions options_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, LinesGoToTheFileAsTheyAreAndToTheConsoleWithTheLabel) {
  Start({"lines 2"});
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(Log(0), "line 0\nline 1\n");
  EXPECT_EQ(Console(), "[rank 0] line 0\n[rank 0] line 1\n");
  EXPECT_THAT(exit.last_lines, ElementsAre("line 0", "line 1"));
  EXPECT_THAT(supervisor_->log_path(0), ::testing::EndsWith("/a/b/rank-0.log"));
}

TEST_F(SupervisorTest, OnlyRanksThatAreShownReachTheConsole) {
  options_.ranks_shown = {1};
  Start({"lines 1", "lines 2"});
  NextExit();
  NextExit();
  EXPECT_EQ(Console(), "[rank 1] line 0\n[rank 1] line 1\n");
  EXPECT_EQ(Log(0), "line 0\n");
}

TEST_F(SupervisorTest, HiddenOutputStillReachesTheFileAndTheLastLines) {
  Start({"lines 2"});
  supervisor_->HideOutput();
  EXPECT_THAT(NextExit().last_lines, ElementsAre("line 0", "line 1"));
  EXPECT_EQ(Log(0), "line 0\nline 1\n");
  EXPECT_EQ(Console(), "");
}

TEST_F(SupervisorTest, MegabytesArriveWhole) {
  Start({"bytes 5000000", "bytes 3000000"});
  NextExit();
  NextExit();
  EXPECT_EQ(Log(0).size(), 5000004u);
  EXPECT_EQ(Log(1).size(), 3000004u);
  EXPECT_THAT(Log(0), ::testing::EndsWith("x\nend\n"));
}

TEST_F(SupervisorTest, TheLastTwentyLinesAreKept) {
  Start({"lines 100"});
  const WorkerExit exit = NextExit();
  ASSERT_EQ(exit.last_lines.size(), 20u);
  EXPECT_EQ(exit.last_lines.front(), "line 80");
  EXPECT_EQ(exit.last_lines.back(), "line 99");
}

TEST_F(SupervisorTest, AnyByteIsLoggedAndBothStreamsKeepTheirOrder) {
  Start({"all-bytes"});
  NextExit();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  EXPECT_EQ(Log(0), bytes + "\nout 1\nerror 1\nout 2\n");
  EXPECT_THAT(Console(), HasSubstr("[rank 0] out 1\n[rank 0] error 1\n[rank 0] out 2\n"));
}

TEST_F(SupervisorTest, ALastLineWithoutAnEndIsALine) {
  Start({"no-newline"});
  EXPECT_THAT(NextExit().last_lines, ElementsAre("first", "no newline"));
  EXPECT_EQ(Log(0), "first\nno newline");
  EXPECT_EQ(Console(), "[rank 0] first\n[rank 0] no newline\n");
}

TEST_F(SupervisorTest, ALongLineIsCutOnTheConsoleAndInMemoryButNotInTheFile) {
  Start({"long-line 200000"});
  const WorkerExit exit = NextExit();
  EXPECT_EQ(Log(0), std::string(200000, 'y'));
  EXPECT_EQ(Console(), absl::StrCat("[rank 0] ", std::string(kConsoleLineBytesMax, 'y'),
                                    "… (200000 bytes)\n"));
  EXPECT_THAT(exit.last_lines,
              ElementsAre(absl::StrCat(std::string(kKeptLineBytesMax, 'y'), "… (200000 bytes)")));
}

TEST_F(SupervisorTest, AnExitCodeIsReturnedOnceWithPidAndTime) {
  Start({"exit 66"});
  const int64_t pid = supervisor_->pid(0);
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.worker, 0);
  EXPECT_EQ(exit.pid, pid);
  EXPECT_EQ(exit.code, 66);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(exit.sent, WorkerExit::Sent::kNothing);
  EXPECT_GT(exit.time_ns, 0);
  EXPECT_EQ(ExitText(exit), "exit code 66");
  EXPECT_EQ(supervisor_->num_running(), 0);
  EXPECT_EQ(*supervisor_->Wait(-1), std::nullopt);
  EXPECT_TRUE(supervisor_->Stop().empty());
}

TEST_F(SupervisorTest, ADeathBySignalIsNamed) {
  for (int signal : {SIGKILL, SIGSEGV, SIGTERM, SIGRTMIN}) {
    Start({absl::StrCat("die ", signal)});
    const WorkerExit exit = NextExit();
    EXPECT_EQ(exit.signal, signal);
    EXPECT_EQ(exit.code, 0);
    EXPECT_THAT(exit.last_lines, ElementsAre("dying"));
  }
  EXPECT_EQ(SignalText(SIGKILL), "SIGKILL (9)");
  EXPECT_EQ(SignalText(SIGSEGV), "SIGSEGV (11)");
  EXPECT_EQ(SignalText(SIGRTMIN), "signal 34");
}

TEST_F(SupervisorTest, AWorkerHasThreeDescriptorsADeathSignalAGroupAndStandardSignals) {
  const int leak = ::open("/dev/null", O_RDONLY);  // as a library might, without O_CLOEXEC
  sigset_t mask, before;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &mask, &before);
  ::signal(SIGPIPE, SIG_IGN);
  Start({"describe", "describe", "describe"});
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, &before, &after);
  ::signal(SIGPIPE, SIG_DFL);
  ::close(leak);
  EXPECT_TRUE(sigismember(&after, SIGUSR1));
  EXPECT_FALSE(sigismember(&after, SIGUSR2));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(NextExit().last_lines, ElementsAre("descriptors 0 1 2", "death signal 9",
                                                   "own group", "SigBlk: 0", "SigIgn: 0"));
  }
}

TEST_F(SupervisorTest, AWorkerIsToldThroughItsStandardInput) {
  Start({"echo"});
  EXPECT_TRUE(supervisor_->Tell(0, "the secret").ok());
  EXPECT_EQ(supervisor_->Tell(0, "again").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(NextExit().last_lines, ElementsAre("the secret", "10 bytes"));
}

TEST_F(SupervisorTest, NothingToTellClosesTheInput) {
  Start({"echo"});
  EXPECT_TRUE(supervisor_->Tell(0, "").ok());
  EXPECT_THAT(NextExit().last_lines, ElementsAre("", "0 bytes"));
}

TEST_F(SupervisorTest, MoreThanAPipeHoldsIsToldWithoutBlocking) {
  Start({"echo", "wait"});
  EXPECT_TRUE(supervisor_->Tell(0, std::string(3000000, 'z')).ok());
  EXPECT_TRUE(supervisor_->Tell(1, std::string(3000000, 'z')).ok());  // never read
  EXPECT_THAT(NextExit().last_lines, ElementsAre("3000000 bytes"));
}

TEST_F(SupervisorTest, TellingAWorkerThatIsGoneIsUnavailableAndNoSignal) {
  Start({"exit 0", "exit 0"});
  // The worker is dead and the supervisor has not seen it: the pipe has no reader.
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(supervisor_->pid(0)), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(supervisor_->Tell(0, "hello").code(), absl::StatusCode::kUnavailable);
  NextExit();
  NextExit();
  EXPECT_EQ(supervisor_->Tell(1, "hello").code(), absl::StatusCode::kUnavailable);
}

TEST_F(SupervisorTest, StopAsksAndReturnsTheExits) {
  Start({"end-politely", "end-politely"});
  WaitForText("[rank 0] ready");
  WaitForText("[rank 1] ready");
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 2u);
  for (const WorkerExit& exit : exits) {
    EXPECT_EQ(exit.code, 7);
    EXPECT_EQ(exit.sent, WorkerExit::Sent::kAsked);
    EXPECT_THAT(exit.last_lines, ElementsAre("ready", "asked to end"));
  }
  EXPECT_LE(exits[0].time_ns, exits[1].time_ns);
}

TEST_F(SupervisorTest, AWorkerThatDoesNotListenIsKilledAfterTheGrace) {
  options_.grace_ms = 1;
  Start({"ignore-terminate"});
  WaitForText("ready");
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].signal, SIGKILL);
  EXPECT_EQ(exits[0].sent, WorkerExit::Sent::kKilled);
}

TEST_F(SupervisorTest, AStoppedWorkerIsWokenToEnd) {
  Start({"stop-itself"});
  siginfo_t info = {};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(supervisor_->pid(0)), &info, WSTOPPED | WNOWAIT), 0);
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].code, 7);
}

TEST_F(SupervisorTest, AReadableWakeDescriptorEndsTheWaitAndTheGrace) {
  const int wake = ::eventfd(0, EFD_CLOEXEC);
  options_.wake_descriptor = wake;
  Start({"ignore-terminate"});
  WaitForText("ready");
  const uint64_t one = 1;
  ASSERT_EQ(::write(wake, &one, sizeof(one)), 8);
  EXPECT_EQ(*supervisor_->Wait(-1), std::nullopt);
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ::close(wake);
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].signal, SIGKILL);
}

TEST_F(SupervisorTest, WakeFromAnotherThreadEndsTheWait) {
  Start({"wait"});
  WaitForText("ready");
  std::thread other([this] { supervisor_->Wake(); });
  EXPECT_EQ(*supervisor_->Wait(-1), std::nullopt);
  other.join();
}

TEST_F(SupervisorTest, ASignalReachesEveryWorkerThatRuns) {
  Start({"exit 1", "end-politely", "end-politely"});
  EXPECT_EQ(NextExit().code, 1);
  WaitForText("[rank 1] ready");
  WaitForText("[rank 2] ready");
  supervisor_->Signal(SIGTERM);
  EXPECT_EQ(NextExit().code, 7);
  EXPECT_EQ(NextExit().code, 7);
}

TEST_F(SupervisorTest, WaitReturnsAtItsLimit) {
  Start({"wait"});
  EXPECT_EQ(*supervisor_->Wait(0), std::nullopt);
  EXPECT_EQ(supervisor_->num_running(), 1);
}

TEST_F(SupervisorTest, AWorkerThatPrintsWithoutEndKeepsNobodyWaiting) {
  Start({"chatter", "exit 9", "chatter"});
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.worker, 1);
  EXPECT_EQ(exit.code, 9);
}

TEST_F(SupervisorTest, AWorkerThatClosesItsOutputStillRuns) {
  Start({"close-output", "exit 2"});
  EXPECT_EQ(NextExit().worker, 1);
  EXPECT_EQ(supervisor_->num_running(), 1);
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].signal, SIGTERM);
}

TEST_F(SupervisorTest, WhatAWorkerLeavesInItsGroupIsKilled) {
  Start({"leave-behind 0"});
  EXPECT_EQ(NextExit().code, 5);
  EXPECT_EQ(census_.CollectOrphans(), 1);
}

TEST_F(SupervisorTest, AnOrphanThatWritesOnDoesNotHoldUpTheExit) {
  Start({"leave-behind 1"});
  EXPECT_EQ(NextExit().code, 5);
  EXPECT_EQ(census_.CollectOrphans(), 1);  // ended by SIGPIPE
}

TEST_F(SupervisorTest, DroppingTheSupervisorKillsTheWorkers) {
  Start({"ignore-terminate", "chatter", "stop-itself"});
  const pid_t pid = static_cast<pid_t>(supervisor_->pid(0));
  buffer_.supervisor = nullptr;
  supervisor_.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST_F(SupervisorTest, AProgramThatIsNotThereIsUnavailableAndLeavesNoneRunning) {
  const std::vector<WorkerLaunch> workers = {{{kTestWorker, "wait"}, "rank 0", {0}},
                                             {{"no/such/program"}, "rank 1", {1}}};
  const absl::Status status = Supervisor::Start(workers, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "W0093 at no/such/program: expected a worker process; found exec failed: No such file "
            "or directory.");
  EXPECT_EQ(census_.Leftovers(), "");
}

TEST_F(SupervisorTest, RunningOutOfDescriptorsAtAnyPointIsUnavailableAndLeavesNothing) {
  const std::vector<WorkerLaunch> workers = {{{kTestWorker, "wait"}, "rank 0", {0}},
                                             {{kTestWorker, "wait"}, "rank 1", {1}}};
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int first_free = ::dup(0);
  ::close(first_free);
  int num_refused = 0;
  for (bool started = false; !started; ++num_refused) {
    const rlimit tight = {static_cast<rlim_t>(first_free + num_refused), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = Supervisor::Start(workers, options_);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    started = supervisor.ok();
    if (!started) {
      EXPECT_EQ(supervisor.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(supervisor.status().message()), HasSubstr("ulimit -n"));
      EXPECT_EQ(census_.Leftovers(), "");
    }
  }
  EXPECT_GE(num_refused, 8);
}

TEST_F(SupervisorTest, LogsThatCannotBeMadeAreUnavailable) {
  options_.log_directory = "/dev/null/logs";
  const absl::Status status = TryStart({"wait"});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "W0092 at /dev/null: expected a folder that can be made; found Not a directory. Try: "
            "another folder for the logs.");
}

TEST_F(SupervisorTest, ExitsAreSeenThoughSigchldWasIgnored) {
  ::signal(SIGCHLD, SIG_IGN);
  Start({"exit 44"});
  EXPECT_EQ(NextExit().code, 44);
}

TEST(WorkerOutputTest, AFullDiskCostsBytesAndSaysSoOnce) {
  std::ostringstream console;
  WorkerOutput output(OwnedDescriptor(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "rank 7",
                      &console);
  output.Append("one\n", 4);
  output.Append("two\n", 4);
  output.Finish();
  EXPECT_EQ(console.str(),
            "[rank 7] log file: No space left on device; output is lost from here on\n[rank 7] "
            "one\n[rank 7] two\n");
  EXPECT_EQ(output.num_bytes_lost(), 8);
}

TEST(WorkerOutputTest, LinesAreTheSameHoweverTheyArrive) {
  const std::string text = "a\r\n\nlonger line\nlast";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    WorkerOutput output(OwnedDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC)), "rank 0",
                        nullptr);
    for (size_t begin = 0; begin < text.size(); begin += piece) {
      output.Append(text.data() + begin, std::min(piece, text.size() - begin));
    }
    output.Finish();
    EXPECT_THAT(output.last_lines(), ElementsAre("a", "", "longer line", "last"));
  }
}

TEST(WorkerOutputTest, ACutKeepsCharactersWhole) {
  WorkerOutput output(OwnedDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC)), "rank 0",
                      nullptr);
  const std::string line = absl::StrCat(std::string(kKeptLineBytesMax - 1, 'a'), "é and more\n");
  output.Append(line.data(), line.size());
  EXPECT_THAT(output.last_lines(),
              ElementsAre(absl::StrCat(std::string(kKeptLineBytesMax - 1, 'a'), "… (2058 bytes)")));
}

TEST(LogDirectoryTest, NamesHoldTimeProcessAndRanks) {
  std::tm time = {};
  time.tm_year = 2031 - 1900;
  time.tm_mon = 0;
  time.tm_mday = 9;
  time.tm_hour = 7;
  time.tm_min = 5;
  EXPECT_EQ(LogDirectoryName(kLogBaseDefault, time, 4711), "weir-logs/20310109-070500-4711");
  EXPECT_EQ(LogFileName("rank 2-3"), "rank-2-3.log");
  EXPECT_EQ(LogFileName("a/../b\n"), "a-..-b-.log");
}

TEST(LogDirectoryTest, IsMadeWithWhatIsAboveIt) {
  const std::string base = absl::StrCat(::getenv("TEST_TMPDIR"), "/base/", ::getpid());
  absl::StatusOr<std::string> path = MakeLogDirectory(base);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, ::testing::StartsWith(base + "/"));
  EXPECT_THAT(*path, ::testing::EndsWith(absl::StrCat("-", ::getpid())));
  EXPECT_TRUE(OpenLog(*path + "/rank-0.log").ok());
  EXPECT_TRUE(MakeDirectories(*path).ok());
  EXPECT_THAT(std::string(MakeDirectories(*path + "/rank-0.log/x").message()),
              HasSubstr("Not a directory"));
  EXPECT_THAT(std::string(MakeLogDirectory("/proc").status().message()),
              HasSubstr("W0092 at /proc/"));
  EXPECT_THAT(std::string(OpenLog(*path).status().message()), Not(HasSubstr("ulimit")));
}

}  // namespace
}  // namespace weir::launch
