// The requirements on every Supervisor, as one suite. A supervisor joins by instantiating the suite
// with a factory:
//
//   INSTANTIATE_TEST_SUITE_P(Local, SupervisorConformance, ::testing::Values(&StartHere));
//
// The workers are test workers (tools/launch/testing/test_worker.cc), which the test must have as
// data.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/launch/supervisor.h"
#include "tools/launch/testing/process_census.h"
#include "tools/launch/worker_output.h"

namespace weir::launch {

using SupervisorFactory = absl::StatusOr<std::unique_ptr<Supervisor>> (*)(
    const IdVector<WorkerId, WorkerLaunch>& workers, const SupervisorOptions& options);

inline constexpr char kTestWorker[] = "tools/launch/testing/test_worker";
inline constexpr int64_t kAnHourMs = 3600 * 1000;

// Wakes the supervisor whenever something is printed, so that a test can wait for a text.
class WakingConsole : public std::stringbuf {
 public:
  int sync() override {
    if (supervisor != nullptr) supervisor->Wake();
    return 0;
  }
  Supervisor* supervisor = nullptr;
};

inline std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline WorkerExit NextExitOf(Supervisor* supervisor) {
  while (true) {
    absl::StatusOr<std::optional<WorkerExit>> exit = supervisor->Wait(-1);
    EXPECT_TRUE(exit.ok()) << exit.status();
    if (exit->has_value()) return **exit;
  }
}

class SupervisorConformance : public ::testing::TestWithParam<SupervisorFactory> {
 protected:
  SupervisorConformance() {
    options_.log_directory = folder_.PathFor("a/b");
    options_.console = &console_;
    options_.grace_ms = kAnHourMs;
  }
  ~SupervisorConformance() override {
    buffer_.supervisor = nullptr;
    supervisor_.reset();
    EXPECT_EQ(census_.Leftovers(), "");
  }

  // Starts one worker per command line of the test worker, for example "exit 3".
  absl::Status TryStart(const std::vector<std::string>& lines) {
    IdVector<WorkerId, WorkerLaunch> workers;
    for (const std::string& line : lines) {
      const int rank = workers.next_id().value();
      std::vector<std::string> arguments =
          absl::StrSplit(absl::StrCat(kTestWorker, " ", line), ' ');
      workers.push_back({arguments, absl::StrCat("rank ", rank), {RankId(rank)}});
    }
    absl::StatusOr<std::unique_ptr<Supervisor>> supervisor = GetParam()(workers, options_);
    if (!supervisor.ok()) return supervisor.status();
    supervisor_ = *std::move(supervisor);
    buffer_.supervisor = supervisor_.get();
    return absl::OkStatus();
  }
  void Start(const std::vector<std::string>& lines) { ASSERT_TRUE(TryStart(lines).ok()); }

  WorkerExit NextExit() { return NextExitOf(supervisor_.get()); }
  void WaitForText(const std::string& text) {
    while (buffer_.str().find(text) == std::string::npos) ASSERT_TRUE(supervisor_->Wait(-1).ok());
  }
  // Ends the supervisor, which may have processes of its own, and waits for what workers have left.
  int CollectOrphans() {
    buffer_.supervisor = nullptr;
    supervisor_.reset();
    return census_.CollectOrphans();
  }
  std::string Log(int worker) const {
    const std::string path = supervisor_->log_path(WorkerId(worker));  // perhaps "HOST:PATH"
    return FileText(path.substr(path.find('/')));
  }
  std::string Console() const { return buffer_.str(); }

  const TemporaryFolder folder_;
  ProcessCensus census_;
  WakingConsole buffer_;
  std::ostream console_{&buffer_};
  SupervisorOptions options_;
  std::unique_ptr<Supervisor> supervisor_;
};

TEST_P(SupervisorConformance, LinesGoToTheFileAsTheyAreAndToTheConsoleWithTheLabel) {
  Start({"lines 2"});
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.code, 0);
  EXPECT_EQ(Log(0), "line 0\nline 1\n");
  EXPECT_EQ(Console(), "[rank 0] line 0\n[rank 0] line 1\n");
  EXPECT_THAT(exit.last_lines, ::testing::ElementsAre("line 0", "line 1"));
  EXPECT_THAT(supervisor_->log_path(WorkerId(0)), ::testing::EndsWith("/a/b/rank-0.log"));
}

