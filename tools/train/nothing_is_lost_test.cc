// Tests what a run keeps when it meets trouble: a full disk, an interrupt, an evaluation that
// fails, values that are not finite.
#include <sys/mount.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/pending_file.h"
#include "runtime/store/safetensors.h"
#include "tools/train/forwarding_runner_testing.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 12;

// The change that a test makes to the ranks.
struct Trouble {
  std::atomic<bool> interrupted = false;
  int64_t interrupt_at = -1;    // steps done, of this run
  int64_t saves_that_fail = 0;  // the first checkpoint saves fail
  bool evaluation_fails = false;
  int64_t steps = 0;
};

class TroubledRunner final : public ForwardingRunner {
 public:
  TroubledRunner(std::unique_ptr<JobRunner> runner, Trouble* trouble)
      : ForwardingRunner(std::move(runner)), trouble_(*trouble) {}
  const RunnerFacts& facts() const override {
    facts_ = ForwardingRunner::facts();
    if (trouble_.evaluation_fails) facts_.evaluation_batches = 1;
    return facts_;
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    trouble_.steps += steps;
    if (trouble_.steps == trouble_.interrupt_at) trouble_.interrupted = true;
    return ForwardingRunner::RunSteps(steps);
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() override {
    return trouble_.evaluation_fails ? absl::InvalidArgumentError("W0514 no such image")
                                     : ForwardingRunner::Evaluate();
  }
  absl::StatusOr<uint32_t> Save(const SaveOrder& order) override {
    if (order.set == StateSet::kAll && trouble_.saves_that_fail-- > 0)
      return store::CannotWrite(order.path, "no room", ENOSPC);
    return ForwardingRunner::Save(order);
  }

 private:
  Trouble& trouble_;
  mutable RunnerFacts facts_;
};

class NothingIsLostTest : public ::testing::Test {
 protected:
  NothingIsLostTest() {
    options_.console = &console_;
    options_.threads_per_device = 1;
    options_.interrupted = &trouble_.interrupted;
    options_.runner =
        [this](const proto::Job& job,
               const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
      absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
      if (!runner.ok()) return runner.status();
      return std::make_unique<TroubledRunner>(*std::move(runner), &trouble_);
    };
  }

