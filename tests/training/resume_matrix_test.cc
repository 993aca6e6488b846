// Saves a run in a folder of checkpoints under each of many layouts, and resumes it under many
// others: data, tensor, pipeline and sequence parallel, the stages of ZeRO, and products. The
// losses after the resume are those of the uninterrupted run, and bit for bit those of the target
// where source and target are one layout. The steps are few and the model is tiny.
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/temporary_folder_testing.h"
#include "tests/training/layouts.h"
#include "tools/console/console.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

constexpr int64_t kSavedSteps = 2;
constexpr int64_t kSteps = 4;
constexpr double kToleranceRelative = 1e-5;

using zoo::SequenceParallel;

const std::vector<Layout> kLayouts = {
    {"", 0, SequenceParallel::kNone},          {"dp=2", 0, SequenceParallel::kNone},
    {"dp=2", 1, SequenceParallel::kNone},      {"dp=2", 2, SequenceParallel::kNone},
    {"dp=3", 3, SequenceParallel::kNone},      {"tp=2", 0, SequenceParallel::kMegatron},
    {"pp=2", 0, SequenceParallel::kNone},      {"sp=2", 0, SequenceParallel::kUlysses},
    {"dp=2,tp=2", 1, SequenceParallel::kNone},
};

proto::Job JobFor(const Layout& layout, int64_t steps) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 24;
  options.heads = 2;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 12;
  options.training.micro_batches = 2;
  options.training.steps = kSteps;
  options.training.learning_rate = 3e-3;
  options.training.warmup_steps = 1;
  absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, options);
  EXPECT_TRUE(job.ok()) << job.status();
  job->mutable_training()->set_steps(steps);
  job->mutable_training()->mutable_schedule()->set_decay(proto::Schedule::CONSTANT);
  return *job;
}

class ResumeMatrixTest : public ::testing::Test {
 protected:
  // Trains under a layout and returns the losses of the steps of this run.
  std::map<int64_t, double> Losses(const Layout& layout, int64_t steps, const std::string& resume,
                                   const std::string& checkpoint) {
    std::ostringstream log;
    console::Console console(console::Console::Style::kPlain, &log);
    train::TrainOptions options;
    options.console = &console;
    options.threads_per_device = 1;
    options.resume = resume;
    options.checkpoint = checkpoint;
    options.metrics = folder_.PathFor(absl::StrCat("m", ++num_runs_));
    const absl::StatusOr<train::TrainResult> result = train::Train(JobFor(layout, steps), options);
    EXPECT_TRUE(result.ok()) << NameOf(layout) << ": " << result.status() << log.str();
    std::map<int64_t, double> losses;
    std::ifstream in(options.metrics);
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json parsed = nlohmann::json::parse(line);
      losses[parsed["step"]] = parsed["loss"];
    }
    return losses;
  }

  const TemporaryFolder folder_;
  int num_runs_ = 0;
};

// The job overflows in its first steps, and the scale grows again after each finite step.
TEST_F(ResumeMatrixTest, ALossScaleResumesToTheBit) {
  for (const char* mesh : {"", "dp=2", "pp=2"}) {
    const auto rows = [&](int64_t steps, const std::string& resume, const std::string& checkpoint) {
      proto::Job job = JobFor({mesh, 0, SequenceParallel::kNone}, steps);
      job.mutable_training()->set_precision(proto::Training::F16);
      proto::LossScale* scale = job.mutable_training()->mutable_loss_scale();
      scale->set_initial(0x1p60);
      scale->set_backoff(0x1p-52);
      scale->set_growth_interval(2);
      std::ostringstream log;
      console::Console console(console::Console::Style::kPlain, &log);
      train::TrainOptions options;
      options.console = &console;
      options.threads_per_device = 1;
      options.resume = resume;
      options.checkpoint = checkpoint;
      options.metrics = folder_.PathFor(absl::StrCat("m", ++num_runs_));
      const absl::StatusOr<train::TrainResult> result = train::Train(job, options);
      EXPECT_TRUE(result.ok()) << mesh << ": " << result.status() << log.str();
      std::map<int64_t, std::pair<double, double>> found;
      std::ifstream in(options.metrics);
      for (std::string line; std::getline(in, line);) {
        const nlohmann::json parsed = nlohmann::json::parse(line);
        found[parsed["step"]] = {parsed["loss"], parsed["loss_scale"]};
      }
      return found;
    };
    const std::string saved = folder_.PathFor(absl::StrCat("scale", mesh)) + "/";
    const auto whole = rows(kSteps, "", "");
    rows(kSavedSteps, "", saved);
    const auto resumed = rows(kSteps, saved, "");
    ASSERT_EQ(whole.size(), static_cast<size_t>(kSteps)) << mesh;
    // The file has nine digits of each number.
    EXPECT_FLOAT_EQ(static_cast<float>(whole.at(1).second), 0x1p60f) << mesh;
    EXPECT_EQ(whole.at(2).second, 256) << mesh;
    EXPECT_EQ(whole.at(4).second, 512) << mesh;
    ASSERT_EQ(resumed.size(), static_cast<size_t>(kSteps - kSavedSteps)) << mesh;
    for (const auto& [step, row] : resumed) EXPECT_EQ(row, whole.at(step)) << mesh << " " << step;
  }
}

TEST_F(ResumeMatrixTest, ACheckpointOfAnyLayoutResumesUnderAnyOther) {
  const std::map<int64_t, double> expected = Losses(kLayouts[0], kSteps, "", "");
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  int num_resumes = 0;
  for (size_t source = 0; source < kLayouts.size(); ++source) {
    const std::string saved = folder_.PathFor(absl::StrCat("from", source)) + "/";
    Losses(kLayouts[source], kSavedSteps, "", saved);
    const std::map<int64_t, double> uninterrupted = Losses(kLayouts[source], kSteps, "", "");
    // Half of the pairs, with every source and every target in several.
    for (size_t target = 0; target < kLayouts.size(); ++target) {
      if (target != source && (source + target) % 2 != 0) continue;
      const std::map<int64_t, double> resumed = Losses(kLayouts[target], kSteps, saved, "");
      ++num_resumes;
      ASSERT_EQ(resumed.size(), static_cast<size_t>(kSteps - kSavedSteps));
      for (const auto& [step, loss] : resumed) {
        const std::string which = absl::StrCat(NameOf(kLayouts[source]), " to ",
                                               NameOf(kLayouts[target]), ", step ", step);
        EXPECT_NEAR(loss, expected.at(step), kToleranceRelative * std::fabs(expected.at(step)))
            << which;
        if (source == target) {
          EXPECT_EQ(loss, uninterrupted.at(step)) << which;
        }
      }
    }
  }
  EXPECT_GE(num_resumes, 36);
}

}  // namespace
}  // namespace weir::training