TEST_P(SupervisorConformance, OnlyRanksThatAreShownReachTheConsole) {
  options_.ranks_shown = {RankId(1)};
  Start({"lines 1", "lines 2"});
  NextExit();
  NextExit();
  EXPECT_EQ(Console(), "[rank 1] line 0\n[rank 1] line 1\n");
  EXPECT_EQ(Log(0), "line 0\n");
}

TEST_P(SupervisorConformance, WorkersWhoseLogsAreNotNeededRunWithoutThem) {
  options_.log_directory = "/dev/null/logs";
  options_.logs = Logs::kIfPossible;
  Start({"lines 1", "lines 1"});
  for (int i = 0; i < 2; ++i) {
    const WorkerExit exit = NextExit();
    EXPECT_EQ(exit.code, 0);
    EXPECT_THAT(exit.last_lines, ::testing::ElementsAre("line 0"));
  }
}

TEST_P(SupervisorConformance, HiddenOutputStillReachesTheFileAndTheLastLines) {
  Start({"lines 2"});
  supervisor_->HideOutput();
  EXPECT_THAT(NextExit().last_lines, ::testing::ElementsAre("line 0", "line 1"));
  EXPECT_EQ(Log(0), "line 0\nline 1\n");
  EXPECT_EQ(Console(), "");
}

TEST_P(SupervisorConformance, MegabytesArriveWhole) {
  Start({"bytes 5000000", "bytes 3000000"});
  NextExit();
  NextExit();
  EXPECT_EQ(Log(0).size(), 5000004u);
  EXPECT_EQ(Log(1).size(), 3000004u);
  EXPECT_THAT(Log(0), ::testing::EndsWith("x\nend\n"));
}

TEST_P(SupervisorConformance, TheLastTwentyLinesAreKept) {
  Start({"lines 100"});
  const WorkerExit exit = NextExit();
  ASSERT_EQ(exit.last_lines.size(), 20u);
  EXPECT_EQ(exit.last_lines.front(), "line 80");
  EXPECT_EQ(exit.last_lines.back(), "line 99");
}

TEST_P(SupervisorConformance, AnyByteIsLoggedAndBothStreamsKeepTheirOrder) {
  Start({"all-bytes"});
  NextExit();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<char>(i));
  EXPECT_EQ(Log(0), bytes + "\nout 1\nerror 1\nout 2\n");
  EXPECT_THAT(Console(),
              ::testing::HasSubstr("[rank 0] out 1\n[rank 0] error 1\n[rank 0] out 2\n"));
}

TEST_P(SupervisorConformance, ALastLineWithoutAnEndIsALine) {
  Start({"no-newline"});
  EXPECT_THAT(NextExit().last_lines, ::testing::ElementsAre("first", "no newline"));
  EXPECT_EQ(Log(0), "first\nno newline");
  EXPECT_EQ(Console(), "[rank 0] first\n[rank 0] no newline\n");
}

TEST_P(SupervisorConformance, ALongLineIsCutOnTheConsoleAndInMemoryButNotInTheFile) {
  Start({"long-line 200000"});
  const WorkerExit exit = NextExit();
  EXPECT_EQ(Log(0), std::string(200000, 'y'));
  EXPECT_EQ(Console(), absl::StrCat("[rank 0] ", std::string(kConsoleLineBytesMax, 'y'),
                                    "… (200000 bytes)\n"));
  EXPECT_THAT(exit.last_lines, ::testing::ElementsAre(absl::StrCat(
                                   std::string(kKeptLineBytesMax, 'y'), "… (200000 bytes)")));
}