  std::string Path(const std::string& name) const { return folder_.PathFor(name); }
  static std::string Text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  static proto::Job SmallJob(const std::string& mesh = "") {
    zoo::TransformerOptions options;
    options.layers = 2;
    options.hidden = 16;
    options.heads = 2;
    options.sequence = 8;
    options.training.batch = 8;
    options.training.micro_batches = 2;
    options.training.steps = kSteps;
    options.training.learning_rate = 0.01;
    options.training.mesh = mesh;
    absl::StatusOr<proto::Job> job = zoo::GptJob(options);
    EXPECT_TRUE(job.ok()) << job.status();
    job->mutable_training()->mutable_schedule()->set_warmup_steps(0);
    return *job;
  }
  TrainResult Run(const proto::Job& job) {
    absl::StatusOr<TrainResult> result = Train(job, options_);
    EXPECT_TRUE(result.ok()) << result.status() << "\n" << log_.str();
    return result.ok() ? *result : TrainResult{};
  }
  absl::Status Error(const proto::Job& job) {
    absl::StatusOr<TrainResult> result = Train(job, options_);
    EXPECT_FALSE(result.ok()) << log_.str();
    return result.status();
  }
  // Returns the weights that the run with `options` saves, byte for byte.
  std::string WeightsAfter(proto::Job job, int64_t steps) {
    TrainOptions options;
    options.console = &console_;
    options.threads_per_device = 1;
    options.save = Path("reference");
    job.mutable_training()->set_steps(steps);
    EXPECT_TRUE(Train(job, options).ok());
    return Text(options.save);
  }
  // Writes the same file with the first value of tensor `name` replaced by NaN.
  void PutNan(const std::string& path, const std::string& name) {
    auto file = store::SafetensorsReader::Open(path).value();
    ASSERT_EQ(file->tensors().count(name), 1u) << name;
    std::vector<store::SafetensorsWriter::Entry> entries;
    for (const auto& [tensor, stored] : file->tensors())
      entries.push_back({tensor, DType::kF32, stored.shape});
    auto writer = store::SafetensorsWriter::Create(path, entries, {}).value();
    for (size_t i = 0; i < writer->entries().size(); ++i) {
      const auto& entry = writer->entries()[i];
      std::vector<float> values(static_cast<size_t>(NumElements(entry.shape)));
      ASSERT_TRUE(
          file->Read(entry.name, TensorSlice::Whole(DType::kF32, entry.shape), values.data()).ok());
      if (entry.name == name) values[0] = std::nanf("");
      ASSERT_TRUE(writer->Write(i, values.data()).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }

  const TemporaryFolder folder_;
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_};
  TrainOptions options_;
  Trouble trouble_;
};

TEST_F(NothingIsLostTest, AnInterruptBeforeTheFirstStepChangesNoFile) {
  for (const char* name : {"save", "checkpoint", "metrics", "trace"})
    std::ofstream(Path(name)) << "of an earlier run";
  options_.save = Path("save");
  options_.checkpoint = Path("checkpoint");
  options_.metrics = Path("metrics");
  options_.trace = Path("trace");
  trouble_.interrupted = true;
  const TrainResult result = Run(SmallJob());
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps_here, 0);
  EXPECT_THAT(log_.str(), HasSubstr("before the first step"));
  for (const char* name : {"save", "checkpoint", "metrics", "trace"})
    EXPECT_EQ(Text(Path(name)), "of an earlier run") << name;
}

TEST_F(NothingIsLostTest, AnInterruptLaterEndsAtAStepAndSaves) {
  options_.save = Path("save");
  trouble_.interrupt_at = 1;
  const TrainResult result = Run(SmallJob());
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps_done, 1);
  EXPECT_EQ(Text(Path("save")), WeightsAfter(SmallJob(), 1));
}

TEST_F(NothingIsLostTest, OnATerminalAnInterruptIsTheLastLine) {
  std::ostringstream screen;
  console::Console console(console::Console::Style::kTerminal, &screen);
  options_.console = &console;
  trouble_.interrupt_at = 1;
  EXPECT_TRUE(Run(SmallJob()).interrupted);
  const std::string text = screen.str();
  const size_t at = text.find("interrupted after step 1 of 12\n");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_NE(text.find("step 1/12"), std::string::npos) << text;
  EXPECT_EQ(text.find("/12", at), std::string::npos)
      << "progress of an earlier step below: " << text;
}

TEST_F(NothingIsLostTest, TheCheckpointOfALongerRunIsKept) {
  options_.checkpoint = Path("checkpoint");
  EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
  const std::string all = Text(Path("checkpoint"));
  trouble_.steps = 0;
  trouble_.interrupt_at = 1;
  EXPECT_EQ(Run(SmallJob()).steps_done, 1);
  EXPECT_THAT(log_.str(), HasSubstr(absl::StrCat("holds a checkpoint of step ", kSteps)));
  EXPECT_THAT(log_.str(),
              HasSubstr("checkpoint of a longer run at " + Path("checkpoint") + " kept as "));
  EXPECT_EQ(Text(Path("checkpoint.before")), all);
  EXPECT_EQ(store::SafetensorsReader::Open(Path("checkpoint")).value()->metadata().at("step"), "1");
  // A run that gets as far replaces the file and leaves what is kept.
  trouble_.interrupt_at = -1;
  trouble_.interrupted = false;
  options_.resume = Path("checkpoint");
  EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
  EXPECT_EQ(Text(Path("checkpoint")), all);
  EXPECT_EQ(Text(Path("checkpoint.before")), all);
}

