// Tests a tensor of main that is read on both sides of the calls. Its gradient is the sum over both
// readers, and the tensor crosses the stages of a pipeline beside the calls.
#include "gtest/gtest.h"
#include "tests/training/train_run.h"
#include "tools/zoo/mlp.h"

namespace weir::training {
namespace {

// Returns the zoo's model with the input of the first call added to the output of the last call.
proto::Job WithSkip() {
  zoo::MlpOptions options;
  options.layers = 2;
  options.hidden = 8;
  options.ffn = 16;
  options.training.batch = 8;
  absl::StatusOr<proto::Job> job = zoo::MlpJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  proto::Function* main = nullptr;
  for (proto::Function& function : *job->mutable_graph()->mutable_function()) {
    if (function.name() == job->graph().main()) main = &function;
  }
  std::vector<proto::Node> nodes(main->node().begin(), main->node().end());
  main->clear_node();
  for (proto::Node& node : nodes) {
    if (node.name() == "logits") {
      proto::Node* skip = main->add_node();
      skip->set_name("skip");
      skip->set_op("add");
      skip->add_input("features");
      skip->add_input("encoded");
      node.set_input(0, "skip");
    }
    *main->add_node() = node;
  }
  return *job;
}

TEST(SkipConnection, AroundTheCallsTrainsAlikeOnEveryMesh) {
  const proto::Job job = WithSkip();
  const absl::StatusOr<TrainRun> one = Train(WithMesh(job, ""), {});
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_EQ(one->losses.size(), 3u);
  EXPECT_NE(one->losses[0], one->losses[2]);
  for (const char* mesh : {"dp=2", "tp=2", "pp=2", "dp=2,pp=2"}) {
    SCOPED_TRACE(mesh);
    const absl::StatusOr<TrainRun> run = Train(WithMesh(job, mesh), {});
    ASSERT_TRUE(run.ok()) << run.status();
    for (size_t step = 0; step < one->losses.size(); ++step) {
      EXPECT_NEAR(run->losses[step], one->losses[step], 1e-5 * one->losses[step]);
    }
  }
}

}  // namespace
}  // namespace weir::training
