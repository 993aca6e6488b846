#include "tools/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/launch/log_directory.h"
#include "tools/launch/supervisor_conformance.h"
#include "tools/launch/worker_output.h"

namespace weir::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<std::unique_ptr<Supervisor>> StartHere(
    const IdVector<WorkerId, WorkerLaunch>& workers, const SupervisorOptions& options) {
  return Supervisor::Start(workers, options);
}

// The tests below need that the workers are children of this process, or name what only this
// supervisor says.
class SupervisorTest : public SupervisorConformance {};
INSTANTIATE_TEST_SUITE_P(Local, SupervisorConformance, ::testing::Values(&StartHere));
INSTANTIATE_TEST_SUITE_P(Local, SupervisorTest, ::testing::Values(&StartHere));

TEST_P(SupervisorTest, TellingAWorkerThatIsGoneIsUnavailableAndNoSignal) {
  Start({"exit 0", "exit 0"});
  // The worker is dead and the supervisor has not seen it: the pipe has no reader.
  siginfo_t info = {};
  ASSERT_EQ(
      ::waitid(P_PID, static_cast<id_t>(supervisor_->pid(WorkerId(0))), &info, WEXITED | WNOWAIT),
      0);
  EXPECT_EQ(supervisor_->Tell(WorkerId(0), "hello").code(), absl::StatusCode::kUnavailable);
  NextExit();
  NextExit();
  EXPECT_EQ(supervisor_->Tell(WorkerId(1), "hello").code(), absl::StatusCode::kUnavailable);
}

TEST_P(SupervisorTest, AWorkerStartsAgainBesideTheOthers) {
  Start({"exit 3", "wait"});
  EXPECT_EQ(NextExit().code, 3);
  const int64_t other = supervisor_->pid(WorkerId(1));
  ASSERT_TRUE(supervisor_->StartAgain(WorkerId(0)).ok());
  const WorkerExit again = NextExit();
  EXPECT_EQ(again.worker, WorkerId(0));
  EXPECT_EQ(again.code, 3);
  EXPECT_EQ(again.pid, supervisor_->pid(WorkerId(0)));
  EXPECT_EQ(supervisor_->pid(WorkerId(1)), other);
  // A worker that runs is killed first, and its end is not told.
  ASSERT_TRUE(supervisor_->StartAgain(WorkerId(1)).ok());
  EXPECT_NE(supervisor_->pid(WorkerId(1)), other);
  EXPECT_THAT(supervisor_->running(), ElementsAre(WorkerId(1)));
  EXPECT_TRUE(supervisor_->Tell(WorkerId(1), "hello").ok());
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].pid, supervisor_->pid(WorkerId(1)));
}

TEST_P(SupervisorTest, AStoppedWorkerIsWokenToEnd) {
  Start({"stop-itself"});
  siginfo_t info = {};
  ASSERT_EQ(
      ::waitid(P_PID, static_cast<id_t>(supervisor_->pid(WorkerId(0))), &info, WSTOPPED | WNOWAIT),
      0);
  const std::vector<WorkerExit> exits = supervisor_->Stop();
  ASSERT_EQ(exits.size(), 1u);
  EXPECT_EQ(exits[0].code, 7);
}

TEST_P(SupervisorTest, OneWorkerIsKilledAndTheOthersRunOn) {
  Start({"exit 1", "wait", "stop-itself"});
  EXPECT_EQ(NextExit().code, 1);
  supervisor_->Kill(WorkerId(0));  // it has ended
  supervisor_->Kill(WorkerId(2));
  const WorkerExit killed = NextExit();
  EXPECT_EQ(killed.worker, WorkerId(2));
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_EQ(killed.sent, WorkerExit::Sent::kKilled);
  EXPECT_THAT(supervisor_->running(), ElementsAre(WorkerId(1)));
}

TEST_P(SupervisorTest, AProgramThatIsNotThereIsUnavailableAndLeavesNoneRunning) {
  const IdVector<WorkerId, WorkerLaunch> workers = {{{kTestWorker, "wait"}, "rank 0", {RankId(0)}},
                                                    {{"no/such/program"}, "rank 1", {RankId(1)}}};
  const absl::Status status = Supervisor::Start(workers, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "W0093 at no/such/program: expected a worker process; found exec failed: No such file "
            "or directory.");
  EXPECT_EQ(census_.Leftovers(), "");
}

TEST_P(SupervisorTest, RunningOutOfDescriptorsAtAnyPointIsUnavailableAndLeavesNothing) {
  const IdVector<WorkerId, WorkerLaunch> workers = {{{kTestWorker, "wait"}, "rank 0", {RankId(0)}},
                                                    {{kTestWorker, "wait"}, "rank 1", {RankId(1)}}};
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

TEST_P(SupervisorTest, LogsThatCannotBeMadeAreUnavailable) {
  options_.log_directory = "/dev/null/logs";
  const absl::Status status = TryStart({"wait"});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(),
            "W0092 at /dev/null: expected a folder that can be made; found Not a directory. Try: "
            "another folder for the logs.");
}

TEST_P(SupervisorTest, AWorkerStartsAgainAlthoughTheFolderOfItsLogsIsGone) {
  Start({"lines 1"});
  NextExit();
  const std::string folder = folder_.PathFor("a");
  std::filesystem::remove_all(folder);
  ASSERT_EQ(supervisor_->StartAgain(WorkerId(0)), absl::OkStatus());
  EXPECT_EQ(NextExit().code, 0);
  EXPECT_EQ(Log(0), "line 0\n") << "the folder is made anew";
  EXPECT_THAT(Console(), Not(HasSubstr("WARNING")));
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "a file in the place of the folder";
  ASSERT_EQ(supervisor_->StartAgain(WorkerId(0)), absl::OkStatus());
  const WorkerExit exit = NextExit();
  EXPECT_EQ(exit.code, 0);
  EXPECT_THAT(exit.last_lines, ElementsAre("line 0"));
  EXPECT_THAT(Console(), HasSubstr("[rank 0] WARNING: this process has no log: W0092 at "));
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
  EXPECT_EQ(LogFileName("ranks 2-3"), "ranks-2-3.log");
  EXPECT_EQ(LogFileName("a/../b\n"), "a-..-b-.log");
}

TEST(LogDirectoryTest, IsMadeWithWhatIsAboveIt) {
  const std::string base = absl::StrCat(::getenv("TEST_TMPDIR"), "/base/", ::getpid());
  absl::StatusOr<std::string> path = MakeLogDirectory(base);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, ::testing::StartsWith(base + "/"));
  EXPECT_THAT(*path, ::testing::EndsWith(absl::StrCat("-", ::getpid())));
  EXPECT_TRUE(OpenLog(*path + "/rank-0.log").ok());
  EXPECT_TRUE(OpenLog(*path + "/gone/rank-0.log").ok());
  EXPECT_TRUE(MakeDirectories(*path).ok());
  EXPECT_THAT(std::string(MakeDirectories(*path + "/rank-0.log/x").message()),
              HasSubstr("Not a directory"));
  EXPECT_THAT(std::string(MakeLogDirectory("/proc").status().message()),
              HasSubstr("W0092 at /proc/"));
  EXPECT_THAT(std::string(OpenLog(*path).status().message()), Not(HasSubstr("ulimit")));
}

}  // namespace
}  // namespace weir::launch