TEST_F(NothingIsLostTest, TheWeightsOfALongerRunAreKept) {
  options_.save = Path("save");
  EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
  const std::string all = Text(Path("save"));
  trouble_.steps = 0;
  trouble_.interrupt_at = 1;
  EXPECT_EQ(Run(SmallJob()).steps_done, 1);
  EXPECT_THAT(log_.str(), HasSubstr("weights of a longer run at " + Path("save") + " kept as "));
  EXPECT_TRUE(Text(Path("save.before")) == all);
  EXPECT_TRUE(Text(Path("save")) == WeightsAfter(SmallJob(), 1));
  // A run that gets as far replaces the file and leaves what is kept.
  trouble_.interrupt_at = -1;
  trouble_.interrupted = false;
  EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
  EXPECT_TRUE(Text(Path("save")) == all);
  EXPECT_TRUE(Text(Path("save.before")) == all);
}

TEST_F(NothingIsLostTest, OfSeveralLongerRunsTheLongestIsKept) {
  options_.checkpoint = Path("checkpoint");
  EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
  const std::string all = Text(Path("checkpoint"));
  for (const int64_t steps : {3, 2, 1}) {
    proto::Job shorter = SmallJob();
    shorter.mutable_training()->set_steps(steps);
    EXPECT_EQ(Run(shorter).steps_done, steps);
    EXPECT_EQ(Text(Path("checkpoint.before")), all) << "after a run of " << steps << " steps";
  }
}

TEST_F(NothingIsLostTest, ACheckpointThatTheDiskDoesNotTakeCostsNoStepAndTheNextIsTried) {
  options_.checkpoint = Path("checkpoint");
  options_.checkpoint_every = 4;
  trouble_.saves_that_fail = 1;
  EXPECT_EQ(Run(SmallJob()).steps_done, kSteps);
  EXPECT_THAT(log_.str(),
              HasSubstr("WARNING: no checkpoint of step 4: W0046 at " + Path("checkpoint")));
  EXPECT_THAT(log_.str(), HasSubstr("No space left on device"));
  EXPECT_THAT(log_.str(), HasSubstr("checkpoint of step 8 written"));
  EXPECT_EQ(store::SafetensorsReader::Open(Path("checkpoint")).value()->metadata().at("step"),
            absl::StrCat(kSteps));
}

TEST_F(NothingIsLostTest, WeightsAreSavedThoughTheLastCheckpointIsNot) {
  options_.checkpoint = Path("checkpoint");
  options_.save = Path("save");
  trouble_.saves_that_fail = 100;
  const absl::Status status = Error(SmallJob());
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0046 at " + Path("checkpoint")));
  EXPECT_EQ(Text(Path("save")), WeightsAfter(SmallJob(), kSteps));
}

TEST_F(NothingIsLostTest, AnEvaluationThatFailsLosesNoWeights) {
  proto::Job job = SmallJob();
  job.mutable_training()->set_eval_every(3);
  options_.save = Path("save");
  trouble_.evaluation_fails = true;
  EXPECT_THAT(std::string(Error(job).message()), HasSubstr("W0514 no such image"));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: the evaluation after step 3 failed"));
  EXPECT_THAT(log_.str(), Not(HasSubstr("after step 6 failed")));
  EXPECT_EQ(Text(Path("save")), WeightsAfter(SmallJob(), kSteps));
}

TEST_F(NothingIsLostTest, AFullDiskUnderTheMetricsCostsLinesAndNothingElse) {
  std::filesystem::create_directory(Path("small"));
  if (::mount("weir", Path("small").c_str(), "tmpfs", 0, "size=4k,nr_inodes=4") != 0) {
    std::cerr << "NOT TESTED: a full disk needs a file system of its own, and this user may not "
                 "mount one: "
              << strerror(errno) << "\n";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  proto::Job job = SmallJob();
  job.mutable_training()->set_steps(100);
  options_.metrics = Path("small/metrics");
  options_.save = Path("save");
  const TrainResult result = Run(job);
  EXPECT_EQ(result.steps_done, 100);
  EXPECT_THAT(result.incomplete, ElementsAre("--metrics " + options_.metrics));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: --metrics " + options_.metrics +
                                    ": a line could not be written: No space left on device"));
  EXPECT_THAT(log_.str(), HasSubstr("lines that could not be written"));
  std::ifstream lines(options_.metrics);
  int64_t step = 0;
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(nlohmann::json::parse(line)["step"], ++step) << "no line is broken";
  EXPECT_GT(step, 0);
  EXPECT_LT(step, 100);
  EXPECT_FALSE(Text(Path("save")).empty());
  lines.close();
  EXPECT_EQ(::umount(Path("small").c_str()), 0);
}

