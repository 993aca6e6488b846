#include <string.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runtime/base/random.h"
#include "runtime/base/temporary_folder_testing.h"
#include "runtime/store/safetensors.h"
#include "tools/job/job_file.h"
#include "tools/train/evaluator.h"
#include "tools/train/generator.h"
#include "tools/train/job_data.h"
#include "tools/train/job_variant.h"
#include "tools/train/rank_group.h"
#include "tools/train/session_states.h"
#include "tools/train/shared_cores.h"
#include "tools/train/trainer.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/mlp.h"

namespace weir::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Writes images of 4 x 4 whose class is the brightest quarter, which is easy to learn.
std::string WriteImages() {
  for (const char* part : {"train", "t10k"}) {
    int n = part[1] == 'r' ? 256 : 70;
    std::string images = {0, 0, 8, 3, 0, 0, static_cast<char>(n >> 8), static_cast<char>(n), 0, 0,
                          0, 4, 0, 0, 0, 4};
    std::string labels = {0, 0, 8, 1, 0, 0, static_cast<char>(n >> 8), static_cast<char>(n)};
    for (int i = 0; i < n; ++i) {
      int label = static_cast<int>(UniformAt(n, i) * 4);
      for (int p = 0; p < 16; ++p) {
        int quarter = p / 8 * 2 + p % 4 / 2;
        images.push_back(
            static_cast<char>(UniformAt(n + 1, i * 16 + p) * 100 + (quarter == label ? 150 : 0)));
      }
      labels.push_back(static_cast<char>(label));
    }
    const TemporaryFolder& folder = SharedTemporaryFolder();
    folder.Write(absl::StrCat("images/", part, "-images-idx3-ubyte"), images);
    folder.Write(absl::StrCat("images/", part, "-labels-idx1-ubyte"), labels);
  }
  return TemporaryPath("images");
}

proto::Job ImageJob(const std::string& mesh = "") {
  zoo::MlpOptions options;
  options.pixels = 16;
  options.hidden = 16;
  options.classes = 4;
  options.training.batch = 32;
  options.training.steps = 12;
  options.training.warmup_steps = 0;
  options.training.learning_rate = 0.01;
  options.training.data = WriteImages();
  options.training.mesh = mesh;
  absl::StatusOr<proto::Job> job = zoo::MlpJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

class TrainTest : public ::testing::Test {
 protected:
  TrainTest() {
    options_.console = &console_;
    options_.threads_per_device = 1;
  }
  TrainResult Run(const proto::Job& job) {
    absl::StatusOr<TrainResult> result = Train(job, options_);
    EXPECT_TRUE(result.ok()) << result.status() << "\n" << log_.str();
    return result.ok() ? *result : TrainResult{};
  }
  absl::Status Error(const proto::Job& job) {
    absl::StatusOr<TrainResult> result = Train(job, options_);
    EXPECT_FALSE(result.ok());
    return result.status();
  }
  static std::map<std::string, std::vector<float>> Weights(const std::string& path) {
    std::map<std::string, std::vector<float>> weights;
    auto file = store::SafetensorsReader::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    if (!file.ok()) return weights;
    for (const auto& [name, tensor] : (*file)->tensors()) {
      weights[name].resize(static_cast<size_t>(NumElements(tensor.shape)));
      EXPECT_TRUE(
          (*file)
              ->Read(name, TensorSlice::Whole(DType::kF32, tensor.shape), weights[name].data())
              .ok());
    }
    return weights;
  }
  std::ostringstream log_;
  console::Console console_{console::Console::Style::kPlain, &log_};
  TrainOptions options_;
};

TEST_F(TrainTest, LearnsEvaluatesAndWritesMetricsOfEveryStep) {
  proto::Job job = ImageJob();
  job.mutable_training()->set_eval_every(5);
  job.mutable_training()->set_steps(60);
  job.mutable_training()->mutable_schedule()->set_decay_steps(60);
  options_.metrics = TemporaryPath("metrics.jsonl");
  TrainResult result = Run(job);
  EXPECT_EQ(result.steps_done, 60);
  EXPECT_LT(result.last_loss, 0.3 * result.first_loss);
  ASSERT_TRUE(result.evaluation.has_value());
  EXPECT_EQ(result.evaluation->batches, 2);
  EXPECT_GT(result.evaluation->means.at("accuracy"), 0.9);
  std::ifstream in(options_.metrics);
  std::string line;
  int64_t step = 0;
  while (std::getline(in, line)) {
    auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json["step"], ++step);
    for (const char* name :
         {"loss", "grad_norm", "lr", "samples_per_second", "step_seconds", "accuracy"}) {
      EXPECT_TRUE(json[name].is_number()) << name << " in " << line;
    }
    EXPECT_EQ(json.contains("eval_loss"), step % 5 == 0) << line;
    EXPECT_EQ(json.contains("eval_accuracy"), step % 5 == 0) << line;
  }
  EXPECT_EQ(step, 60);
}

