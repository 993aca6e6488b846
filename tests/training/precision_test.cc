// Tests bf16 with f32 master weights, also with rules that give parts of the model another
// precision: the losses are close to f32, equal on every mesh as far as bf16 allows, and the model
// learns.
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

TEST(Precision, Bf16FollowsF32OnEveryMesh) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  options.training.steps = 40;
  options.training.learning_rate = 3e-3;
  for (auto make : {zoo::GptJob, zoo::LlamaJob}) {
    TrainRunOptions run_options;
    run_options.steps = 40;
    absl::StatusOr<TrainRun> f32 = Train(*make(options), run_options);
    ASSERT_TRUE(f32.ok()) << f32.status();
    zoo::TransformerOptions half = options;
    half.training.precision = "bf16";
    for (const char* mesh : {"", "dp=2,tp=2", "pp=2"}) {
      proto::Job job = WithMesh(*make(half), mesh);
      job.mutable_training()->set_zero_stage(1);
      absl::StatusOr<TrainRun> bf16 = Train(job, run_options);
      ASSERT_TRUE(bf16.ok()) << mesh << ": " << bf16.status();
      EXPECT_LT(bf16->losses.back(), bf16->losses.front());
      for (size_t step = 0; step < f32->losses.size(); ++step) {
        EXPECT_NEAR(bf16->losses[step], f32->losses[step], 0.02 * f32->losses[step])
            << mesh << " step " << step;
      }
    }
  }
}

zoo::TransformerOptions SmallGpt(const std::string& precision) {
  zoo::TransformerOptions options;
  options.layers = 2;
  options.hidden = 32;
  options.heads = 4;
  options.vocab = 64;
  options.sequence = 16;
  options.training.batch = 8;
  options.training.micro_batches = 2;
  options.training.steps = 8;
  options.training.learning_rate = 3e-3;
  options.training.precision = precision;
  return options;
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
  const proto::Job f32 = *zoo::LlamaJob(SmallGpt("f32")), bf16 = *zoo::LlamaJob(SmallGpt("bf16"));
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
    zoo::TransformerOptions options = SmallGpt(precision);
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

}  // namespace
}  // namespace weir::training