TEST_F(NothingIsLostTest, ATraceThatCannotBeWrittenIsAWarning) {
  std::filesystem::create_directory(Path("small"));
  if (::mount("weir", Path("small").c_str(), "tmpfs", 0, "size=4k") != 0) {
    std::cerr << "NOT TESTED: a full disk needs a file system of its own, and this user may not "
                 "mount one: "
              << strerror(errno) << "\n";
    GTEST_SKIP() << "cannot mount a tmpfs";
  }
  options_.trace = Path("small/trace");
  options_.save = Path("save");
  EXPECT_THAT(Run(SmallJob()).incomplete, ElementsAre("--trace " + options_.trace));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: no trace: W0046 at " + options_.trace));
  EXPECT_FALSE(std::filesystem::exists(options_.trace));
  EXPECT_EQ(::umount(Path("small").c_str()), 0);
}

TEST_F(NothingIsLostTest, PlacesThatDoNotExistAreRefusedBeforeTheFirstStep) {
  for (std::string TrainOptions::*path : {&TrainOptions::save, &TrainOptions::checkpoint,
                                          &TrainOptions::metrics, &TrainOptions::trace}) {
    options_.*path = Path("no/folder/file");
    EXPECT_EQ(Error(SmallJob()).code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(trouble_.steps, 0);
    (options_.*path).clear();
  }
}

TEST_F(NothingIsLostTest, ADivergedRunStopsNamesTheTensorAndKeepsWhatWasThere) {
  for (const char* mesh : {"", "dp=2,tp=2", "pp=2"}) {
    log_.str("");
    proto::Job job = SmallJob(mesh);
    job.mutable_training()->mutable_optimizer()->set_clip_norm(0);
    job.mutable_training()->mutable_schedule()->set_learning_rate(1e30);
    options_.save = Path("save");
    options_.checkpoint = Path("checkpoint");
    std::ofstream(options_.save) << "good weights";
    std::ofstream(options_.checkpoint) << "a good checkpoint";
    const absl::Status status = Error(job);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << mesh;
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("W0962 at step 2: expected a finite loss and finite gradients; found loss"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("first not finite: rank "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("forward"));
    EXPECT_EQ(Text(options_.save), "good weights");
    EXPECT_EQ(Text(options_.checkpoint), "a good checkpoint");
    EXPECT_EQ(store::SafetensorsReader::Open(options_.checkpoint + ".stopped")
                  .value()
                  ->metadata()
                  .at("step"),
              "1");
    EXPECT_EQ(Text(options_.save + ".stopped"), WeightsAfter(job, 1))
        << "as after the last update that was made";
  }
}

// Such a run leaves out updates with gradients that are not finite in any case. A loss that is not
// finite ends it as it ends other runs.
TEST_F(NothingIsLostTest, ADivergedRunWhoseLossScaleAdaptsStopsBeforeTheStepAndIsToldOfAWiderType) {
  for (const auto& [mesh, every] :
       {std::pair("", 1), {"dp=2", 1}, {"tp=2", 1}, {"pp=2", 1}, {"", 2}, {"pp=2", 2}}) {
    SCOPED_TRACE(absl::StrCat(mesh, ", an update in ", every));
    proto::Job job = SmallJob(mesh);
    job.mutable_training()->set_update_every(every);
    job.mutable_training()->set_precision(proto::Training::F16);
    job.mutable_training()->mutable_loss_scale()->set_initial(1);
    job.mutable_training()->mutable_optimizer()->set_clip_norm(0);
    job.mutable_training()->mutable_schedule()->set_learning_rate(1e30);
    options_.save = Path("save");
    options_.checkpoint = Path("checkpoint");
    const std::string message(Error(job).message());
    EXPECT_THAT(message, HasSubstr(absl::StrCat("W0962 at step ", every + 1)));
    EXPECT_THAT(message, HasSubstr("training.precision=BF16"));
    EXPECT_THAT(message, Not(HasSubstr("--on-nonfinite skip")));
    EXPECT_EQ(Text(options_.save + ".stopped"), WeightsAfter(job, every));
    auto stopped = store::SafetensorsReader::Open(options_.checkpoint + ".stopped").value();
    EXPECT_EQ(stopped->metadata().at("step"), absl::StrCat(every));
    for (const char* state : {"loss_scale/factor", "loss_scale/finite_steps"}) {
      float value = 0;
      ASSERT_EQ(stopped->Read(state, TensorSlice::Whole(DType::kF32, {}), &value),
                absl::OkStatus());
      EXPECT_EQ(value, 1) << state << " as after the first update";
    }
  }
}

TEST_F(NothingIsLostTest, AStateThatIsNotFiniteIsNamedAndNeverSaved) {
  const proto::Job job = SmallJob();
  options_.save = Path("weights");
  Run(job);
  PutNan(options_.save, "w_vocab");
  options_.init = options_.save;
  options_.save = Path("save");
  const absl::Status status = Error(job);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0962 at step 1"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("rank 0, before the step: state w_vocab, f32"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 NaN of"));
  EXPECT_FALSE(std::filesystem::exists(options_.save));
}