TEST_F(TrainTest, TheFirstStepPromisesNoTimeAndTheEndTellsTheMeanSpeed) {
  const proto::Job job = ImageJob();
  const TrainResult result = Run(job);
  const std::string log = log_.str();
  const std::string first = log.substr(log.find("step 1/12"));
  EXPECT_THAT(first.substr(0, first.find('\n')), ::testing::Not(HasSubstr("left")));
  EXPECT_THAT(log, HasSubstr("step 12/12"));
  EXPECT_THAT(log.substr(log.find("step 12/12")), HasSubstr("0ms left"));
  EXPECT_GT(result.seconds_here, 0);
  EXPECT_THAT(SpeedText(job, result),
              ::testing::MatchesRegex("12 steps took .+, mean .+ samples/s"));
  EXPECT_EQ(SpeedText(job, {}), "");
}

TEST_F(TrainTest, MoreDevicesThanCoresAreNoticedOnce) {
  const int64_t cores = NumCores();
  if (cores >= 32) GTEST_SKIP() << "the batch has 32 pictures";
  Run(ImageJob("dp=32"));
  const std::string note = SharedCoresText(32, cores), log = log_.str();
  const size_t at = log.find(note);
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("share", at + note.size()), std::string::npos) << log;
  log_.str("");
  Run(ImageJob());
  EXPECT_THAT(log_.str(), ::testing::Not(HasSubstr("share the")));
}

TEST_F(TrainTest, EveryLayoutStartsFromTheSameWeightsAndEndsNearTheSame) {
  options_.save = TemporaryPath("one.safetensors");
  TrainResult one = Run(ImageJob());
  auto expected = Weights(options_.save);
  for (const char* mesh : {"dp=2", "tp=2", "dp=2,tp=2"}) {
    for (int zero : {0, 1, 2, 3}) {
      proto::Job job = ImageJob(mesh);
      job.mutable_training()->set_zero_stage(zero);
      options_.save = TemporaryPath("many.safetensors");
      TrainResult many = Run(job);
      EXPECT_NEAR(many.first_loss, one.first_loss, 1e-5) << mesh;
      EXPECT_NEAR(many.evaluation->means.at("loss"), one.evaluation->means.at("loss"), 1e-3)
          << mesh << " ZeRO " << zero;
      auto weights = Weights(options_.save);
      ASSERT_EQ(weights.size(), expected.size());
      for (const auto& [name, values] : expected) {
        ASSERT_EQ(weights[name].size(), values.size()) << name;
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(weights[name][i], values[i], 2e-3) << mesh << " " << name;
      }
    }
  }
}

TEST_F(TrainTest, ARunResumedFromACheckpointEndsWithTheSameBits) {
  proto::Job job = ImageJob();
  options_.save = TemporaryPath("straight.safetensors");
  Run(job);
  proto::Job half = job;
  half.mutable_training()->mutable_schedule()->set_decay_steps(job.training().steps());
  half.mutable_training()->set_steps(5);
  options_.save.clear();
  options_.checkpoint = TemporaryPath("checkpoint.safetensors");
  Run(half);
  options_.resume = options_.checkpoint;
  options_.checkpoint.clear();
  options_.save = TemporaryPath("resumed.safetensors");
  TrainResult result = Run(job);
  EXPECT_EQ(result.steps_done, 12);
  EXPECT_EQ(Weights(TemporaryPath("resumed.safetensors")),
            Weights(TemporaryPath("straight.safetensors")));
}

TEST_F(TrainTest, ACheckpointGoesOnUnderAnotherMesh) {
  proto::Job job = ImageJob("dp=2");
  job.mutable_training()->set_zero_stage(1);
  job.mutable_training()->mutable_schedule()->set_decay_steps(12);
  options_.save = TemporaryPath("dp_straight.safetensors");
  Run(job);
  job.mutable_training()->set_steps(5);
  options_.save.clear();
  options_.checkpoint = TemporaryPath("dp_checkpoint.safetensors");
  Run(job);
  options_.resume = options_.checkpoint;
  options_.checkpoint.clear();
  options_.save = TemporaryPath("tp_resumed.safetensors");
  proto::Job other = ImageJob("tp=2");
  Run(other);
  auto expected = Weights(TemporaryPath("dp_straight.safetensors")),
       weights = Weights(TemporaryPath("tp_resumed.safetensors"));
  for (const auto& [name, values] : expected) {
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(weights[name][i], values[i], 2e-3) << name;
  }
}

