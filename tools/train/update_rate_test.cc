// Tests updates in every H-th step, gradients that lag, and the files of such runs. Checkpoints
// come right after an update and hold the gradients under way. A run that resumes from a checkpoint
// ends with the bits of a run that was never stopped.
#include <cmath>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/safetensors.h"
#include "tools/train/forwarding_runner_testing.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tensors = std::map<std::string, std::vector<float>>;

constexpr int kSteps = 12;

std::string WriteText() {
  const std::string path = TemporaryPath("text.txt");
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < 600; ++i) out << "line " << i * i % 97 << "\n";
  return path;
}

struct Rates {
  int64_t every = 1, phase = 0, delay = 0;
};

proto::Job TextJob(const Rates& rates, const std::string& mesh = "", int zero = 0) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.heads = 2;
  options.sequence = 16;
  options.dropout = 0.1;
  options.training.batch = 4;
  options.training.micro_batches = 2;
  options.training.steps = kSteps;
  options.training.data = WriteText();
  options.training.warmup_steps = 2;
  options.training.mesh = mesh;
  options.training.zero_stage = zero;
  proto::Job job = *zoo::GptJob(options);
  proto::Training* training = job.mutable_training();
  training->mutable_schedule()->set_decay_steps(kSteps);
  training->set_update_every(rates.every);
  training->set_update_phase(rates.phase);
  training->set_gradient_delay(rates.delay);
  training->set_eval_every(5);
  training->set_eval_batches(2);
  return job;
}

// A runner that records the steps at which it saved, and interrupts the run after a step.
class WatchedRunner final : public ForwardingRunner {
 public:
  struct Notes {
    std::vector<std::string> saved;  // steps, as the files record them
    int64_t interrupt_after = -1;
    std::atomic<bool> interrupted = false;
    int64_t steps = 0;
  };
  WatchedRunner(std::unique_ptr<JobRunner> runner, Notes* notes)
      : ForwardingRunner(std::move(runner)), notes_(*notes) {}
  absl::StatusOr<std::map<int64_t, StepMetrics>> RunSteps(int64_t steps) override {
    notes_.steps += steps;
    if (notes_.interrupt_after >= 0 && notes_.steps >= notes_.interrupt_after)
      notes_.interrupted = true;
    return ForwardingRunner::RunSteps(steps);
  }
  absl::StatusOr<uint32_t> Save(const SaveOrder& order) override {
    if (order.set == StateSet::kAll) notes_.saved.push_back(order.metadata.at("step"));
    return ForwardingRunner::Save(order);
  }

 private:
  Notes& notes_;
};

class UpdateRateTest : public ::testing::Test {
 protected:
  UpdateRateTest() {
    options_.console = &console_;
    options_.threads_per_device = 1;
    options_.interrupted = &notes_.interrupted;
    options_.runner =
        [this](const proto::Job& job,
               const RunnerOptions& options) -> absl::StatusOr<std::unique_ptr<JobRunner>> {
      absl::StatusOr<std::unique_ptr<JobRunner>> runner = LocalRunner::Open(job, options);
      if (!runner.ok()) return runner.status();
      return std::make_unique<WatchedRunner>(*std::move(runner), &notes_);
    };
  }
  TrainResult Run(const proto::Job& job) {
    absl::StatusOr<TrainResult> result = Train(job, options_);
    EXPECT_TRUE(result.ok()) << result.status() << "\n" << log_.str();
    return result.ok() ? *result : TrainResult{};
  }
  std::string Error(const proto::Job& job) {
    return std::string(Train(job, options_).status().message());
  }
  static Tensors Read(const std::string& path) {
    Tensors tensors;
    auto file = store::SafetensorsReader::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return tensors;
    for (const auto& [name, tensor] : (*file)->tensors()) {
      tensors[name].resize(static_cast<size_t>(NumElements(tensor.shape)));
      EXPECT_TRUE(
          (*file)
              ->Read(name, TensorSlice::Whole(DType::kF32, tensor.shape), tensors[name].data())
              .ok());
    }
    return tensors;
  }
  WatchedRunner::Notes notes_;
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_};
  TrainOptions options_;
};

TEST_F(UpdateRateTest, ARunThatGoesOnFromACheckpointEndsWithTheBitsOfOneThatWasNotStopped) {
  struct Case {
    Rates rates;
    std::string mesh;
    int zero;
    int64_t steps, resumed_at;
  };
  for (const Case& c : std::vector<Case>{{{4, 3, 0}, "", 0, 7, 4},
                                         {{4, 1, 0}, "dp=2", 1, 8, 6},
                                         {{1, 0, 1}, "pp=2", 0, 5, 5},
                                         {{1, 0, 3}, "dp=2", 3, 2 + 2, 4},
                                         {{2, 1, 2}, "dp=2,tp=2", 2, 7, 6},
                                         {{3, 0, 1}, "dp=2,pp=2", 1, 6, 4}}) {
    SCOPED_TRACE(absl::StrCat("every ", c.rates.every, ", phase ", c.rates.phase, ", delay ",
                              c.rates.delay, ", mesh ", c.mesh));
    proto::Job job = TextJob(c.rates, c.mesh, c.zero);
    options_.resume.clear();
    options_.save = TemporaryPath("through.st");
    options_.checkpoint = TemporaryPath("through_all.st");
    Run(job);
    job.mutable_training()->set_steps(c.steps);
    options_.save.clear();
    options_.checkpoint = TemporaryPath("half.st");
    notes_.saved.clear();
    Run(job);
    EXPECT_THAT(notes_.saved, ElementsAre(absl::StrCat(c.resumed_at)));
    job.mutable_training()->set_steps(kSteps);
    options_.resume = TemporaryPath("half.st");
    options_.save = TemporaryPath("rest.st");
    options_.checkpoint = TemporaryPath("rest_all.st");
    Run(job);
    EXPECT_EQ(Read(TemporaryPath("rest.st")), Read(TemporaryPath("through.st")));
    const Tensors rest = Read(TemporaryPath("rest_all.st"));
    EXPECT_EQ(rest, Read(TemporaryPath("through_all.st")));
    EXPECT_EQ(rest.count("layers.1.wq/delayed_gradient_0"), c.rates.delay > 0 ? 1 : 0);
  }
}

