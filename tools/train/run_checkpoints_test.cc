// Tests checkpoints in a folder: what each holder writes, the pace of the writing, what a run does
// while a disk is slow or refuses, and where a run goes on in its data. The function fsync of this
// program stands in front of that of the C library and fails or waits on demand.
#include "tools/train/run_checkpoints.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/checkpoint_folder.h"
#include "runtime/store/checkpoint_index.h"
#include "runtime/store/checkpoint_metadata.h"
#include "runtime/store/safetensors.h"
#include "tools/train/checkpoint_header.h"
#include "tools/train/forwarding_runner_testing.h"
#include "tools/train/job_data.h"
#include "tools/train/prepare_training.h"
#include "tools/train/progress.h"
#include "tools/train/run_so_far.h"
#include "tools/train/state_copy.h"
#include "tools/train/trainer.h"
#include "tools/train/write_pace.h"
#include "tools/zoo/gpt.h"

namespace {

// The number of calls of fsync for files that fail next.
std::atomic<int> flushes_that_fail = 0;
// A flush of a file waits while this is set.
std::atomic<bool> flushes_wait = false;

}  // namespace

extern "C" int fsync(int descriptor) {
  struct stat info;
  const bool folder = ::fstat(descriptor, &info) == 0 && S_ISDIR(info.st_mode);
  if (!folder) {
    flushes_wait.wait(true);
    if (flushes_that_fail > 0) {
      --flushes_that_fail;
      errno = EIO;
      return -1;
    }
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace weir::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 8;

proto::Job SmallJob(const std::string& mesh = "", int64_t batch = 8) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.heads = 2;
  options.sequence = 8;
  options.training.batch = batch;
  options.training.micro_batches = 2;
  options.training.steps = kSteps;
  options.training.learning_rate = 0.01;
  options.training.mesh = mesh;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  job->mutable_training()->mutable_schedule()->set_warmup_steps(0);
  return *job;
}

class RunCheckpointsTest : public ::testing::Test {
 protected:
  RunCheckpointsTest() {
    options_.console = &console_;
    options_.threads_per_device = 1;
    options_.checkpoint = folder_.PathFor("c") + "/";
  }
  ~RunCheckpointsTest() override { flushes_that_fail = 0; }

  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  TrainResult Run(const proto::Job& job) {
    absl::StatusOr<TrainResult> result = Train(job, options_);
    EXPECT_TRUE(result.ok()) << result.status() << "\n" << log_.str();
    return result.ok() ? *result : TrainResult{};
  }
  // Returns the metrics of the last run by step.
  std::map<int64_t, nlohmann::json> Metrics() const {
    std::map<int64_t, nlohmann::json> steps;
    std::ifstream in(options_.metrics);
    for (std::string line; std::getline(in, line);) {
      nlohmann::json parsed = nlohmann::json::parse(line);
      const int64_t step = parsed["step"];
      steps[step] = std::move(parsed);
    }
    return steps;
  }
  // Returns the names in the folder of checkpoints.
  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(Path("c")))
      names.insert(entry.path().filename());
    return names;
  }

  const TemporaryFolder folder_;
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_};
  TrainOptions options_;
};

TEST(ShareOfTest, EveryElementOfAShardHasOneReplicaThatSavesIt) {
  const TensorSlice large{DType::kF32, {1, 1000, 40}, {3, 0, 0}, {7, 1000, 40}};
  const TensorSlice small{DType::kF32, {10}, {0}, {10}};
  const TensorSlice scalar{DType::kF32, {}, {}, {}};
  for (const int64_t count : {1, 2, 3, 7}) {
    int64_t next = 0;
    std::map<std::string, int> savers;
    for (int64_t index = 0; index < count; ++index) {
      const std::optional<TensorSlice> share = ShareOf("w", large, {index, count});
      ASSERT_TRUE(share.has_value());
      EXPECT_EQ(share->offset, (Shape{3, next, 0}));
      EXPECT_LE(share->bytes(), large.bytes() / count + 160);
      next += share->shape[1];
      if (ShareOf("w", small, {index, count}).has_value()) ++savers["small"];
      if (ShareOf("w", scalar, {index, count}).has_value()) ++savers["scalar"];
    }
    EXPECT_EQ(next, 1000);
    EXPECT_EQ(savers, (std::map<std::string, int>{{"scalar", 1}, {"small", 1}}));
  }
}