TEST_P(SupervisorConformance, AnExitCodeIsReturnedOnceWithPidAndTime) {
  Start({"exit 66"});
  const int64_t pid = supervisor_->pid(WorkerId(0));
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.worker, WorkerId(0));
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

TEST_P(SupervisorConformance, ADeathBySignalIsNamed) {
  for (int signal : {SIGKILL, SIGSEGV, SIGTERM, SIGRTMIN}) {
    Start({absl::StrCat("die ", signal)});
    const WorkerExit exit = NextExit();
    EXPECT_EQ(exit.signal, signal);
    EXPECT_EQ(exit.code, 0);
    EXPECT_THAT(exit.last_lines, ::testing::ElementsAre("dying"));
  }
  EXPECT_EQ(SignalText(SIGKILL), "SIGKILL (9)");
  EXPECT_EQ(SignalText(SIGSEGV), "SIGSEGV (11)");
  EXPECT_EQ(SignalText(SIGRTMIN), "signal 34");
}

TEST_P(SupervisorConformance, AWorkerHasItsDescriptorsADeathSignalAGroupAndStandardSignals) {
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
    EXPECT_THAT(NextExit().last_lines,
                ::testing::ElementsAre("descriptors 0 1 2 3", "death signal 9", "own group",
                                       "SigBlk: 0", "SigIgn: 0"));
  }
}

TEST_P(SupervisorConformance, WhatAWorkerLeavesInItsMemoryOutlivesIt) {
  Start({"leave-memory", "wait"});
  EXPECT_EQ(NextExit().signal, SIGKILL);
  const absl::StatusOr<std::string> left = supervisor_->ReadMemory(WorkerId(0), 100);
  ASSERT_TRUE(left.ok()) << left.status();
  EXPECT_EQ(*left, "left here");
  EXPECT_EQ(supervisor_->ReadMemory(WorkerId(0), 8).status().code(),
            absl::StatusCode::kResourceExhausted);
  const absl::StatusOr<std::string> none = supervisor_->ReadMemory(WorkerId(1), 100);
  EXPECT_EQ(none.value_or("none"), "") << none.status();
}

TEST_P(SupervisorConformance, AWorkerIsToldThroughItsStandardInput) {
  Start({"echo"});
  EXPECT_TRUE(supervisor_->Tell(WorkerId(0), "the secret").ok());
  EXPECT_EQ(supervisor_->Tell(WorkerId(0), "again").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(NextExit().last_lines, ::testing::ElementsAre("the secret", "10 bytes"));
}

TEST_P(SupervisorConformance, NothingToTellClosesTheInput) {
  Start({"echo"});
  EXPECT_TRUE(supervisor_->Tell(WorkerId(0), "").ok());
  EXPECT_THAT(NextExit().last_lines, ::testing::ElementsAre("", "0 bytes"));
}

TEST_P(SupervisorConformance, MoreThanAPipeHoldsIsToldWithoutBlocking) {
  Start({"echo", "wait"});
  EXPECT_TRUE(supervisor_->Tell(WorkerId(0), std::string(3000000, 'z')).ok());
  EXPECT_TRUE(supervisor_->Tell(WorkerId(1), std::string(3000000, 'z')).ok());  // never read
  EXPECT_THAT(NextExit().last_lines, ::testing::ElementsAre("3000000 bytes"));
}

TEST_P(SupervisorConformance, StopAsksAndReturnsTheExits) {
  Start({"end-politely", "end-politely"});
  WaitForText("[rank 0] ready");
  WaitForText("[rank 1] ready");
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 2u);
  for (const WorkerExit& exit : exits) {
    EXPECT_EQ(exit.code, 7);
    EXPECT_EQ(exit.sent, WorkerExit::Sent::kAsked);
    EXPECT_THAT(exit.last_lines, ::testing::ElementsAre("ready", "asked to end"));
  }
  EXPECT_LE(exits[0].time_ns, exits[1].time_ns);
}