TEST_F(TrainTest, WeightsSavedAndLoadedAreTheSameBitsUnderAnyMesh) {
  options_.save = TemporaryPath("first.safetensors");
  Run(ImageJob());
  for (const char* mesh : {"", "dp=2,tp=2", "tp=3", "pp=2"}) {
    proto::Job job = ImageJob(mesh);
    job.mutable_training()->set_steps(0);
    options_.init = TemporaryPath("first.safetensors");
    options_.save = TemporaryPath("second.safetensors");
    Run(job);
    EXPECT_EQ(Weights(TemporaryPath("second.safetensors")),
              Weights(TemporaryPath("first.safetensors")))
        << mesh;
  }
}

TEST_F(TrainTest, EvaluatingSavedWeightsGivesWhatTheRunSaid) {
  options_.save = TemporaryPath("evaluated.safetensors");
  TrainResult result = Run(ImageJob("dp=2"));
  auto evaluation = EvaluateWeights(ImageJob(), options_.save, 1);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_NEAR(evaluation->means.at("loss"), result.evaluation->means.at("loss"), 1e-5);
}

TEST_F(TrainTest, AnEvaluationReadsTheWeightsWhereTheTrainingHasThem) {
  for (const char* device : {"cpu", "walled", "cuda-emulated"}) {
    for (const char* mesh : {"", "dp=2"}) {
      SCOPED_TRACE(absl::StrCat(device, " ", mesh));
      proto::Job job = ImageJob(mesh);
      job.mutable_runtime()->set_device(device);
      job.mutable_training()->set_precision(proto::Training::BF16);
      absl::StatusOr<std::unique_ptr<RankGroup>> group = RankGroup::Open(job, {});
      ASSERT_TRUE(group.ok()) << group.status();
      const actors::Session& training = (*group)->session();
      absl::StatusOr<std::unique_ptr<Evaluator>> apart =
          Evaluator::Create(job, &(*group)->dataset(), {});
      ASSERT_TRUE(apart.ok()) << apart.status();
      std::map<int64_t, StepMetrics> last;
      for (int burst = 0; burst < 2; ++burst) {
        ASSERT_TRUE((*group)->RunSteps(2).ok());
        const absl::StatusOr<std::map<int64_t, StepMetrics>> beside = (*group)->Evaluate();
        ASSERT_TRUE(beside.ok()) << beside.status();
        ASSERT_TRUE(CopyWeights(training, weights::Values::kWeights, (*apart)->session()).ok());
        const absl::StatusOr<std::map<int64_t, StepMetrics>> copied = (*apart)->Run();
        ASSERT_TRUE(copied.ok()) << copied.status();
        EXPECT_EQ(*beside, *copied);
        EXPECT_NE(*beside, last) << "the evaluation sees new weights";
        last = *beside;
      }
      int64_t weight_bytes = 0, copied_bytes = 0;
      for (const actors::PlanState& state : training.plan(RankId(0)).states) {
        if (state.state_class == actors::StateClass::kWeight) weight_bytes += state.slice.bytes();
      }
      const actors::RankMemory own = training.Memory(RankId(0)),
                               copy = (*apart)->session()->Memory(RankId(0));
      copied_bytes =
          own.arena_bytes + own.workspace_bytes + copy.arena_bytes + copy.workspace_bytes;
      EXPECT_LE((*group)->bytes_per_device(), copied_bytes - weight_bytes);
      EXPECT_GT((*group)->bytes_per_device(), own.arena_bytes + own.workspace_bytes);
    }
  }
}

proto::Job AveragingJob(const std::string& mesh) {
  proto::Job job = ImageJob(mesh);
  job.mutable_training()->mutable_average()->set_decay(0.5);
  job.mutable_training()->mutable_average()->set_evaluate(true);
  return job;
}