TEST(WritePaceTest, AWriterSleepsUntilItsBytesAreDue) {
  ManualClock clock;
  WritePace pace(1'000'000, &clock);
  EXPECT_EQ(pace.NsToSleep(500'000), 500'000'000);
  clock.AdvanceTo(400'000'000);
  EXPECT_EQ(pace.NsToSleep(0), 100'000'000);
  clock.AdvanceTo(2'000'000'000);
  EXPECT_EQ(pace.NsToSleep(500'000), 0);
  EXPECT_EQ(pace.NsToSleep(2'000'000), 1'000'000'000);
  pace.Lift();
  EXPECT_EQ(pace.NsToSleep(2'000'000), 0);
  EXPECT_TRUE(pace.Spend(1));
  pace.Stop();
  EXPECT_FALSE(pace.Spend(1));
}

TEST(WritePaceTest, AWriterWithoutLimitNeverSleeps) {
  ManualClock clock;
  EXPECT_EQ(WritePace(0, &clock).NsToSleep(int64_t{1} << 40), 0);
}

TEST_F(RunCheckpointsTest, AFolderHasTheNewestAndEveryFourthAndEqualsTheFile) {
  options_.checkpoint_every = 2;
  options_.keep = 1;
  options_.keep_every = 4;
  options_.metrics = Path("m");
  const TrainResult result = Run(SmallJob("dp=2"));
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(4, 8));
  EXPECT_EQ(Names(), (std::set<std::string>{"latest", "step-000000004", "step-000000008"}));
  EXPECT_EQ(result.checkpoints.written, 4);
  const std::map<int64_t, nlohmann::json> metrics = Metrics();
  for (const int64_t step : {2, 4, 6})
    EXPECT_TRUE(metrics.at(step).contains("checkpoint_stall_seconds")) << step;
  // Both ranks write, and each about a half.
  const store::CheckpointIndex index =
      store::ReadIndex(absl::StrCat(Path("c"), "/step-000000008/", store::kIndexFile)).value();
  ASSERT_EQ(index.files.size(), 2u);
  EXPECT_EQ(index.facts.cursor->samples, kSteps * 8);
  // The single file of the same run holds the same bits.
  options_.checkpoint = Path("file");
  options_.checkpoint_every = options_.keep = options_.keep_every = 0;
  Run(SmallJob("dp=2"));
  const auto one = store::SafetensorsReader::Open(Path("file")).value();
  const auto many = store::SafetensorsReader::Open(Path("c")).value();
  ASSERT_EQ(one->tensors().size(), many->tensors().size());
  for (const auto& [name, tensor] : one->tensors()) {
    const TensorSlice whole = TensorSlice::Whole(DType::kF32, tensor.shape);
    std::vector<char> a(static_cast<size_t>(whole.bytes())), b(a.size());
    ASSERT_TRUE(one->Read(name, whole, a.data()).ok()) << name;
    const absl::Status read = many->Read(name, whole, b.data());
    ASSERT_TRUE(read.ok()) << read;
    EXPECT_EQ(a, b) << name;
  }
}

TEST_F(RunCheckpointsTest, ARunThatIsDoneStandsAtItsLastCheckpoint) {
  RunSoFar so_far;
  RunFolder folder(options_.checkpoint);
  options_.so_far = &so_far;
  options_.folder = &folder;
  options_.checkpoint_every = 3;
  Run(SmallJob("dp=2"));
  EXPECT_EQ(so_far.Whole().steps_done, kSteps);
  ASSERT_TRUE(folder.Last().has_value());
  EXPECT_EQ(folder.Last()->step, kSteps);
  EXPECT_THAT(folder.Last()->path, HasSubstr("step-000000008"));
}

TEST_F(RunCheckpointsTest, ADiskThatRefusesCostsACheckpointAndNoStep) {
  options_.checkpoint_every = 2;
  // The first flush is that of the shards of step 2.
  flushes_that_fail = 1;
  const TrainResult result = Run(SmallJob());
  EXPECT_EQ(result.steps_done, kSteps);
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 2"));
  EXPECT_THAT(log_.str(), HasSubstr("there is none of this run"));
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(4, 6, 8));
  EXPECT_EQ(*store::ReadLatest(Path("c")).value(), kSteps);
  for (const std::string& name : Names()) EXPECT_THAT(name, Not(HasSubstr("partial")));
}

TEST_F(RunCheckpointsTest, ARunWithoutACheckpointOfItsOwnNamesTheOneWithWhichItBegan) {
  proto::Job job = SmallJob();
  job.mutable_training()->set_steps(4);
  Run(job);
  options_.resume = Path("c") + "/step-000000004";
  options_.checkpoint_every = 2;
  flushes_that_fail = 3;  // the checkpoint of step 6, and both attempts at the last
  EXPECT_FALSE(Train(SmallJob(), options_).ok());
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 6"));
  EXPECT_THAT(log_.str(), HasSubstr("The run goes on; the last good one is " + options_.resume));
  EXPECT_THAT(log_.str(),
              HasSubstr("ERROR: no checkpoint of step 8; the last good one is " + options_.resume));
}

TEST_F(RunCheckpointsTest, TheLastCheckpointIsTriedTwice) {
  flushes_that_fail = 1;
  Run(SmallJob());
  EXPECT_THAT(log_.str(), HasSubstr("It is tried again"));
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(kSteps));
  flushes_that_fail = 2;
  options_.checkpoint = Path("d") + "/";
  const absl::Status failed = Train(SmallJob(), options_).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr("W0046"));
  EXPECT_TRUE(store::CommittedSteps(Path("d")).empty());
}

TEST_F(RunCheckpointsTest, ARunWaitsForADiskThatIsSlowerThanItsCheckpoints) {
  options_.checkpoint_every = 2;
  // The states are some 100 KiB, and the steps take milliseconds.
  options_.checkpoint_bandwidth = 256 << 10;
  const TrainResult result = Run(SmallJob());
  EXPECT_THAT(log_.str(), HasSubstr("the run waited"));
  EXPECT_THAT(log_.str(), HasSubstr("for the checkpoint of step 2, because that of step 4 is due"));
  EXPECT_EQ(result.checkpoints.written, 4);
  EXPECT_GT(result.checkpoints.stall_seconds, 0);
}

// Lets flushes end once three steps are done.
class ReleasingRunner final : public ForwardingRunner {
 public:
  explicit ReleasingRunner(std::unique_ptr<JobRunner> runner)
      : ForwardingRunner(std::move(runner)) {}
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    absl::StatusOr<std::map<int64_t, StepMetrics>> reported = ForwardingRunner::RunSteps(steps);
    steps_ += steps;
    if (steps_ >= 3) {
      flushes_wait = false;
      flushes_wait.notify_all();
    }
    return reported;
  }

 private:
  int64_t steps_ = 0;
};

// A run that waited for its checkpoint would never come to the third step.
TEST_F(RunCheckpointsTest, StepsGoOnWhileTheDiskIsBusy) {
  options_.checkpoint_every = 2;
  options_.runner = [](const proto::Job& job,
                       const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<ReleasingRunner>(*std::move(runner));
  };
  flushes_wait = true;
  Run(SmallJob());
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(2, 4, 6, 8));
}

