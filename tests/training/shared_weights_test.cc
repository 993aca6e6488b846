// Tests weights that several calls read, on every layout: the gradient is the sum over the uses,
// wherever the uses lie. tests/oracle compares such a model with PyTorch.
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"
#include "tools/zoo/llama.h"

namespace weir::training {
namespace {

zoo::TransformerOptions Tied() {
  zoo::TransformerOptions options = SmallTransformer();
  options.tied_embeddings = true;
  return options;
}

void ExpectNear(const TrainRun& run, const TrainRun& one) {
  ASSERT_EQ(run.losses.size(), one.losses.size());
  for (size_t step = 0; step < one.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], one.losses[step], 1e-5 * one.losses[step]) << "step " << step;
    EXPECT_NEAR(run.grad_norms[step], one.grad_norms[step], 1e-4 * one.grad_norms[step]);
  }
}

TEST(SharedWeights, TheTableOfTokensIsOneWeight) {
  const absl::StatusOr<TrainRun> run = Train(*JobOn({}, zoo::GptJob, Tied()), {});
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->weights.count("token_table"), 1u);
  EXPECT_EQ(run->weights.count("w_vocab"), 0u);
  EXPECT_NE(run->weights.at("token_table"), run->initial.at("token_table"));
}

TEST(SharedWeights, TrainAlikeOnEveryLayout) {
  for (MakeJob make : {zoo::GptJob, zoo::LlamaJob}) {
    for (int64_t micro_batches : {1, 2}) {
      zoo::TransformerOptions options = Tied();
      options.training.micro_batches = micro_batches;
      const absl::StatusOr<TrainRun> one = Train(*JobOn({}, make, options), {});
      ASSERT_TRUE(one.ok()) << one.status();
      EXPECT_LT(one->losses.back(), one->losses[0]);
      for (const Layout& layout : LayoutMatrix()) {
        SCOPED_TRACE(NameOf(layout));
        const absl::StatusOr<TrainRun> run = Train(*JobOn(layout, make, options), {});
        ASSERT_TRUE(run.ok()) << run.status();
        ExpectNear(*run, *one);
      }
    }
  }
}

// The order of a sum over uses does not depend on the stages of the uses.
TEST(SharedWeights, AreTheSameBitsOnEveryCutOfThePipeline) {
  zoo::TransformerOptions options = Tied();
  options.training.micro_batches = 4;
  for (int zero : {0, 2}) {
    const absl::StatusOr<TrainRun> whole = Train(*JobOn({"dp=2", zero}, zoo::GptJob, options), {});
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (const char* mesh : {"dp=2,pp=2", "dp=2,pp=4"}) {
      SCOPED_TRACE(mesh);
      const absl::StatusOr<TrainRun> cut = Train(*JobOn({mesh, zero}, zoo::GptJob, options), {});
      ASSERT_TRUE(cut.ok()) << cut.status();
      EXPECT_EQ(FirstDifference(*cut, *whole), "");
    }
  }
}

// One set of weights for all rounds of a repeated call, on stages of its own.
TEST(SharedWeights, OneSetForAllRoundsTrainsAlikeOnEveryMesh) {
  absl::StatusOr<proto::Job> job = zoo::GptJob(SmallTransformer());
  ASSERT_TRUE(job.ok()) << job.status();
  for (proto::Function& function : *job->mutable_graph()->mutable_function()) {
    for (proto::Node& node : *function.mutable_node()) {
      if (node.name() == "layers") node.set_weights("layers");
    }
  }
  const absl::StatusOr<TrainRun> one = Train(WithMesh(*job, ""), {});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->weights.count("layers.wq"), 1u);
  EXPECT_EQ(one->weights.count("layers.0.wq"), 0u);
  for (const char* mesh : {"dp=2", "tp=2", "pp=2", "dp=2,pp=4"}) {
    SCOPED_TRACE(mesh);
    const absl::StatusOr<TrainRun> run = Train(WithMesh(*job, mesh), {});
    ASSERT_TRUE(run.ok()) << run.status();
    ExpectNear(*run, *one);
  }
}

// A frozen weight keeps its bits, and the other weights do not see the difference of layouts.
TEST(SharedWeights, FrozenWeightsStay) {
  absl::StatusOr<proto::Job> job = zoo::GptJob(Tied());
  ASSERT_TRUE(job.ok()) << job.status();
  for (proto::Function& function : *job->mutable_graph()->mutable_function()) {
    for (proto::Parameter& parameter : *function.mutable_parameter())
      parameter.set_frozen(parameter.name() == "token_table" || parameter.name() == "wq");
  }
  const absl::StatusOr<TrainRun> one = Train(WithMesh(*job, ""), {});
  ASSERT_TRUE(one.ok()) << one.status();
  for (const char* mesh : {"", "dp=2", "pp=2", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    const absl::StatusOr<TrainRun> run = Train(WithMesh(*job, mesh), {});
    ASSERT_TRUE(run.ok()) << run.status();
    ExpectNear(*run, *one);
    for (const char* name : {"token_table", "layers.0.wq", "layers.3.wq"})
      EXPECT_EQ(run->weights.at(name), run->initial.at(name)) << name;
    EXPECT_EQ(run->weights.count("token_table/adam_m"), 0u);
    EXPECT_NE(run->weights.at("layers.0.wk"), run->initial.at("layers.0.wk"));
  }
}

}  // namespace
}  // namespace weir::training