// The update of the last step makes the weights infinite. No loss shows that, but the file would
// contain the infinite weights.
TEST_F(NothingIsLostTest, WeightsThatTheLastUpdateMadeInfiniteReplaceNoFile) {
  proto::Job job = SmallJob();
  job.mutable_training()->set_steps(1);
  job.mutable_training()->mutable_optimizer()->set_clip_norm(0);
  job.mutable_training()->mutable_schedule()->set_learning_rate(1e39);
  options_.save = Path("save");
  std::ofstream(options_.save) << "good weights";
  const absl::Status status = Error(job);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("W0963 at " + options_.save));
  EXPECT_EQ(Text(options_.save), "good weights");
}

// A weight is NaN for one step, and then as it was before.
TEST_F(NothingIsLostTest, AnUpdateLeftOutChangesNothingOnAnyMeshAndSkipMakesTheNext) {
  for (const auto& [mesh, precision] : {std::pair("", proto::Training::F32),
                                        {"dp=2", proto::Training::F32},
                                        {"dp=2,tp=2", proto::Training::F32},
                                        {"pp=2", proto::Training::F32},
                                        {"", proto::Training::F16},
                                        {"dp=2,tp=2", proto::Training::F16},
                                        {"pp=2", proto::Training::F16}}) {
    for (OnNonfinite policy : {OnNonfinite::kSkip, OnNonfinite::kStop}) {
      proto::Job job = SmallJob(mesh);
      job.mutable_training()->set_precision(precision);
      // The loss scale is a state, too.
      if (precision == proto::Training::F16)
        job.mutable_training()->mutable_loss_scale()->set_initial(1);
      auto runner = LocalRunner::Open(job, {1, 0, 0, policy}).value();
      ASSERT_TRUE(runner->RunSteps(1).ok());
      const auto save = [&](const std::string& name) {
        return runner->Save({StateSet::kAll, {}, Path(name), Nonfinite::kKeep}).status();
      };
      ASSERT_EQ(save("good"), absl::OkStatus());
      std::filesystem::copy_file(Path("good"), Path("bad"),
                                 std::filesystem::copy_options::overwrite_existing);
      PutNan(Path("bad"), "w_vocab");
      ASSERT_EQ(runner->Load({Path("bad"), StateSet::kAll}), absl::OkStatus());
      const auto bad_step = runner->RunSteps(1).value();
      EXPECT_FALSE(std::isfinite(bad_step.at(1).at("loss"))) << mesh;
      EXPECT_FALSE(std::isfinite(bad_step.at(1).at("grad_norm"))) << mesh;
      ASSERT_EQ(save("after"), absl::OkStatus());
      EXPECT_TRUE(Text(Path("after")) == Text(Path("bad")))
          << mesh << ": a weight or a state of the optimiser has changed";
      ASSERT_EQ(runner->Load({Path("good"), StateSet::kAll}), absl::OkStatus());
      const auto next_step = runner->RunSteps(1).value();
      EXPECT_TRUE(std::isfinite(next_step.at(2).at("loss"))) << mesh;
      ASSERT_EQ(save("after"), absl::OkStatus());
      EXPECT_EQ(Text(Path("after")) == Text(Path("good")), policy == OnNonfinite::kStop) << mesh;
    }
  }
}