// Counts how often the memory for checkpoints is taken ahead.
class CountingRunner final : public ForwardingRunner {
 public:
  CountingRunner(std::unique_ptr<JobRunner> runner, int* count)
      : ForwardingRunner(std::move(runner)), count_(count) {}
  absl::Status PrepareCheckpoints() override {
    ++*count_;
    return ForwardingRunner::PrepareCheckpoints();
  }

 private:
  int* const count_;
};

TEST_F(RunCheckpointsTest, MemoryIsTakenAheadForCheckpointsOnTheWay) {
  int count = 0;
  options_.runner =
      [&count](const proto::Job& job,
               const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<CountingRunner>(*std::move(runner), &count);
  };
  Run(SmallJob());
  EXPECT_EQ(count, 0);
  options_.checkpoint_every = 2;
  Run(SmallJob());
  EXPECT_EQ(count, 1);
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(2, 4, 6, 8));
}

// Calls a function with the number of checkpoints each time that one is committed.
class AfterCheckpointRunner final : public ForwardingRunner {
 public:
  AfterCheckpointRunner(std::unique_ptr<JobRunner> runner, std::function<void(int)> act)
      : ForwardingRunner(std::move(runner)), act_(std::move(act)) {}
  absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait wait) override {
    auto ended = ForwardingRunner::EndCheckpoint(wait);
    if (ended.ok() && ended->has_value()) act_(++written_);
    return ended;
  }

 private:
  const std::function<void(int)> act_;
  int written_ = 0;
};