TEST_P(SupervisorConformance, AWorkerThatDoesNotListenIsKilledAfterTheGrace) {
  options_.grace_ms = 1;
  Start({"ignore-terminate"});
  WaitForText("ready");
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].signal, SIGKILL);
  EXPECT_EQ(exits[0].sent, WorkerExit::Sent::kKilled);
}

TEST_P(SupervisorConformance, AReadableWakeDescriptorEndsTheWaitAndTheGrace) {
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

TEST_P(SupervisorConformance, WakeFromAnotherThreadEndsTheWait) {
  Start({"wait"});
  WaitForText("ready");
  std::thread other([this] { supervisor_->Wake(); });
  EXPECT_EQ(*supervisor_->Wait(-1), std::nullopt);
  other.join();
}

TEST_P(SupervisorConformance, ASignalReachesEveryWorkerThatRuns) {
  Start({"exit 1", "end-politely", "end-politely"});
  EXPECT_EQ(NextExit().code, 1);
  WaitForText("[rank 1] ready");
  WaitForText("[rank 2] ready");
  supervisor_->Signal(SIGTERM);
  EXPECT_EQ(NextExit().code, 7);
  EXPECT_EQ(NextExit().code, 7);
}

TEST_P(SupervisorConformance, WorkersThatEndAtTheSameMomentAreAllReturned) {
  Start({"wait", "wait", "wait", "wait", "wait", "wait"});
  for (int rank = 0; rank < 6; ++rank) WaitForText(absl::StrCat("[rank ", rank, "] ready"));
  supervisor_->Signal(SIGKILL);
  std::set<WorkerId> ended;
  for (int i = 0; i < 6; ++i) ended.insert(NextExit().worker);
  EXPECT_EQ(ended.size(), 6u);
  EXPECT_EQ(supervisor_->num_running(), 0);
}

TEST_P(SupervisorConformance, WaitReturnsAtItsLimit) {
  Start({"wait"});
  EXPECT_EQ(*supervisor_->Wait(0), std::nullopt);
  EXPECT_EQ(supervisor_->num_running(), 1);
}

TEST_P(SupervisorConformance, AWorkerThatPrintsWithoutEndKeepsNobodyWaiting) {
  Start({"chatter", "exit 9", "chatter"});
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.worker, WorkerId(1));
  EXPECT_EQ(exit.code, 9);
}

TEST_P(SupervisorConformance, AWorkerThatClosesItsOutputStillRuns) {
  Start({"close-output", "exit 2"});
  EXPECT_EQ(NextExit().worker, WorkerId(1));
  EXPECT_EQ(supervisor_->num_running(), 1);
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].signal, SIGTERM);
}

TEST_P(SupervisorConformance, WhatAWorkerLeavesInItsGroupIsKilled) {
  Start({"leave-behind 0"});
  EXPECT_EQ(NextExit().code, 5);
  EXPECT_EQ(CollectOrphans(), 1);
}

TEST_P(SupervisorConformance, AnOrphanThatWritesOnDoesNotHoldUpTheExit) {
  Start({"leave-behind 1"});
  EXPECT_EQ(NextExit().code, 5);
  EXPECT_EQ(CollectOrphans(), 1);  // ended by SIGPIPE
}

TEST_P(SupervisorConformance, DroppingTheSupervisorKillsTheWorkers) {
  Start({"ignore-terminate", "chatter", "stop-itself"});
  const pid_t pid = static_cast<pid_t>(supervisor_->pid(WorkerId(0)));
  buffer_.supervisor = nullptr;
  supervisor_.reset();
  EXPECT_EQ(::kill(pid, 0), -1);
}

TEST_P(SupervisorConformance, ExitsAreSeenThoughSigchldWasIgnored) {
  ::signal(SIGCHLD, SIG_IGN);
  Start({"exit 44"});
  EXPECT_EQ(NextExit().code, 44);
}

}  // namespace weir::launch