TEST_F(NothingIsLostTest, WhoSkipsOrContinuesForEverIsToldAndOnlyContinueSavesIt) {
  proto::Job job = SmallJob();
  options_.save = Path("weights");
  Run(job);
  PutNan(options_.save, "w_vocab");
  options_.init = options_.save;
  options_.save = Path("save");
  options_.on_nonfinite = OnNonfinite::kSkip;
  EXPECT_THAT(std::string(Error(job).message()), HasSubstr("W0963"));
  EXPECT_THAT(log_.str(), HasSubstr(absl::StrCat(kSteps, " updates were left out")));
  EXPECT_FALSE(std::filesystem::exists(options_.save));
  options_.on_nonfinite = OnNonfinite::kContinue;
  Run(job);
  EXPECT_THAT(log_.str(), HasSubstr("weights are likely lost"));
  EXPECT_TRUE(std::filesystem::exists(options_.save)) << "as asked for";
}

// Loses its ranks once, at the step `at`, and has them back in the state in which they were.
class LosingRunner final : public ForwardingRunner {
 public:
  enum class Where : uint8_t { kInSteps, kInEvaluation, kInChecksums, kInCheckpoint };
  LosingRunner(std::unique_ptr<JobRunner> runner, Where where, int64_t at)
      : ForwardingRunner(std::move(runner)), where_(where), at_(at) {}
  const RunnerFacts& facts() const override {
    facts_ = ForwardingRunner::facts();
    facts_.evaluation_batches = 1;
    return facts_;
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    auto reported = ForwardingRunner::RunSteps(steps);
    steps_ += steps;
    if (!Loses(Where::kInSteps)) return reported;
    reported_ = *std::move(reported);
    return kLost;
  }
  absl::StatusOr<std::map<int64_t, StepMetrics>> Evaluate() override {
    if (Loses(Where::kInEvaluation)) return kLost;
    return std::map<int64_t, StepMetrics>{{0, {{"loss", static_cast<double>(steps_)}}}};
  }
  absl::StatusOr<std::vector<ShardSum>> SumWeights() override {
    if (Loses(Where::kInChecksums)) return kLost;
    return ForwardingRunner::SumWeights();
  }
  absl::StatusOr<uint32_t> Save(const SaveOrder& order) override {
    if (Loses(Where::kInCheckpoint)) return kLost;
    return ForwardingRunner::Save(order);
  }
  absl::StatusOr<Recovery> Recover(const RecoveryOrder& /*order*/) override {
    return Recovery{steps_, true, "they are back", std::exchange(reported_, {})};
  }

 private:
  bool Loses(Where where) {
    return where == where_ && steps_ == at_ && !std::exchange(lost_, true);
  }

  const absl::Status kLost = absl::UnavailableError("a rank is lost");
  const Where where_;
  const int64_t at_;
  bool lost_ = false;
  int64_t steps_ = 0;
  std::map<int64_t, StepMetrics> reported_;
  mutable RunnerFacts facts_;
};