RunnerFactory ActAfterCheckpoints(std::function<void(int)> act) {
  return [act = std::move(act)](
             const proto::Job& job,
             const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<AfterCheckpointRunner>(*std::move(runner), act);
  };
}

TEST_F(RunCheckpointsTest, ARunWhoseFolderWasRenamedTakesANewOneForItself) {
  options_.checkpoint_every = 2;
  absl::Status of_second;
  options_.runner = ActAfterCheckpoints([&](int written) {
    if (written == 1) std::filesystem::rename(Path("c"), Path("moved"));
    if (written == 2) of_second = CheckPlaceOfCheckpoints(options_.checkpoint);
  });
  Run(SmallJob());
  EXPECT_THAT(std::string(of_second.message()), HasSubstr("W0741"));
  EXPECT_THAT(store::CommittedSteps(Path("moved")), ElementsAre(2));
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(4, 6, 8));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: somebody has renamed or removed " + Path("c")));
}

TEST_F(RunCheckpointsTest, ARunWhoseFolderAnotherRunHasMadeAnewWritesNothingThere) {
  options_.checkpoint_every = 2;
  std::unique_ptr<store::FolderClaim> other;
  options_.runner = ActAfterCheckpoints([&](int written) {
    ASSERT_EQ(written, 1);
    std::filesystem::rename(Path("c"), Path("moved"));
    other = store::FolderClaim::Take(Path("c")).value();
  });
  const absl::Status refused = Train(SmallJob(), options_).status();
  EXPECT_EQ(ExitCode(refused), 66);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 4: W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 6: W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("ERROR: no checkpoint of step 8"));
  EXPECT_TRUE(Names().empty());
}

TEST_F(RunCheckpointsTest, AnAttemptThatIsRefusedIsNotDueAgainAtOnce) {
  options_.checkpoint_every_seconds = 60;
  const proto::Job job = SmallJob();
  const PreparedTraining prepared = PrepareTraining(job, options_, {}).value();
  const std::unique_ptr<JobRunner> runner =
      LocalRunner::Open(job, {1, 0, 0, options_.on_nonfinite, &prepared, nullptr}).value();
  ManualClock clock;
  Progress progress("samples", &clock, &console_, nullptr);
  RunFolder folder(options_.checkpoint);
  RunCheckpoints checkpoints(job, options_, &folder, &clock, &progress);
  checkpoints.Open(runner.get(), prepared);
  const auto other = store::FolderClaim::Take(Path("c")).value();
  clock.AdvanceTo(61'000'000'000);
  EXPECT_TRUE(checkpoints.IsDueByTime());
  EXPECT_TRUE(checkpoints.WriteOnTheWay(2).ok());
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 2: W0741"));
  EXPECT_FALSE(checkpoints.IsDueByTime());
}

// Loses its ranks once so many checkpoints are committed.
class LosingRunner final : public ForwardingRunner {
 public:
  LosingRunner(std::unique_ptr<JobRunner> runner, int checkpoints)
      : ForwardingRunner(std::move(runner)), left_(checkpoints) {}
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    if (left_ == 0) return absl::UnavailableError("a rank is lost");
    return ForwardingRunner::RunSteps(steps);
  }
  absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait) override {
    auto ended = ForwardingRunner::EndCheckpoint(Wait::kYes);
    if (ended.ok() && ended->has_value()) --left_;
    return ended;
  }

 private:
  int left_;
};