TEST_F(UpdateRateTest, ACheckpointWithGradientsUnderWayGoesOnUnderAnotherMesh) {
  proto::Job job = TextJob({1, 0, 2}, "dp=2", 1);
  options_.save = TemporaryPath("dp_through.st");
  Run(job);
  job.mutable_training()->set_steps(5);
  options_.save.clear();
  options_.checkpoint = TemporaryPath("dp_half.st");
  Run(job);
  options_.resume = options_.checkpoint;
  options_.checkpoint.clear();
  options_.save = TemporaryPath("other_rest.st");
  Run(TextJob({1, 0, 2}, "tp=2,pp=2"));
  const Tensors expected = Read(TemporaryPath("dp_through.st")),
                found = Read(TemporaryPath("other_rest.st"));
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(found.count(name), 1) << name;
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(found.at(name)[i], values[i], 2e-3) << name;
  }
}

TEST_F(UpdateRateTest, CheckpointsComeRightAfterTheNextUpdate) {
  options_.checkpoint = TemporaryPath("every.st");
  options_.checkpoint_every = 3;
  Run(TextJob({4, 3, 0}));
  EXPECT_THAT(notes_.saved, ElementsAre("4", "8", "12"));
  notes_.saved.clear();
  Run(TextJob({4, 1, 0}));
  EXPECT_THAT(notes_.saved, ElementsAre("6", "10"));
  EXPECT_THAT(log_.str(), HasSubstr("WARNING: the last update is in step 10 of 12: the gradients "
                                    "of the 2 steps after it change nothing"));
  EXPECT_THAT(log_.str(), HasSubstr(absl::StrCat("checkpoint written to ", options_.checkpoint,
                                                 ", as of step 10")));
  notes_.saved.clear();
  Run(TextJob({1, 0, 2}));
  EXPECT_THAT(notes_.saved, ElementsAre("3", "6", "9", "12"));
}

TEST_F(UpdateRateTest, AnInterruptWithACheckpointWaitsForTheUpdate) {
  notes_.interrupt_after = 1;
  proto::Job job = TextJob({4, 3, 0});
  EXPECT_LT(Run(job).steps_done, 4);
  options_.checkpoint = TemporaryPath("interrupted.st");
  notes_.interrupted = false;
  notes_.steps = 0;
  const TrainResult result = Run(job);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps_done, 4);
  EXPECT_THAT(notes_.saved, ElementsAre("4"));
}

TEST_F(UpdateRateTest, MetricsTellTheNormWhenWeightsAreUpdatedAndTheRateOfTheUpdate) {
  options_.metrics = TemporaryPath("metrics.jsonl");
  Run(TextJob({3, 2, 1}));
  std::ifstream in(options_.metrics);
  std::vector<double> rates;
  std::string line;
  for (int step = 1; std::getline(in, line); ++step) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_TRUE(json["loss"].is_number());
    EXPECT_EQ(json.contains("grad_norm"), step % 3 == 0) << line;
    if (step == 3) {
      EXPECT_EQ(json["grad_norm"], 0) << "of gradients that are not there yet";
    }
    EXPECT_EQ(json.contains("eval_loss"), step % 5 == 0 || step == kSteps) << line;
    rates.push_back(json["lr"]);
  }
  ASSERT_EQ(rates.size(), kSteps);
  // The warm-up has two updates. The first update does nothing, and the second is the optimiser's
  // first step.
  EXPECT_NEAR(rates[0], 5e-4, 1e-9);
  EXPECT_NEAR(rates[5], 5e-4, 1e-9);
  EXPECT_NEAR(rates[6], 1e-3, 1e-9);
  EXPECT_EQ(rates[6], rates[8]);
  EXPECT_THAT(log_.str(), HasSubstr("weights are updated every 3 steps, first in step 3"));
  EXPECT_THAT(
      log_.str(),
      HasSubstr("gradients are 1 update old; the first update leaves the weights as they are"));
}

TEST_F(UpdateRateTest, ACheckpointOfOtherUpdatesIsRefused) {
  proto::Job job = TextJob({2, 1, 0});
  job.mutable_training()->set_steps(6);
  options_.checkpoint = TemporaryPath("two.st");
  Run(job);
  options_.resume = options_.checkpoint;
  options_.checkpoint.clear();
  EXPECT_THAT(Error(TextJob({4, 3, 0})), HasSubstr("W0548"));
  EXPECT_THAT(Error(TextJob({1, 0, 0})), HasSubstr("found 3 steps of the optimiser"));
  EXPECT_THAT(Error(TextJob({2, 1, 1})), HasSubstr("W0548"));
  job.mutable_training()->set_steps(2);
  options_.resume.clear();
  options_.checkpoint = TemporaryPath("one.st");
  Run(job);
  options_.resume = options_.checkpoint;
  options_.checkpoint.clear();
  EXPECT_THAT(Error(TextJob({1, 0, 0})), HasSubstr("found 1 step of the optimiser"));
}

}  // namespace
}  // namespace weir::train