// A step that is done has its row, its evaluation and its checkpoint, wherever in all this a loss
// comes. Ranks that live on may stand at the end of a burst of which nothing is written yet.
TEST_F(NothingIsLostTest, AStepThatIsDoneKeepsItsRowWhereverRanksAreLost) {
  using Where = LosingRunner::Where;
  proto::Job job = SmallJob("dp=2");
  job.mutable_training()->set_eval_every(4);
  for (const Where where :
       {Where::kInSteps, Where::kInEvaluation, Where::kInChecksums, Where::kInCheckpoint}) {
    for (const int64_t at : {8, 12}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(where), " at ", at));
      log_.str("");
      options_.metrics = Path(absl::StrCat("metrics-", static_cast<int>(where), "-", at));
      options_.checkpoint = options_.metrics + ".checkpoint";
      options_.checkpoint_every = 4;
      std::vector<RunRecovery> recoveries;
      options_.may_recover = [](int64_t /*steps_done*/) { return true; };
      options_.recovered = [&recoveries](const RunRecovery& recovery) {
        recoveries.push_back(recovery);
        return 0.25;
      };
      options_.runner =
          [&](const proto::Job& trained,
              const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
        auto runner = LocalRunner::Open(trained, options);
        if (!runner.ok()) return runner.status();
        return std::make_unique<LosingRunner>(*std::move(runner), where, at);
      };
      EXPECT_EQ(Run(job).steps_done, kSteps);
      std::vector<int64_t> steps, evaluated, recovered;
      std::istringstream lines(Text(options_.metrics));
      for (std::string line; std::getline(lines, line);) {
        const nlohmann::json row = nlohmann::json::parse(line);
        steps.push_back(row["step"]);
        if (row.contains("eval_loss")) evaluated.push_back(row["step"]);
        if (row.contains("recovery_seconds")) recovered.push_back(row["step"]);
      }
      std::vector<int64_t> all(kSteps);
      std::iota(all.begin(), all.end(), 1);
      EXPECT_EQ(steps, all);
      EXPECT_THAT(evaluated, ::testing::ElementsAre(4, 8, 12));
      EXPECT_THAT(log_.str(), HasSubstr("checkpoint of step 8 written"));
      ASSERT_EQ(recoveries.size(), 1u);
      EXPECT_EQ(recoveries[0].step, at);
      EXPECT_EQ(recoveries[0].steps_lost, 0);
      EXPECT_EQ(recoveries[0].has_step, at < kSteps);
      EXPECT_EQ(recovered.size(), at < kSteps ? 1u : 0u);
    }
  }
}

// Loses its ranks after some steps, when a signal asks the run to end, and has them back as of
// step 3.
class ForgettingRunner final : public ForwardingRunner {
 public:
  ForgettingRunner(std::unique_ptr<JobRunner> runner, std::atomic<bool>* interrupted)
      : ForwardingRunner(std::move(runner)), interrupted_(*interrupted) {}
  int64_t StepsToNextCopy() const override { return 2; }  // so that bursts are short
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    if (steps_ >= 6) {
      interrupted_ = true;
      return absl::UnavailableError("a rank is lost");
    }
    steps_ += steps;
    return ForwardingRunner::RunSteps(steps);
  }
  absl::StatusOr<Recovery> Recover(const RecoveryOrder& /*order*/) override {
    return Recovery{3, true, "they are back", {}};
  }

 private:
  std::atomic<bool>& interrupted_;
  int64_t steps_ = 0;
};