// Loses its ranks while the run waits for its first checkpoint. Each checkpoint takes a second to
// begin.
class LateLossRunner final : public ForwardingRunner {
 public:
  LateLossRunner(std::unique_ptr<JobRunner> runner, ManualClock* clock)
      : ForwardingRunner(std::move(runner)), clock_(clock) {}
  absl::Status BeginCheckpoint(const CheckpointOrder& order) override {
    clock_->AdvanceTo(clock_->NowNs() + 1'000'000'000);
    return ForwardingRunner::BeginCheckpoint(order);
  }
  absl::StatusOr<std::optional<CheckpointWritten>> EndCheckpoint(Wait /*wait*/) override {
    auto ended = ForwardingRunner::EndCheckpoint(Wait::kYes);
    if (!std::exchange(has_lost_, true)) return absl::UnavailableError("a rank is lost");
    return ended;
  }

 private:
  ManualClock* const clock_;
  bool has_lost_ = false;
};

TEST_F(RunCheckpointsTest, StepsThatALossAtTheEndRepeatsWaitForTheirCheckpointsAgain) {
  const proto::Job job = SmallJob();
  const PreparedTraining prepared = PrepareTraining(job, options_, {}).value();
  RunnerOptions runner_options;
  runner_options.threads_per_device = 1;
  runner_options.prepared = &prepared;
  ManualClock clock;
  LateLossRunner runner(LocalRunner::Open(job, runner_options).value(), &clock);
  RunFolder folder(options_.checkpoint);
  Progress progress("tokens", &clock, &console_, nullptr);
  RunCheckpoints checkpoints(job, options_, &folder, &clock, &progress);
  ASSERT_TRUE(checkpoints.Claim().ok());
  checkpoints.Open(&runner, prepared);
  std::vector<absl::Status> problems;
  EXPECT_TRUE(RanksAreGone(checkpoints.WriteLast(kSteps, &problems)));
  EXPECT_EQ(checkpoints.totals().stall_seconds, 0) << "no step waits at the end";
  EXPECT_TRUE(checkpoints.WriteOnTheWay(kSteps - 2).ok());
  EXPECT_EQ(checkpoints.totals().stall_seconds, 1);
  checkpoints.Await();
  EXPECT_EQ(checkpoints.totals().written, 1);
}

// Loses the ranks of a runner once so many checkpoints are committed.
RunnerFactory LoseRanksAfter(int checkpoints) {
  return [checkpoints](const proto::Job& job,
                       const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<LosingRunner>(*std::move(runner), checkpoints);
  };
}

// A run of two attempts. The first one loses its ranks after the checkpoints of steps 2 and 4.
class RunOfTwoAttemptsTest : public RunCheckpointsTest {
 protected:
  RunOfTwoAttemptsTest() {
    options_.folder = &run_;
    options_.checkpoint_every = 2;
    options_.runner = LoseRanksAfter(2);
    EXPECT_EQ(Train(SmallJob(), options_).status().message(), "a rank is lost") << log_.str();
    options_.runner = LocalRunner::Open;
  }
  // Returns the step after which the second attempt goes on.
  int64_t RunAgain() {
    options_.resume = run_.GoBackToWhole().path;
    RunSoFar so_far;
    options_.so_far = &so_far;
    std::optional<int64_t> began;
    options_.before_steps = [&] { began = so_far.Whole().steps_done; };
    EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
    return began.value_or(-1);
  }

  RunFolder run_{options_.checkpoint};
};

TEST_F(RunOfTwoAttemptsTest, NoOtherRunTakesTheFolderBetweenTwoAttempts) {
  EXPECT_THAT(std::string(CheckPlaceOfCheckpoints(options_.checkpoint).message()),
              HasSubstr("W0741"));
  EXPECT_EQ(RunAgain(), 4);
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(2, 4, 6, 8));
}

TEST_F(RunOfTwoAttemptsTest, AFolderThatIsRenamedBetweenThemCostsNoStep) {
  std::filesystem::rename(Path("c"), Path("moved"));
  EXPECT_EQ(RunAgain(), 4);
  EXPECT_THAT(store::CommittedSteps(Path("moved")), ElementsAre(2, 4));
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(6, 8));
}

