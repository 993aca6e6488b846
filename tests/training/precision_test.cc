// Tests bf16 and f16 with f32 master weights, also with rules that give parts of the model another
// precision: the losses are close to f32, equal on every mesh as far as the type allows, and the
// model learns. Tests the loss scale of f16, too.
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"
#include "tools/zoo/mlp.h"

namespace weir::training {
namespace {

zoo::TransformerOptions Small() {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  options.training.learning_rate = 3e-3;
  return options;
}

// Returns a small model that learns at the full rate in each of its 8 steps.
zoo::TransformerOptions SmallIn(const std::string& precision) {
  zoo::TransformerOptions options = Small();
  options.training.steps = 8;
  options.training.warmup_steps = 0;
  options.training.precision = precision;
  return options;
}

TEST(Precision, HalfTypesFollowF32OnEveryMesh) {
  zoo::TransformerOptions options = Small();
  options.training.steps = 40;
  for (auto make : {zoo::GptJob, zoo::LlamaJob}) {
    TrainRunOptions run_options;
    run_options.steps = 40;
    absl::StatusOr<TrainRun> f32 = Train(*make(options), run_options);
    ASSERT_TRUE(f32.ok()) << f32.status();
    for (const char* precision : {"bf16", "f16"}) {
      zoo::TransformerOptions half = options;
      half.training.precision = precision;
      for (const char* mesh : {"", "dp=2,tp=2", "pp=2"}) {
        proto::Job job = WithMesh(*make(half), mesh);
        job.mutable_training()->set_zero_stage(1);
        // Overflows at the start would leave updates out, which f32 makes.
        if (job.training().precision() == proto::Training::F16)
          job.mutable_training()->mutable_loss_scale()->set_initial(256);
        absl::StatusOr<TrainRun> run = Train(job, run_options);
        ASSERT_TRUE(run.ok()) << precision << " " << mesh << ": " << run.status();
        EXPECT_LT(run->losses.back(), run->losses.front());
        for (size_t step = 0; step < f32->losses.size(); ++step) {
          EXPECT_NEAR(run->losses[step], f32->losses[step], 0.02 * f32->losses[step])
              << precision << " " << mesh << " step " << step;
        }
      }
    }
  }
}

void AddRule(proto::Training::Precision precision, const std::string& pattern,
             const std::string& op, proto::Job* job) {
  proto::PrecisionRule* rule = job->mutable_training()->add_precision_of();
  if (!pattern.empty()) rule->add_pattern(pattern);
  if (!op.empty()) rule->add_op(op);
  rule->set_precision(precision);
}

std::vector<double> LossesOf(const proto::Job& job) {
  TrainRunOptions options;
  options.steps = 8;
  const absl::StatusOr<TrainRun> run = Train(job, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? run->losses : std::vector<double>();
}

TEST(Precision, ARuleForEverythingIsTheOtherPrecisionToTheBit) {
  const proto::Job f32 = *zoo::LlamaJob(SmallIn("f32")), bf16 = *zoo::LlamaJob(SmallIn("bf16"));
  proto::Job by_rules = bf16;
  AddRule(proto::Training::F32, "", "*", &by_rules);
  EXPECT_EQ(LossesOf(by_rules), LossesOf(f32));
  by_rules = f32;
  AddRule(proto::Training::BF16, "*", "", &by_rules);
  const std::vector<double> losses = LossesOf(by_rules), expected = LossesOf(bf16);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(losses[step], expected[step], 0.01 * expected[step]) << "step " << step;
  EXPECT_NE(losses, LossesOf(f32));
}

TEST(Precision, RulesGiveTheSameLossesOnEveryMesh) {
  for (const char* precision : {"bf16", "f32"}) {
    SCOPED_TRACE(precision);
    zoo::TransformerOptions options = SmallIn(precision);
    options.tied_embeddings = true;  // the table is read in both precisions
    const auto other =
        std::string(precision) == "bf16" ? proto::Training::F32 : proto::Training::BF16;
    proto::Job job = *zoo::GptJob(options);
    const std::vector<double> plain = LossesOf(job);
    AddRule(other, "", "*norm*", &job);
    AddRule(other, "layers.1", "", &job);
    AddRule(other, "main", "matmul", &job);
    const std::vector<double> one = LossesOf(job);
    ASSERT_EQ(one.size(), 8u);
    EXPECT_NE(one, plain);
    EXPECT_LT(one.back(), one.front());
    for (const char* mesh : {"dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2"}) {
      for (const int zero : {0, 3}) {
        SCOPED_TRACE(std::string(mesh) + " zero " + std::to_string(zero));
        proto::Job on_mesh = WithMesh(job, mesh);
        on_mesh.mutable_training()->set_zero_stage(zero);
        const std::vector<double> losses = LossesOf(on_mesh);
        ASSERT_EQ(losses.size(), one.size());
        for (size_t step = 0; step < one.size(); ++step)
          EXPECT_NEAR(losses[step], one[step], 0.01 * one[step]) << "step " << step;
      }
    }
    // The cut of a pipeline changes no bits, nor does computing values again.
    EXPECT_EQ(LossesOf(WithMesh(job, "pp=2")), one);
    proto::Job recomputing = job;
    for (const proto::Function& function : job.graph().function()) {
      if (function.name() != job.graph().main())
        recomputing.mutable_runtime()->add_recompute()->set_function(function.name());
    }
    EXPECT_EQ(LossesOf(recomputing), one);
  }
}

proto::Job F16Job(const std::string& mesh) {
  zoo::TransformerOptions options = SmallIn("f16");
  options.training.steps = 40;
  return WithMesh(*zoo::GptJob(options), mesh);
}

TrainRun RunOf(const proto::Job& job, int64_t steps) {
  TrainRunOptions options;
  options.steps = steps;
  absl::StatusOr<TrainRun> run = Train(job, options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run.ok() ? *std::move(run) : TrainRun();
}

TEST(LossScale, AnOverflowChangesTheScaleAlone) {
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=2", "dp=2,tp=2"}) {
    proto::Job job = F16Job(mesh);
    job.mutable_training()->mutable_loss_scale()->set_initial(0x1p60);
    TrainRun run = RunOf(job, 3);
    ASSERT_EQ(run.loss_scales.size(), 3u) << mesh;
    EXPECT_EQ(run.loss_scales, (std::vector<double>{0x1p60, 0x1p59, 0x1p58})) << mesh;
    for (const double norm : run.grad_norms) EXPECT_FALSE(std::isfinite(norm)) << mesh;
    EXPECT_EQ(run.initial.at("loss_scale/factor"), std::vector<float>{0x1p60f}) << mesh;
    EXPECT_EQ(run.weights.at("loss_scale/factor"), std::vector<float>{0x1p57f}) << mesh;
    for (auto* states : {&run.initial, &run.weights}) states->erase("loss_scale/factor");
    EXPECT_EQ(FirstDifferentState(run.initial, run.weights), "") << mesh;
  }
}

constexpr int64_t kBadStep = 2;

// Feeds the values of another feed, except that one image of one micro-batch is infinite.
class SpoiltFeed final : public actors::DataFeed {
 public:
  explicit SpoiltFeed(const proto::Job& job) : feed_(RepeatingFeed(job)) {}
  absl::Status Fill(const std::string& feed, int64_t step, int64_t micro_batch,
                    const TensorSlice& slice, void* out) override {
    absl::Status filled = feed_->Fill(feed, step, micro_batch, slice, out);
    if (feed == "images" && step == kBadStep && micro_batch == 1 && slice.offset[0] == 0)
      static_cast<float*>(out)[0] = std::numeric_limits<float>::infinity();
    return filled;
  }

 private:
  std::unique_ptr<actors::DataFeed> feed_;
};

// One rank of dp alone sees the bad image, in one micro-batch, and the last stage alone has the
// loss.
TEST(LossScale, ALossThatIsNotFiniteEndsAllChanges) {
  zoo::MlpOptions mlp;
  mlp.pixels = mlp.hidden = 16;
  mlp.training.batch = 8;
  mlp.training.micro_batches = 2;
  mlp.training.steps = 8;
  mlp.training.warmup_steps = 0;
  mlp.training.precision = "f16";
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=2", "dp=2,tp=2"}) {
    for (const auto& [zero, every] : {std::pair(0, 1), {1, 1}, {3, 1}, {0, 2}}) {
      SCOPED_TRACE(std::string(mesh) + " zero " + std::to_string(zero) + ", every " +
                   std::to_string(every));
      mlp.training.zero_stage = zero;
      mlp.training.update_every = every;
      proto::Job job = WithMesh(*zoo::MlpJob(mlp), mesh);
      proto::LossScale* scale = job.mutable_training()->mutable_loss_scale();
      scale->set_initial(256);
      scale->set_growth_interval(3);
      const TrainRun good = RunOf(job, kBadStep);
      TrainRunOptions options;
      options.steps = 6;
      options.feed = [](const proto::Job& fed) { return std::make_unique<SpoiltFeed>(fed); };
      const absl::StatusOr<TrainRun> bad = Train(job, options);
      ASSERT_TRUE(bad.ok()) << bad.status();
      ASSERT_EQ(bad->losses.size(), 6u);
      EXPECT_FALSE(std::isfinite(bad->losses[kBadStep]));
      EXPECT_EQ(FirstDifferentState(bad->weights, good.weights), "");
      EXPECT_EQ(good.weights.at("loss_scale/factor"), std::vector<float>{256});
      EXPECT_EQ(good.weights.at("loss_scale/finite_steps"),
                std::vector<float>{static_cast<float>(kBadStep) / static_cast<float>(every)});
      EXPECT_NE(FirstDifferentState(good.weights, good.initial), "");
    }
  }
}

TEST(LossScale, GrowsAfterFiniteSteps) {
  for (const char* mesh : {"", "dp=2", "tp=2", "pp=2"}) {
    proto::Job job = F16Job(mesh);
    proto::LossScale* scale = job.mutable_training()->mutable_loss_scale();
    scale->set_initial(64);
    scale->set_growth(4);
    scale->set_growth_interval(2);
    const TrainRun run = RunOf(job, 5);
    EXPECT_EQ(run.loss_scales, (std::vector<double>{64, 64, 256, 256, 1024})) << mesh;
    EXPECT_EQ(run.weights.at("loss_scale/finite_steps"), std::vector<float>{1}) << mesh;
  }
}

// Powers of two change no bit of numbers that neither overflow nor fall below the normal ones.
TEST(LossScale, OneThatAdaptsTrainsAsOneThatStays) {
  proto::Job adapts = F16Job("pp=2"), stays = adapts;
  adapts.mutable_training()->mutable_loss_scale()->set_initial(256);
  stays.mutable_training()->mutable_loss_scale()->set_fixed(256);
  const TrainRun a = RunOf(adapts, 6), b = RunOf(stays, 6);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.grad_norms, b.grad_norms);
  EXPECT_TRUE(b.loss_scales.empty());
  ASSERT_FALSE(a.grad_norms.empty());
  // Norms are without the factor.
  stays.mutable_training()->set_precision(proto::Training::F32);
  stays.mutable_training()->clear_loss_scale();
  const TrainRun f32 = RunOf(stays, 1);
  ASSERT_FALSE(f32.grad_norms.empty());
  EXPECT_NEAR(a.grad_norms[0], f32.grad_norms[0], 0.02 * f32.grad_norms[0]);
}

TEST(LossScale, NumbersThatMakeNoSenseAreRefused) {
  const auto refused = [](const auto& change) {
    proto::Job job = F16Job("");
    change(job.mutable_training());
    const auto plans = CompileForAllRanks(job);
    return plans.ok() ? std::string() : std::string(plans.status().message());
  };
  using proto::Training;
  EXPECT_EQ(refused([](Training*) {}), "");
  EXPECT_NE(refused([](Training* training) {
              training->set_precision(Training::BF16);
              training->mutable_loss_scale();
            }).find("W0865"),
            std::string::npos);
  EXPECT_NE(refused([](Training* training) {
              training->mutable_loss_scale()->set_backoff(1);
            }).find("W0865"),
            std::string::npos);
  EXPECT_NE(refused([](Training* training) {
              training->mutable_loss_scale()->set_initial(1e-60);
            }).find("from 2^-120 to 2^120"),
            std::string::npos)
      << "zero in f32";
  EXPECT_NE(refused([](Training* training) {
              training->mutable_loss_scale()->set_growth(0x1p121);
            }).find("from 1 to 2^120"),
            std::string::npos);
  EXPECT_NE(refused([](Training* training) {
              training->mutable_loss_scale()->set_fixed(2);
              training->mutable_loss_scale()->set_growth(2);
            }).find("W0865"),
            std::string::npos);
  EXPECT_NE(refused([](Training* training) { training->set_gradient_delay(1); }).find("W0866"),
            std::string::npos);
  EXPECT_EQ(refused([](Training* training) {
              training->set_gradient_delay(1);
              training->mutable_loss_scale()->set_fixed(2);
            }),
            "");
}

}  // namespace
}  // namespace weir::training