TEST_F(TrainTest, AnEvaluationTakesTheAveragesIfTheJobSaysSo) {
  for (const char* mesh : {"", "dp=2"}) {
    SCOPED_TRACE(mesh);
    proto::Job job = AveragingJob(mesh);
    job.mutable_training()->set_zero_stage(1);
    job.mutable_training()->set_update_every(2);
    absl::StatusOr<std::unique_ptr<RankGroup>> group = RankGroup::Open(job, {});
    ASSERT_TRUE(group.ok()) << group.status();
    absl::StatusOr<std::unique_ptr<Evaluator>> apart =
        Evaluator::Create(job, &(*group)->dataset(), {});
    ASSERT_TRUE(apart.ok()) << apart.status();
    const auto of = [&](weights::Values values) {
      EXPECT_TRUE(CopyWeights((*group)->session(), values, (*apart)->session()).ok());
      const absl::StatusOr<std::map<int64_t, StepMetrics>> reported = (*apart)->Run();
      EXPECT_TRUE(reported.ok()) << reported.status();
      return reported.ok() ? *reported : std::map<int64_t, StepMetrics>();
    };
    const auto beside = [&] {
      const absl::StatusOr<std::map<int64_t, StepMetrics>> reported = (*group)->Evaluate();
      EXPECT_TRUE(reported.ok()) << reported.status();
      return reported.ok() ? *reported : std::map<int64_t, StepMetrics>();
    };
    ASSERT_TRUE((*group)->RunSteps(1).ok());
    EXPECT_EQ(beside(), of(weights::Values::kWeights)) << "no update has set the averages";
    ASSERT_TRUE((*group)->RunSteps(5).ok());
    EXPECT_EQ(beside(), of(weights::Values::kAverages));
    EXPECT_NE(beside(), of(weights::Values::kWeights));
  }
}

TEST_F(TrainTest, TheAveragesOfACheckpointEvaluateToWhatTheRunSaid) {
  for (const char* place : {"averaged.safetensors", "averaged/"}) {
    SCOPED_TRACE(place);
    options_.checkpoint = TemporaryPath(place);
    const TrainResult result = Run(AveragingJob("dp=2"));
    ASSERT_TRUE(result.evaluation.has_value());
    const auto evaluated = [&](weights::Values values) {
      const absl::StatusOr<std::string> file = weights::WeightFileOf(options_.checkpoint);
      EXPECT_TRUE(file.ok()) << file.status();
      const auto evaluation = EvaluateWeights(ImageJob(), *file, 1, "", values);
      EXPECT_TRUE(evaluation.ok()) << evaluation.status();
      return evaluation.ok() ? evaluation->means.at("loss") : 0.0;
    };
    EXPECT_EQ(result.evaluation->values, weights::Values::kAverages);
    const double loss = result.evaluation->means.at("loss");
    EXPECT_NEAR(evaluated(weights::Values::kAverages), loss, 1e-5);
    EXPECT_GT(std::abs(evaluated(weights::Values::kWeights) - loss), 1e-4);
  }
}

TEST_F(TrainTest, WeightsWithoutAveragesAreNoAverages) {
  options_.save = TemporaryPath("weights_alone.safetensors");
  Run(ImageJob());
  const auto evaluation =
      EvaluateWeights(ImageJob(), options_.save, 1, "", weights::Values::kAverages);
  EXPECT_THAT(std::string(evaluation.status().message()),
              AllOf(HasSubstr("W0084 at "), HasSubstr("expected averages of weights; found none")));
}

TEST_F(TrainTest, AnEvaluationWithoutALossSaysWhy) {
  const double none = -std::numeric_limits<double>::quiet_NaN();
  const std::map<int64_t, StepMetrics> batches = {{0, {{"loss", 2.0}, {"accuracy", 0.25}}},
                                                  {1, {{"loss", none}, {"accuracy", 0.75}}},
                                                  {2, {{"loss", 1.0}, {"accuracy", 0.5}}}};
  EXPECT_EQ(
      EvaluationText(ImageJob(), MeanOf(batches, weights::Values::kWeights)),
      "held-out loss undefined, accuracy 0.5000 (3 batches; in 1 no target counts, or weights "
      "are not finite)");
  EXPECT_EQ(EvaluationText(ImageJob(), MeanOf({*batches.begin()}, weights::Values::kWeights)),
            "held-out loss 2.0000, accuracy 0.2500 (1 batch)");
}

TEST_F(TrainTest, AnEvaluationOfAveragesSaysSo) {
  EXPECT_EQ(EvaluationText(ImageJob(), MeanOf({{0, {{"loss", 2.0}, {"accuracy", 0.25}}}},
                                              weights::Values::kAverages)),
            "held-out loss of the averages 2.0000, accuracy 0.2500 (1 batch)");
  proto::Job job = AveragingJob("");
  job.mutable_training()->set_update_every(2);
  EXPECT_EQ(EvaluatedValues(job, 1), weights::Values::kWeights) << "no update has set the averages";
  EXPECT_EQ(EvaluatedValues(job, 2), weights::Values::kAverages);
  job.mutable_training()->mutable_average()->set_evaluate(false);
  EXPECT_EQ(EvaluatedValues(job, 2), weights::Values::kWeights);
}