TEST_F(RunOfTwoAttemptsTest, ACheckpointThatSomebodyRemovesCostsItsStepsOnly) {
  std::filesystem::remove_all(Path("c") + "/step-000000004");
  EXPECT_EQ(RunAgain(), 2);
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(2, 4, 6, 8));
}

TEST_F(RunOfTwoAttemptsTest, ACheckpointThatSomebodyEditsCostsItsStepsOnly) {
  const std::string path = run_.GoBackToWhole().path + "/" + store::kIndexFile;
  store::CheckpointIndex index = store::ReadIndex(path).value();
  index.facts.job = "another name";
  std::ofstream(path, std::ios::binary) << store::EncodeIndex(index);
  EXPECT_EQ(RunAgain(), 2);
}

TEST_F(RunOfTwoAttemptsTest, ACheckpointThatGoesWhileASecondAttemptLoadsItCostsItsStepsOnly) {
  const std::string chosen = run_.GoBackToWhole().path;
  bool has_loaded = false;
  options_.resume = chosen;
  options_.before_steps = [&] { has_loaded = true; };
  options_.runner = [&](const proto::Job& job, const RunnerOptions& options) {
    std::filesystem::remove_all(chosen);
    return LocalRunner::Open(job, options);
  };
  EXPECT_FALSE(Train(SmallJob(), options_).ok());
  EXPECT_FALSE(has_loaded);
  EXPECT_EQ(run_.GoBackFurther(chosen)->path, Path("c") + "/step-000000002");
  options_.runner = LocalRunner::Open;
  EXPECT_EQ(RunAgain(), 2);
}

TEST_F(RunOfTwoAttemptsTest, ASecondAttemptGoesOnThoughItsFolderIsRefusedByThen) {
  std::filesystem::rename(Path("c"), Path("moved"));
  const auto other = store::FolderClaim::Take(Path("c")).value();
  options_.resume = run_.GoBackToWhole().path;
  EXPECT_THAT(std::string(Train(SmallJob(), options_).status().message()), HasSubstr("W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 6: W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("ERROR: no checkpoint of step 8"));
}

TEST_F(RunOfTwoAttemptsTest, ASecondAttemptGoesOnThoughAnotherRunHasMadeItsFolderAnew) {
  std::filesystem::remove_all(Path("c"));
  const auto other = store::FolderClaim::Take(Path("c")).value();
  options_.resume = run_.GoBackToWhole().path;
  EXPECT_EQ(options_.resume, "");
  EXPECT_THAT(std::string(Train(SmallJob(), options_).status().message()), HasSubstr("W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no checkpoint of step 2: W0741"));
  EXPECT_THAT(log_.str(), HasSubstr("ERROR: no checkpoint of step 8"));
}

// The checkpoint is one file, and each attempt begins at the first step.
TEST_F(RunCheckpointsTest, ASecondAttemptGoesOnThoughTheFolderOfTheWeightsIsGone) {
  options_.checkpoint = Path("file");
  RunFolder run(options_.checkpoint);
  options_.folder = &run;
  std::filesystem::create_directory(Path("out"));
  options_.save = Path("out") + "/weights";
  options_.runner = LoseRanksAfter(0);
  EXPECT_EQ(Train(SmallJob(), options_).status().message(), "a rank is lost");
  std::filesystem::remove_all(Path("out"));
  options_.runner = LocalRunner::Open;
  EXPECT_THAT(std::string(Train(SmallJob(), options_).status().message()),
              HasSubstr(options_.save));
  EXPECT_THAT(log_.str(), HasSubstr("ERROR: weights not written to " + options_.save));
  ASSERT_TRUE(run.Last().has_value());
  EXPECT_EQ(run.Last()->step, kSteps);
}

TEST_F(RunCheckpointsTest, ASecondAttemptGoesOnThoughTheFolderOfTheMetricsIsGone) {
  RunFolder run(options_.checkpoint);
  options_.folder = &run;
  std::filesystem::create_directory(Path("out"));
  options_.metrics = Path("out") + "/m";
  options_.runner = LoseRanksAfter(0);
  EXPECT_EQ(Train(SmallJob(), options_).status().message(), "a rank is lost");
  std::filesystem::remove_all(Path("out"));
  options_.runner = LocalRunner::Open;
  const TrainResult result = Run(SmallJob());
  EXPECT_EQ(result.steps_done, kSteps);
  EXPECT_THAT(result.incomplete, ElementsAre("--metrics " + options_.metrics));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: --metrics " + options_.metrics +
                                    ": a line could not be written: No such file or directory"));
}

