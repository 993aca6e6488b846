// An evaluation beside a training reads the weights where the training has them.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/session/session.h"
#include "actors/testing/test_plans.h"
#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "tests/training/layouts.h"
#include "tests/training/train_run.h"
#include "tools/zoo/gpt.h"

namespace weir::training {
namespace {

constexpr int64_t kBatches = 2;

std::vector<proto::RankPlan> PlansOf(const proto::Job& job, compiler::PlanMode mode) {
  compiler::CompileOptions options;
  options.mode = mode;
  const absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan =
      compiler::CompileJob(job, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<proto::RankPlan> plans;
  if (!plan.ok()) return plans;
  for (const RankId rank : (*plan)->places.all_ranks()) {
    const absl::StatusOr<proto::RankPlan> lowered = compiler::LowerForRank(**plan, rank);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    if (lowered.ok()) plans.push_back(*lowered);
  }
  return plans;
}

// A session with its data and what it reports.
struct Run {
  std::unique_ptr<actors::DataFeed> feed;
  actors::TestSink sink;
  std::unique_ptr<actors::Session> session;

  void Open(const proto::Job& job, const std::vector<proto::RankPlan>& plans,
            const actors::Session* weights_of) {
    feed = RepeatingFeed(job);
    actors::SessionOptions options;
    options.feed = feed.get();
    options.sink = &sink;
    options.weights_of = weights_of;
    absl::StatusOr<std::unique_ptr<actors::Session>> made = actors::Session::Create(plans, options);
    ASSERT_TRUE(made.ok()) << made.status();
    session = *std::move(made);
  }
};

void CopyTheWeights(const actors::Session& from, actors::Session* to) {
  for (const RankId rank : to->local_ranks()) {
    for (const actors::PlanState& state : to->plan(rank).states) {
      if (state.state_class != actors::StateClass::kWeight) continue;
      const absl::StatusOr<device::HostView> view = from.ReadState(rank, state.name);
      ASSERT_TRUE(view.ok()) << view.status();
      ASSERT_TRUE(to->WriteState(rank, state.name, view->bytes()).ok());
    }
  }
}

int64_t WeightBytes(const actors::Plan& plan) {
  int64_t bytes = 0;
  for (const actors::PlanState& state : plan.states) {
    if (state.state_class == actors::StateClass::kWeight) bytes += state.slice.bytes();
  }
  return bytes;
}

void ExpectTheBitsOfACopy(const proto::Job& job) {
  const std::vector<proto::RankPlan> evaluation = PlansOf(job, compiler::PlanMode::kEvaluate);
  Run training, beside, apart;
  ASSERT_NO_FATAL_FAILURE(
      training.Open(job, PlansOf(job, compiler::PlanMode::kTrain), /*weights_of=*/nullptr));
  ASSERT_NO_FATAL_FAILURE(beside.Open(job, evaluation, training.session.get()));
  ASSERT_NO_FATAL_FAILURE(apart.Open(job, evaluation, /*weights_of=*/nullptr));
  for (int burst = 0; burst < 2; ++burst) {
    ASSERT_TRUE(training.session->RunSteps(2).ok());
    CopyTheWeights(*training.session, apart.session.get());
    ASSERT_TRUE(beside.session->RunSteps(kBatches).ok());
    ASSERT_TRUE(apart.session->RunSteps(kBatches).ok());
    EXPECT_FALSE(beside.sink.values().empty());
    EXPECT_EQ(beside.sink.values(), apart.sink.values());
  }
  for (const RankId rank : training.session->local_ranks()) {
    const int64_t shared = WeightBytes(training.session->plan(rank));
    EXPECT_GT(shared, 0);
    EXPECT_LE(beside.session->Memory(rank).arena_bytes,
              apart.session->Memory(rank).arena_bytes - shared);
    for (const actors::PlanState& state : apart.session->plan(rank).states)
      EXPECT_TRUE(beside.session->IsShared(rank, state.name)) << state.name;
  }
}

TEST(EvaluationBeside, HasTheBitsOfACopyOfTheWeights) {
  zoo::TransformerOptions small;
  small.layers = 2;
  small.hidden = 16;
  small.heads = 2;
  small.sequence = 8;
  small.training.batch = 8;
  const Layout layouts[] = {{"dp=2", 3, zoo::SequenceParallel::kNone},
                            {"tp=2,pp=2", 0, zoo::SequenceParallel::kNone}};
  for (const Layout& layout : layouts) {
    absl::StatusOr<proto::Job> job = JobOn(layout, zoo::GptJob, small);
    ASSERT_TRUE(job.ok()) << job.status();
    job->mutable_training()->set_precision(proto::Training::BF16);
    for (const char* device : {"cpu", "walled", "cuda-emulated"}) {
      SCOPED_TRACE(NameOf(layout) + " on " + device);
      job->mutable_runtime()->set_device(device);
      ExpectTheBitsOfACopy(*job);
    }
  }
}

}  // namespace
}  // namespace weir::training
