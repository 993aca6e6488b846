// Collectives of groups train to the bits of exchanges: on the CPU, on an emulated GPU that takes
// acts ahead on several queues, and in simulated interleavings.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

zoo::TransformerOptions TinyTransformer() {
  zoo::TransformerOptions options = SmallTransformer();
  options.layers = 2;
  options.hidden = 16;
  options.heads = 4;
  options.ffn = 32;
  options.vocab = 32;
  options.sequence = 8;
  options.training.batch = 4;
  return options;
}

// Returns the collectives in the plans of all ranks, each of which has as many as the others.
int CollectivesOf(const proto::Job& job) {
  const auto plans = CompileForAllRanks(job);
  EXPECT_TRUE(plans.ok()) << plans.status();
  int collectives = 0;
  for (const proto::RankPlan& plan : *plans) {
    int here = 0;
    for (const proto::ActorSpec& actor : plan.actor())
      here += actor.kind() == proto::ActorSpec::COLLECTIVE;
    if (plan.rank() == 0) collectives = here;
    EXPECT_EQ(here, collectives) << "rank " << plan.rank();
  }
  return collectives;
}

void ExpectTheBitsOfExchanges(proto::Job job, TrainRunOptions options = {}) {
  options.steps = 2;
  EXPECT_EQ(CollectivesOf(job), 0);
  const absl::StatusOr<TrainRun> exchanged = Train(job, options);
  ASSERT_TRUE(exchanged.ok()) << exchanged.status();
  ASSERT_FALSE(exchanged->losses.empty());
  job.mutable_runtime()->set_collectives(proto::Runtime::LOCAL);
  EXPECT_GT(CollectivesOf(job), 0);
  const absl::StatusOr<TrainRun> met = Train(job, options);
  ASSERT_TRUE(met.ok()) << met.status();
  EXPECT_EQ(FirstDifference(*met, *exchanged), "");
  EXPECT_LT(met->edges.size(), exchanged->edges.size());
}

const Layout kLayouts[] = {
    {"dp=2", 0, zoo::SequenceParallel::kNone},      {"dp=2", 1, zoo::SequenceParallel::kNone},
    {"dp=2", 3, zoo::SequenceParallel::kNone},      {"dp=4", 0, zoo::SequenceParallel::kNone},
    {"tp=2", 0, zoo::SequenceParallel::kNone},      {"dp=2,tp=2", 0, zoo::SequenceParallel::kNone},
    {"dp=2,pp=2", 0, zoo::SequenceParallel::kNone}, {"sp=4", 0, zoo::SequenceParallel::kUlysses}};

TEST(Collectives, TrainToTheBitsOfExchangesOnEveryKindOfLayout) {
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(NameOf(layout));
    const absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, TinyTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    ExpectTheBitsOfExchanges(*job);
  }
}

TEST(Collectives, TrainToTheBitsOfExchangesWhereADeviceWorksAhead) {
  absl::StatusOr<proto::Job> job =
      JobOn({"dp=2,tp=2", 1, zoo::SequenceParallel::kNone}, zoo::GptJob, TinyTransformer());
  ASSERT_TRUE(job.ok()) << job.status();
  for (const char* kind : {"cuda-emulated", "walled"}) {
    SCOPED_TRACE(kind);
    job->mutable_runtime()->set_device(kind);
    job->mutable_runtime()->set_device_queues(4);
    job->mutable_runtime()->set_device_depth(64);
    ExpectTheBitsOfExchanges(*job);
  }
}

// An emulated NCCL, whose sums are those of the local library, works on the streams of emulated
// GPUs.
TEST(Collectives, OfNcclTrainToTheBitsOfTheLocalLibrary) {
  TrainRunOptions options;
  options.steps = 2;
  for (const Layout& layout : kLayouts) {
    SCOPED_TRACE(NameOf(layout));
    absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, TinyTransformer());
    ASSERT_TRUE(job.ok()) << job.status();
    proto::Runtime& runtime = *job->mutable_runtime();
    runtime.set_device("cuda-emulated");
    runtime.set_device_queues(2);
    runtime.set_device_depth(64);
    runtime.set_collectives(proto::Runtime::LOCAL);
    const absl::StatusOr<TrainRun> local = Train(*job, options);
    ASSERT_TRUE(local.ok()) << local.status();
    ASSERT_FALSE(local->losses.empty());
    runtime.set_collectives(proto::Runtime::NCCL);
    const absl::StatusOr<TrainRun> nccl = Train(*job, options);
    ASSERT_TRUE(nccl.ok()) << nccl.status();
    EXPECT_EQ(FirstDifference(*nccl, *local), "");
  }
}

TEST(Collectives, TrainToTheBitsOfExchangesInAnyInterleaving) {
  const absl::StatusOr<proto::Job> job =
      JobOn({"dp=2,tp=2", 0, zoo::SequenceParallel::kNone}, zoo::GptJob, TinyTransformer());
  ASSERT_TRUE(job.ok()) << job.status();
  for (const uint64_t seed : {1, 2}) {
    TrainRunOptions options;
    options.session.engine = actors::SessionOptions::EngineKind::kSim;
    options.session.sim.seed = seed;
    ExpectTheBitsOfExchanges(*job, options);
  }
}

}  // namespace
}  // namespace weir::training