TEST_F(RunCheckpointsTest, ACheckOfTheFolderSeesTheRunThatWritesThere) {
  EXPECT_TRUE(CheckPlaceOfCheckpoints(options_.checkpoint).ok());
  const auto claim = store::FolderClaim::Take(Path("c")).value();
  EXPECT_THAT(std::string(CheckPlaceOfCheckpoints(options_.checkpoint).message()),
              HasSubstr("W0741"));
  EXPECT_TRUE(CheckPlaceOfCheckpoints(Path("file")).ok());
}

TEST_F(RunCheckpointsTest, APlaceWhereNoCheckpointCanBeIsRefusedBeforeTheFirstStep) {
  Run(SmallJob());
  bool begins = false;
  options_.before_steps = [&] { begins = true; };
  const std::string committed = Path("c") + "/step-000000008";
  for (const auto& [path, code] : {std::pair<std::string, std::string>{"/proc/x/", "W0046"},
                                   {"/proc/", "W0046"},
                                   {committed, "W0926"},
                                   {committed + "/file", "W0926"},
                                   {committed + "/more/", "W0926"}}) {
    options_.checkpoint = path;
    const absl::Status refused = Train(SmallJob(), options_).status();
    EXPECT_THAT(std::string(refused.message()), HasSubstr(code)) << path;
    EXPECT_EQ(CheckPlaceOfCheckpoints(path), refused) << path;
  }
  EXPECT_FALSE(begins);
  options_.checkpoint = Path("c") + "/";
  Run(SmallJob());
  EXPECT_TRUE(begins);
}

TEST_F(RunCheckpointsTest, ALeftoverOfADeadRunIsSweptAndALongerRunStays) {
  std::filesystem::create_directories(Path("c") + "/step-000000002.partial-0123456789abcdef");
  Run(SmallJob());
  proto::Job job = SmallJob();
  job.mutable_training()->set_steps(4);
  options_.keep = 1;
  Run(job);
  EXPECT_EQ(Names(), (std::set<std::string>{"latest", "step-000000004", "step-000000008"}));
  EXPECT_THAT(log_.str(), HasSubstr("holds checkpoints up to step 8"));
  EXPECT_EQ(*store::ReadLatest(Path("c")).value(), 4);
}

TEST_F(RunCheckpointsTest, ARunRemovesNoCheckpointOfAnotherRunInItsFolder) {
  options_.checkpoint_every = 4;
  Run(SmallJob());
  options_.checkpoint_every = 3;
  options_.keep = 1;
  proto::Job job = SmallJob();
  job.mutable_training()->set_steps(6);
  Run(job);
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(4, 6, 8));
  EXPECT_THAT(log_.str(), HasSubstr("The others stay, and --keep does not count them"));
  // Those up to the one that a run resumes are its past, and those after it are not.
  options_.resume = Path("c") + "/step-000000006";
  job.mutable_training()->set_steps(9);
  Run(job);
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(8, 9));
}

TEST_F(RunCheckpointsTest, WhoResumesAnEarlierStepIsToldWhatBecomesOfTheLaterOnes) {
  options_.checkpoint_every = 4;
  Run(SmallJob());
  options_.resume = Path("c") + "/step-000000004";
  Run(SmallJob());
  EXPECT_THAT(log_.str(), HasSubstr("has checkpoints of later steps, up to step 8: this run "
                                    "replaces each one whose step it writes again"));
  EXPECT_THAT(log_.str(), Not(HasSubstr("holds checkpoints up to")));
}

