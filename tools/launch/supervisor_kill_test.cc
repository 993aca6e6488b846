// Runs starters and workers as whole processes, and kills or interrupts them at random moments,
// including their start. Nothing may be left behind.
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "runtime/base/temporary_folder_testing.h"
#include "tools/launch/signal_watch.h"
#include "tools/launch/supervisor.h"
#include "tools/launch/testing/process_census.h"
#include "tools/launch/worker_process.h"

namespace weir::launch {
namespace {

constexpr char kTestWorker[] = "tools/launch/testing/test_worker";
constexpr char kTestStarter[] = "tools/launch/testing/test_starter";
constexpr int kNumWorkers = 4;
constexpr int kNumWorkerKills = 50;
constexpr int kNumStarterKills = 20;

// WEIR_TEST_SEED repeats a run.
uint64_t Seed() {
  const char* seed = ::getenv("WEIR_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : static_cast<uint64_t>(::getpid());
}

class KillTest : public ::testing::Test {
 protected:
  KillTest() : seed_(Seed()) { ::testing::Test::RecordProperty("seed", absl::StrCat(seed_)); }
  int Random(int trial, int what, int below) const {
    return static_cast<int>(
        RandomBits(seed_, static_cast<uint64_t>(trial))[static_cast<size_t>(what)] %
        static_cast<uint32_t>(below));
  }

  absl::StatusOr<WorkerProcess> StartStarter(const std::vector<std::string>& verbs) const {
    std::vector<std::string> arguments = {kTestStarter, kTestWorker, logs_.path()};
    arguments.insert(arguments.end(), verbs.begin(), verbs.end());
    return StartProcess(arguments);
  }

  ProcessCensus census_;
  const uint64_t seed_;
  const TemporaryFolder logs_;
};

TEST_F(KillTest, AWorkerKilledAtARandomMomentIsNamedAndNothingIsLeft) {
  const char* const verbs[] = {"wait", "chatter", "ignore-terminate", "stop-itself"};
  for (int trial = 0; trial < kNumWorkerKills; ++trial) {
    SCOPED_TRACE(absl::StrCat("seed ", seed_, ", trial ", trial));
    IdVector<WorkerId, WorkerLaunch> workers;
    for (int i = 0; i < kNumWorkers; ++i)
      workers.push_back({{kTestWorker, verbs[i]}, absl::StrCat("rank ", i), {RankId(i)}});
    SupervisorOptions options;
    options.log_directory = logs_.path();
    options.grace_ms = Random(trial, 2, 20);
    auto supervisor = Supervisor::Start(workers, options);
    ASSERT_TRUE(supervisor.ok()) << supervisor.status();
    ASSERT_EQ(*(*supervisor)->Wait(Random(trial, 1, 8)), std::nullopt);
    const WorkerId victim(Random(trial, 0, kNumWorkers));
    ASSERT_EQ(::kill(static_cast<pid_t>((*supervisor)->pid(victim)), SIGKILL), 0);
    auto exit = (*supervisor)->Wait(-1);
    ASSERT_TRUE(exit.ok() && exit->has_value());
    EXPECT_EQ((*exit)->worker, victim);
    EXPECT_EQ((*exit)->signal, SIGKILL);
    EXPECT_EQ((*supervisor)->Stop().size(), kNumWorkers - 1u);
    supervisor->reset();
    ASSERT_EQ(census_.Leftovers(), "");
  }
}

// Reads the output of `process` until it contains `text`. Returns "" if the process ended before.
std::string ReadUntil(const WorkerProcess& process, const std::string& text, std::string* printed) {
  while (printed->find(text) == std::string::npos) {
    pollfd output = {process.output.get(), POLLIN, 0};
    char bytes[4096];
    if (::poll(&output, 1, -1) < 1) return "";
    const ssize_t count = ::read(process.output.get(), bytes, sizeof(bytes));
    if (count <= 0) return "";
    printed->append(bytes, static_cast<size_t>(count));
  }
  return text;
}

// Returns true once `process` has printed something, and false if it ended or `limit_ms` passed.
bool HasPrinted(const WorkerProcess& process, int limit_ms) {
  pollfd output = {process.output.get(), POLLIN, 0};
  return ::poll(&output, 1, limit_ms) > 0 && (output.revents & POLLIN) != 0;
}

TEST_F(KillTest, WorkersEndWithTheirStarterWheneverItIsKilled) {
  int num_started = 0;
  for (int trial = 0; trial < kNumStarterKills; ++trial) {
    SCOPED_TRACE(absl::StrCat("seed ", seed_, ", trial ", trial));
    absl::StatusOr<WorkerProcess> starter =
        StartStarter({"wait", "end-politely", "ignore-terminate", "stop-itself"});
    ASSERT_TRUE(starter.ok()) << starter.status();
    // Half of the trials kill during the start, which takes some milliseconds.
    const bool at_start = trial % 2 == 0;
    const bool started = HasPrinted(*starter, at_start ? Random(trial, 0, 12) : -1);
    if (!at_start) {
      ASSERT_TRUE(started);
      pollfd end = {starter->process.get(), POLLIN, 0};
      ASSERT_EQ(::poll(&end, 1, Random(trial, 1, 8)), 0) << "the starter ended by itself";
    }
    SendSignal(*starter, SIGKILL);
    EXPECT_EQ(Collect(*starter).signal, SIGKILL);
    const int num_orphans = census_.CollectOrphans();  // waits for their end
    if (started) {
      EXPECT_EQ(num_orphans, kNumWorkers);
      ++num_started;
    } else {
      EXPECT_LE(num_orphans, kNumWorkers);
    }
    *starter = WorkerProcess();
    ASSERT_EQ(census_.Leftovers(), "");
  }
  EXPECT_GE(num_started, kNumStarterKills / 2);
}

TEST_F(KillTest, TheFirstInterruptAsksTheWorkersAndTheSecondKillsThem) {
  for (int signal : {SIGINT, SIGTERM}) {
    absl::StatusOr<WorkerProcess> starter = StartStarter({"end-politely", "ignore-terminate"});
    ASSERT_TRUE(starter.ok()) << starter.status();
    std::string printed;
    ASSERT_NE(ReadUntil(*starter, "[rank 0] ready\n", &printed), "") << printed;
    ASSERT_NE(ReadUntil(*starter, "[rank 1] ready\n", &printed), "") << printed;
    SendSignal(*starter, signal);
    ASSERT_NE(ReadUntil(*starter, "[rank 0] asked to end\n", &printed), "") << printed;
    // The same signal sooner would be the same request.
    const MonotonicClock clock;
    const int64_t next_request_ns = clock.NowNs() + kOneRequestNs;
    while (clock.NowNs() <= next_request_ns) ::poll(nullptr, 0, 1);
    SendSignal(*starter, signal);
    // The first worker may or may not have left by now. The other worker would have a grace of an
    // hour.
    EXPECT_NE(ReadUntil(*starter, "worker 1: killed by SIGKILL (9)\n", &printed), "") << printed;
    EXPECT_EQ(Collect(*starter).code, 130);
    EXPECT_EQ(census_.CollectOrphans(), 0);
    *starter = WorkerProcess();
    EXPECT_EQ(census_.Leftovers(), "");
  }
}

}  // namespace
}  // namespace weir::launch
