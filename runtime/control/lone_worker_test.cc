// Workers in processes of their own: frozen workers, killed workers, and the cost of a worker.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/control/control_testing.h"

extern char** environ;

namespace weir::control {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHeartbeatMs = 20;
constexpr int64_t kDeadAfterMs = 200;

class WorkerProcess {
 public:
  WorkerProcess(const TestJob& job, int worker, int64_t coordinator_dead_after_ms = 60'000) {
    const WorkerLinkOptions options = job.WorkerOptions(worker);
    const std::vector<std::string> fields = {options.coordinator_address,
                                             options.job_id,
                                             absl::StrCat(worker),
                                             absl::StrCat(kHeartbeatMs),
                                             absl::StrCat(coordinator_dead_after_ms),
                                             options.credentials.authority_pem,
                                             options.credentials.certificate_pem,
                                             options.credentials.key_pem};
    const std::string told = absl::StrJoin(fields, std::string(1, '\0'));
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").parent_path() / "lone_worker";
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
    char* const arguments[] = {const_cast<char*>(program.c_str()), nullptr};
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments, environ), 0)
        << program;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[0]);
    EXPECT_EQ(write(ends[1], told.data(), told.size()), static_cast<ssize_t>(told.size()));
    close(ends[1]);
  }
  ~WorkerProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Signal(int number) { EXPECT_EQ(kill(pid_, number), 0); }
  int WaitForExitCode() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
};

void Quick(CoordinatorOptions* options) {
  options->heartbeat_ms = kHeartbeatMs;
  options->dead_after_ms = kDeadAfterMs;
}

int64_t MsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               begin)
      .count();
}

// Returns the time from SIGSTOP until the worker was lost.
int64_t TimeToNoticeFrozenMs() {
  TestJob job(2, Quick);
  WorkerProcess works(job, 0);
  WorkerProcess freezes(job, 1);
  EXPECT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto begin = std::chrono::steady_clock::now();
  freezes.Signal(SIGSTOP);
  const auto lost = job.WaitForLost(1);
  const int64_t noticed_ms = MsSince(begin);
  EXPECT_EQ(lost.size(), 1u);
  if (lost.empty()) return kPatienceMs;
  EXPECT_EQ(lost[0].first, 1);
  EXPECT_THAT(std::string(lost[0].second.message()),
              AllOf(HasSubstr("W0602"), HasSubstr("worker 1")));
  EXPECT_TRUE(job->Health()[WorkerId(0)].connected);
  // The worker wakes, finds its connection cut and ends by itself.
  freezes.Signal(SIGCONT);
  EXPECT_EQ(freezes.WaitForExitCode(), 4);
  EXPECT_EQ(job.lost().size(), 1u);
  job->Shutdown(kPatienceMs);
  EXPECT_EQ(works.WaitForExitCode(), 0);
  return noticed_ms;
}

TEST(LoneWorkerTest, AFrozenWorkerIsLostInItsTimeAndNotEarlier) {
  std::vector<int64_t> times;
  // A machine under load may wake this thread late, so only the best attempt must not be late; no
  // attempt may be early.
  for (int attempt = 0; attempt < 5; ++attempt) {
    times.push_back(TimeToNoticeFrozenMs());
    EXPECT_GE(times.back(), kDeadAfterMs - 2 * kHeartbeatMs);
    if (times.back() <= kDeadAfterMs + kHeartbeatMs) break;
  }
  std::cout << "noticed after " << absl::StrJoin(times, ", ") << " ms\n";
  EXPECT_LE(times.back(), kDeadAfterMs + kHeartbeatMs) << absl::StrJoin(times, ", ");
}

TEST(LoneWorkerTest, AFrozenWorkerThatIsExcusedIsNotLostAndWorksOnLater) {
  std::atomic<int> times{0};
  std::atomic<int> excused{0};
  TestJob job(1, [&](CoordinatorOptions* options) {
    Quick(options);
    options->excuse_ms = [&](WorkerId worker) -> int64_t {
      EXPECT_EQ(worker, WorkerId(0));
      return ++excused <= times ? kDeadAfterMs / 4 : 0;
    };
  });
  WorkerProcess worker(job, 0);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  times = 1'000'000;
  worker.Signal(SIGSTOP);
  for (int seen = excused; excused < seen + 3;) std::this_thread::yield();
  EXPECT_TRUE(job->Health()[WorkerId(0)].connected);
  worker.Signal(SIGCONT);
  EXPECT_TRUE(job->CallAll("echo", kPatienceMs).ok());
  times = 0;
  worker.Signal(SIGSTOP);
  EXPECT_EQ(job.WaitForLost(1).size(), 1u);
  worker.Signal(SIGCONT);
  EXPECT_EQ(worker.WaitForExitCode(), 4);
}