TEST_F(RunCheckpointsTest, AResumeWithAnotherBatchGoesOnAtTheNextSample) {
  options_.metrics = Path("m");
  proto::Job job = SmallJob();
  job.mutable_training()->set_steps(4);
  Run(job);
  options_.resume = Path("c");
  options_.checkpoint = Path("d") + "/";
  Run(SmallJob("", 4));
  EXPECT_THAT(log_.str(), HasSubstr("the run goes on after the 32 samples of its first 4 steps, "
                                    "and a step now has 4 samples"));
  const auto file = store::SafetensorsReader::Open(Path("d")).value();
  const store::CheckpointFacts facts = store::FactsOf(file->metadata());
  EXPECT_EQ(facts.cursor->samples, 48);
  const int64_t offset = SampleOffset(facts, 8);
  EXPECT_EQ(store::SampleNumber({store::DataPart::kTrain, 8, 0, 2, offset}, 4, 0), 48);
}

TEST(CheckResumeTest, SamplesThatTheStepsAheadWouldOverflowAreRefused) {
  const proto::Job job = SmallJob();
  store::CheckpointFacts facts;
  facts.step = facts.optimizer_step = 4;
  const auto error_of = [&](int64_t samples) {
    facts.cursor = store::DataCursor{samples, 0, 1, ""};
    return std::string(CheckResume(job, "c.safetensors", facts).message());
  };
  EXPECT_EQ(error_of(32), "");
  const int64_t most = (int64_t{1} << 62) - (kSteps - 4) * 8;
  EXPECT_EQ(error_of(most), "");
  EXPECT_THAT(error_of(most + 1), HasSubstr("W0718 at c.safetensors, data cursor"));
  EXPECT_THAT(error_of(9223372036854775807),
              HasSubstr("found 9223372036854775807 at step 4, with 4 steps ahead of 8 samples"));
}

TEST(SampleNumberTest, AnOffsetMovesAllSamplesOfAStep) {
  // Four steps of 8 samples are done, and a step now has two micro-batches of 2.
  store::CheckpointFacts facts;
  facts.step = 4;
  facts.cursor = store::DataCursor{32};
  const int64_t offset = SampleOffset(facts, 4);
  int64_t next = 32;
  for (int64_t step = 4; step < 7; ++step) {
    for (int64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
      for (int64_t row = 0; row < 2; ++row) {
        EXPECT_EQ(
            store::SampleNumber({store::DataPart::kTrain, step, micro_batch, 2, offset}, 2, row),
            next++);
      }
    }
  }
}

TEST_F(RunCheckpointsTest, AStateThatIsNotFiniteIsNeverCommitted) {
  // Weights with a NaN in them give steps without updates.
  options_.save = Path("weights");
  options_.checkpoint.clear();
  Run(SmallJob());
  const auto good = store::SafetensorsReader::Open(Path("weights")).value();
  std::vector<store::SafetensorsWriter::Entry> entries;
  for (const auto& [name, stored] : good->tensors())
    entries.push_back({name, DType::kF32, stored.shape});
  auto writer = store::SafetensorsWriter::Create(Path("bad"), entries, {}).value();
  for (size_t i = 0; i < writer->entries().size(); ++i) {
    const auto& entry = writer->entries()[i];
    std::vector<float> values(static_cast<size_t>(NumElements(entry.shape)));
    ASSERT_TRUE(
        good->Read(entry.name, TensorSlice::Whole(DType::kF32, entry.shape), values.data()).ok());
    values[0] = std::nanf("");
    ASSERT_TRUE(writer->Write(i, values.data()).ok());
  }
  ASSERT_TRUE(writer->Commit().ok());
  options_.save.clear();
  options_.init = Path("bad");
  options_.on_nonfinite = OnNonfinite::kSkip;
  options_.checkpoint = Path("c") + "/";
  const absl::Status refused = Train(SmallJob(), options_).status();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("W0963"));
  EXPECT_FALSE(std::filesystem::exists(Path("c")));
  options_.on_nonfinite = OnNonfinite::kContinue;
  Run(SmallJob());
  EXPECT_THAT(store::CommittedSteps(Path("c")), ElementsAre(kSteps));
}

}  // namespace
}  // namespace weir::train