TEST_F(TrainTest, WeightsOfAnotherModelAreRefusedWithTheNames) {
  options_.save = TemporaryPath("other.safetensors");
  proto::Job job = ImageJob();
  job.mutable_training()->set_steps(0);
  Run(job);
  options_.init = options_.save;
  options_.save.clear();
  proto::Job wide = job;
  ASSERT_TRUE(job::SetField("graph.dim[hidden].size=8", &wide).ok());
  absl::Status status = Error(wide);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected shape"));
  proto::Job deep = job;
  ASSERT_TRUE(job::SetField("graph.function[main].node[layers].repeat=3", &deep).ok());
  EXPECT_THAT(std::string(Error(deep).message()), HasSubstr("no layers.2."));
  proto::Job shallow = job;
  ASSERT_TRUE(job::SetField("graph.function[main].node[layers].repeat=1", &shallow).ok());
  status = Error(shallow);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("unknown to the model"));
  options_.resume = options_.init;
  options_.init.clear();
  EXPECT_THAT(std::string(Error(job).message()), HasSubstr("metadata has the step"));
  options_.resume = TemporaryPath("nowhere.safetensors");
  EXPECT_EQ(Error(job).code(), absl::StatusCode::kNotFound);
}

// Makes a job with a text that repeats one short sentence. A model that has learnt the text repeats
// the sentence.
proto::Job TextJob(const std::string& mesh = "") {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick fox. ";
  std::ofstream(TemporaryPath("fox.txt")) << text;
  zoo::TransformerOptions options;
  options.layers = 1;
  options.hidden = 32;
  options.heads = 2;
  options.sequence = 16;
  options.training.batch = 8;
  options.training.steps = 80;
  options.training.learning_rate = 0.01;
  options.training.data = TemporaryPath("fox.txt");
  options.training.mesh = mesh;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  return *job;
}

TEST_F(TrainTest, ALanguageModelTrainedOnManyDevicesSpeaksOnOne) {
  proto::Job job = TextJob("dp=2,tp=2");
  options_.save = TemporaryPath("fox.safetensors");
  TrainResult result = Run(job);
  ASSERT_TRUE(result.evaluation.has_value());
  EXPECT_LT(*BitsPerByte(job, *result.evaluation), 0.5);
  GenerateOptions generate;
  generate.init = options_.save;
  generate.prompts = {TokensOf("the quick"), TokensOf("fox. th")};
  generate.max_tokens = 22;  // beyond the window of 16
  generate.sampling.temperature = 0;
  generate.threads = 1;
  std::string said[2];
  const absl::StatusOr<Generated> generated = Generate(
      job, generate,
      [&](size_t prompt, int32_t byte) { said[prompt].push_back(static_cast<char>(byte)); });
  ASSERT_TRUE(generated.ok()) << generated.status();
  EXPECT_EQ(said[0], " fox. the quick fox. t");
  EXPECT_EQ(said[1], "e quick fox. the quick");
  EXPECT_EQ(generated->cached_tokens, 6 + 8) << "each up to the window of 16";
}

TEST(JobVariantTest, GenerationIsOneSampleOnOneDeviceWithoutDropout) {
  zoo::TransformerOptions options;
  options.dropout = 0.1;
  options.training.mesh = "dp=2";
  options.training.micro_batches = 2;
  auto job = GenerationJob(*zoo::GptJob(options));
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->job.graph().dim(0).name(), "batch");
  EXPECT_EQ(job->job.graph().dim(0).size(), 1);
  EXPECT_EQ(job->input, "tokens");
  EXPECT_EQ(job->window, options.sequence);
  EXPECT_EQ(job->below, options.vocab);
  EXPECT_EQ(job->job.mesh().axis_size(), 0);
  EXPECT_THAT(job->job.DebugString(), Not(HasSubstr("f: 0.1\n")));
  EXPECT_EQ(GenerationJob(ImageJob()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SampleTokenTest, FollowsTheDistributionAndTemperatureZeroTakesTheLikeliest) {
  std::vector<float> logits = {0, std::log(3.0f), -INFINITY};
  int counts[3] = {0, 0, 0};
  for (int i = 0; i < 4000; ++i) ++counts[SampleToken(logits, {.temperature = 1}, UniformAt(3, i))];
  EXPECT_NEAR(counts[1] / 4000.0, 0.75, 0.03);
  EXPECT_EQ(counts[2], 0);
  EXPECT_EQ(SampleToken(logits, {.temperature = 0}, 0.99), 1);
  EXPECT_EQ(SampleToken({0, NAN}, {.temperature = 1}, 0.5), -1);
}

}  // namespace
}  // namespace weir::train