TEST(LoneWorkerTest, AWorkerThatWorksAgainJustBeforeTheLookIsNotLost) {
  // The excuse ends when the worker can run again, and the worker needs time to say a word.
  std::atomic<bool> is_stopped{false};
  std::atomic<int> excused{0};
  TestJob job(1, [&](CoordinatorOptions* options) {
    Quick(options);
    options->excuse_ms = [&](WorkerId) -> int64_t {
      if (!is_stopped) return 0;
      ++excused;
      return 1;  // the next look comes before any word can
    };
  });
  WorkerProcess worker(job, 0);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  is_stopped = true;
  worker.Signal(SIGSTOP);
  while (excused < 3) std::this_thread::yield();
  is_stopped = false;
  std::this_thread::sleep_for(std::chrono::milliseconds(kDeadAfterMs / 8));
  worker.Signal(SIGCONT);
  EXPECT_TRUE(job->CallAll("echo", kPatienceMs).ok());
  EXPECT_TRUE(job.lost().empty());
}

TEST(LoneWorkerTest, AKilledWorkerIsLostWhenItsConnectionBreaks) {
  TestJob job(1);
  WorkerProcess worker(job, 0);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  const auto begin = std::chrono::steady_clock::now();
  worker.Signal(SIGKILL);
  const auto lost = job.WaitForLost(1);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(std::string(lost[0].second.message()), HasSubstr("W0603"));
  EXPECT_LT(MsSince(begin), 2000) << "which is when the heartbeats would tell";
}

TEST(LoneWorkerTest, AWorkerThatWasStoppedDoesNotBlameTheCoordinator) {
  TestJob job(1, [](CoordinatorOptions* options) { options->dead_after_ms = kPatienceMs; });
  WorkerProcess worker(job, 0, kDeadAfterMs);
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  worker.Signal(SIGSTOP);
  EXPECT_EQ(job->CallAll("echo", 3 * kDeadAfterMs).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  worker.Signal(SIGCONT);
  EXPECT_TRUE(job->CallAll("echo", kPatienceMs).ok());
  job->Shutdown(kPatienceMs);
  EXPECT_EQ(worker.WaitForExitCode(), 0);
  EXPECT_TRUE(job.lost().empty());
}

TEST(LoneWorkerTest, ACoordinatorThatWasKeptFromListeningDoesNotBlameWorkers) {
  std::promise<void> stuck;
  std::promise<void> release;
  TestJob job(2, [&](CoordinatorOptions* options) {
    Quick(options);
    options->on_event = [&](WorkerId, std::string) {
      stuck.set_value();
      release.get_future().wait();
    };
  });
  WorkerProcess one(job, 0);
  auto other = WorkerLink::Connect(job.WorkerOptions(1));
  ASSERT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  (*other)->Send("hold the coordinator's thread");
  stuck.get_future().wait();
  const int64_t stuck_at_ms = job->Health()[WorkerId(0)].since_heartbeat_ms;
  while (job->Health()[WorkerId(0)].since_heartbeat_ms < stuck_at_ms + 3 * kDeadAfterMs)
    std::this_thread::yield();
  release.set_value();
  while (job->Health()[WorkerId(0)].since_heartbeat_ms > kDeadAfterMs && job.lost().empty())
    std::this_thread::yield();
  EXPECT_TRUE(job.lost().empty()) << job.lost()[0].second;
}

TEST(LoneWorkerTest, AWorkerWhoseProgressCannotBeReadIsLost) {
  TestJob job(1, Quick);
  std::promise<void> release;
  std::shared_future<void> released(release.get_future());
  std::atomic<bool> is_stuck{false};
  WorkerLinkOptions options = job.WorkerOptions(0);
  options.progress = [&] {
    if (is_stuck) released.wait();
    return WorkerProgress();
  };
  auto link = WorkerLink::Connect(options);
  ASSERT_TRUE(link.ok()) << link.status();
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  is_stuck = true;
  const auto lost = job.WaitForLost(1);
  release.set_value();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_THAT(std::string(lost[0].second.message()), HasSubstr("W0602"));
  const absl::Status waited = job->WaitForWorkers(kPatienceMs);
  EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable) << "the time of this wait is not over";
  EXPECT_THAT(std::string(waited.message()), HasSubstr("W0602"));
}

TEST(LoneWorkerTest, AProcessSpendsLittleOnTheControlPlane) {
  TestJob job(4);
  std::vector<std::unique_ptr<WorkerProcess>> workers;
  const auto begin = std::chrono::steady_clock::now();
  for (int w = 0; w < 4; ++w) workers.push_back(std::make_unique<WorkerProcess>(job, w));
  ASSERT_TRUE(job->WaitForWorkers(kPatienceMs).ok());
  std::cout << "4 processes there after " << MsSince(begin) << " ms\n";
  const auto figures = job->CallAll("figures", kPatienceMs);
  ASSERT_TRUE(figures.ok()) << figures.status();
  for (const std::string& line : *figures) {
    std::cout << line << "\n";
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    int64_t before_kib = 0;
    int64_t now_kib = 0;
    ASSERT_TRUE(absl::SimpleAtoi(words[5], &before_kib) && absl::SimpleAtoi(words[8], &now_kib))
        << line;
    EXPECT_LT(now_kib - before_kib, 24 << 10);
  }
  job->Shutdown(kPatienceMs);
  for (auto& worker : workers) EXPECT_EQ(worker->WaitForExitCode(), 0);
}

}  // namespace
}  // namespace weir::control