TEST_F(NothingIsLostTest, TheLossAtTheEndIsThatOfTheLastStepThatIsNotLost) {
  options_.metrics = Path("metrics");
  options_.may_recover = [](int64_t /*steps_done*/) { return true; };
  options_.runner =
      [&](const proto::Job& trained,
          const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    auto runner = LocalRunner::Open(trained, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<ForgettingRunner>(*std::move(runner), &trouble_.interrupted);
  };
  const TrainResult result = Run(SmallJob());
  ASSERT_EQ(result.steps_done, 3);
  std::vector<double> losses;
  std::istringstream lines(Text(options_.metrics));
  for (std::string line; std::getline(lines, line);)
    losses.push_back(nlohmann::json::parse(line)["loss"]);
  ASSERT_GT(losses.size(), 3u);
  EXPECT_NE(losses[2], losses.back());
  EXPECT_NEAR(result.last_loss, losses[2], 1e-6);
}

// A SlowRunner has a rank whose acts take three times as long as those of the other one, until it
// is replaced.
class SlowRunner final : public ForwardingRunner {
 public:
  SlowRunner(std::unique_ptr<JobRunner> runner, bool outlive, std::vector<std::string>* replaced)
      : ForwardingRunner(std::move(runner)), outlive_(outlive), replaced_(*replaced) {}
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    steps_ += steps;
    planned_ns_ += 1'000'000;
    slow_ns_ += replaced_.empty() ? 3'000'000 : 1'000'000;
    return ForwardingRunner::RunSteps(steps);
  }
  std::vector<actors::RankWorkReport> Work() const override {
    return {{RankId(0), 0, planned_ns_, planned_ns_, planned_ns_, planned_ns_},
            {RankId(1), 0, slow_ns_, planned_ns_, slow_ns_, slow_ns_}};
  }
  bool StatesOutlive(RankId /*rank*/) const override { return outlive_; }
  absl::Status Replace(RankId rank, const std::string& evidence) override {
    replaced_.push_back(absl::StrCat(rank, ": ", evidence));
    return absl::UnavailableError("it is replaced");
  }
  absl::StatusOr<Recovery> Recover(const RecoveryOrder& /*order*/) override {
    return Recovery{steps_, true, "it is back", {}};
  }

 private:
  const bool outlive_;
  std::vector<std::string>& replaced_;
  int64_t steps_ = 0, planned_ns_ = 0, slow_ns_ = 0;
};

TEST_F(NothingIsLostTest, ASlowRankIsReplacedOnceBetweenTwoStepsIfThatIsAllowed) {
  proto::Job job = SmallJob("dp=2");
  job.mutable_training()->set_steps(24);
  for (const bool may_replace : {false, true}) {
    SCOPED_TRACE(may_replace);
    log_.str("");
    std::vector<std::string> replaced;
    std::vector<RankId> asked;
    options_.stragglers = {.window_seconds = 1e-6};
    options_.checkpoint = Path("checkpoint");
    options_.checkpoint_every = 4;  // so that bursts are short
    options_.may_recover = [](int64_t /*steps_done*/) { return true; };
    options_.may_replace = [&](RankId rank) {
      asked.push_back(rank);
      return may_replace;
    };
    options_.runner =
        [&](const proto::Job& trained,
            const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
      auto runner = LocalRunner::Open(trained, options);
      if (!runner.ok()) return runner.status();
      return std::make_unique<SlowRunner>(*std::move(runner), /*outlive=*/true, &replaced);
    };
    EXPECT_EQ(Run(job).steps_done, 24);
    EXPECT_THAT(log_.str(), HasSubstr("WARNING: rank 1 is slow: for "));
    EXPECT_THAT(asked, ::testing::ElementsAre(RankId(1)));
    if (may_replace) {
      EXPECT_THAT(replaced, ::testing::ElementsAre(HasSubstr("1: for ")));
    } else {
      EXPECT_THAT(replaced, ::testing::IsEmpty());
    }
  }
}

TEST_F(NothingIsLostTest, ASlowRankKeepsAProcessThatAloneHasItsStates) {
  proto::Job job = SmallJob("dp=2");
  job.mutable_training()->set_steps(24);
  std::vector<std::string> replaced;
  options_.stragglers = {.window_seconds = 1e-6};
  options_.checkpoint = Path("checkpoint");
  options_.checkpoint_every = 4;  // so that bursts are short
  options_.may_recover = [](int64_t /*steps_done*/) { return true; };
  options_.may_replace = [](RankId /*rank*/) { return true; };
  options_.runner =
      [&](const proto::Job& trained,
          const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
    auto runner = LocalRunner::Open(trained, options);
    if (!runner.ok()) return runner.status();
    return std::make_unique<SlowRunner>(*std::move(runner), /*outlive=*/false, &replaced);
  };
  EXPECT_EQ(Run(job).steps_done, 24);
  EXPECT_THAT(log_.str(), HasSubstr("rank 1 keeps its process: no other process has its states"));
  EXPECT_THAT(replaced, ::testing::IsEmpty());
}

}  // namespace
}  // namespace weir::train
