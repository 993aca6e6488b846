// Tests which jobs are refused, and whether the suggested changes help.
#include "tools/train/memory_budget.h"

#include "absl/strings/str_cat.h"
#include "actors/plan/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/alignment.h"
#include "runtime/base/unit_text.h"
#include "tools/job/job_file.h"
#include "tools/train/buddy_memory.h"
#include "tools/train/job_session.h"
#include "tools/train/job_variant.h"
#include "tools/zoo/gpt.h"

namespace weir::train {
namespace {

using testing::HasSubstr;
using testing::Not;

proto::Job SmallGpt(const std::string& mesh, int layers = 2) {
  zoo::TransformerOptions options;
  options.layers = layers;
  options.hidden = 64;
  options.sequence = 64;
  absl::StatusOr<proto::Job> job = zoo::GptJob(options);
  EXPECT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job::SetMesh(mesh, &*job).ok());
  return *job;
}

class NoData final : public actors::DataFeed {
 public:
  absl::Status Fill(const std::string& feed, int64_t, int64_t, const TensorSlice&, void*) override {
    return absl::NotFoundError(feed);
  }
};

std::unique_ptr<compiler::LogicalPlan> Compiled(const proto::Job& job) {
  absl::StatusOr<std::unique_ptr<compiler::LogicalPlan>> plan = compiler::CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

MemoryNeed NeedOfJob(const proto::Job& job, Beside beside) {
  const absl::StatusOr<MemoryNeed> need = NeedOf(*Compiled(job), beside);
  EXPECT_TRUE(need.ok()) << need.status();
  return *need;
}

TEST(MemoryBudget, AJobThatNeedsJustWhatThereIsFits) {
  const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(SmallGpt("dp=2"));
  const MemoryNeed need = *NeedOf(*plan, Beside::kNothing);
  MemoryBudget budget{need.bytes, static_cast<int64_t>(need.all_bytes), "this machine"};
  EXPECT_TRUE(CheckNeed(*plan, Beside::kNothing, need, budget).ok());
  --budget.device_bytes;
  EXPECT_THAT(std::string(CheckNeed(*plan, Beside::kNothing, need, budget).message()),
              HasSubstr("W0487"));
  budget = {0, static_cast<int64_t>(need.all_bytes) - 1, "this machine"};
  EXPECT_THAT(std::string(CheckNeed(*plan, Beside::kNothing, need, budget).message()),
              HasSubstr("memory of all 2 ranks"));
}

TEST(MemoryBudget, EachRankIsCountedAsASessionTakesIt) {
  const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(SmallGpt("pp=2"));
  std::vector<proto::RankPlan> plans;
  for (RankId rank : plan->places.all_ranks())
    plans.push_back(*compiler::LowerForRank(*plan, rank));
  const MemoryNeed need = *NeedOf(*plan, Beside::kNothing);
  NoData feed;
  actors::SessionOptions options;
  options.feed = &feed;
  const int threads = options.threads_per_device = ThreadsPerDevice(*plan->job, 0, 2);
  const std::unique_ptr<actors::Session> session = *actors::Session::Create(plans, options);
  int64_t most = 0, all = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const actors::RankMemory memory = session->Memory(RankId(rank));
    EXPECT_EQ(memory.arena_bytes, plans[rank].arena_bytes());
    EXPECT_GT(memory.workspace_bytes, 0);
    most = std::max(most, memory.arena_bytes + memory.workspace_bytes);
    all += memory.arena_bytes + memory.workspace_bytes;
  }
  EXPECT_EQ(need.bytes, most);
  EXPECT_EQ(need.all_bytes, static_cast<double>(all));
  EXPECT_EQ(need.bytes, NeedOf(plans, threads).bytes);
  EXPECT_EQ(need.rank, NeedOf(plans, threads).rank);
}

TEST(MemoryBudget, EvaluationBesideTheTrainingCounts) {
  const proto::Job job = SmallGpt("dp=2");
  const MemoryNeed both = NeedOfJob(job, Beside::kEvaluation);
  EXPECT_GT(both.beside_bytes, 0);
  EXPECT_EQ(both.bytes, NeedOfJob(job, Beside::kNothing).bytes + both.beside_bytes);
}

TEST(MemoryBudget, AnEvaluationHasNoWeightsOfItsOwn) {
  for (const int zero_stage : {0, 3}) {
    proto::Job job = SmallGpt("dp=2");
    job.mutable_training()->set_zero_stage(zero_stage);
    const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(job);
    compiler::CompileOptions options;
    options.mode = compiler::PlanMode::kEvaluate;
    const auto evaluation = *compiler::CompileJob(EvaluationJob(job), options);
    const proto::RankPlan training = *compiler::LowerForRank(*plan, RankId(0));
    const MemoryNeed both = NeedOfJob(job, Beside::kEvaluation);
    ASSERT_EQ(both.rank, RankId(0));
    int64_t weight_bytes = 0;
    const absl::StatusOr<actors::Plan> read = actors::PlanFromProto(training);
    ASSERT_TRUE(read.ok()) << read.status();
    for (const actors::PlanState& state : read->states) {
      if (state.state_class == actors::StateClass::kWeight)
        weight_bytes += AlignUp(state.slice.bytes());
    }
    EXPECT_EQ(both.beside_bytes, NeedOf(*evaluation, Beside::kNothing)->bytes - weight_bytes)
        << "ZeRO " << zero_stage;
  }
}

// On a large mesh the need alone comes from plans that stages of equal work share.
TEST(MemoryBudget, TheNeedWithoutPlansIsThatOfThePlans) {
  for (const int zero_stage : {0, 3}) {
    for (const char* device : {"cpu", "cuda"}) {
      proto::Job job = SmallGpt("dp=4,pp=5", /*layers=*/10);
      job.mutable_training()->set_zero_stage(zero_stage);
      job.mutable_training()->set_micro_batches(4);
      job.mutable_runtime()->set_device(device);
      job.mutable_runtime()->set_graphs(proto::Runtime::Graphs::ON);
      const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(job);
      const std::vector<compiler::FirstRank> ranks = *compiler::LowerFirstRanks(*plan);
      EXPECT_NE(ranks[2].plan_stage, 2) << "stage 2 shares the plan of an earlier stage";
      for (const Beside beside : {Beside::kNothing, Beside::kEvaluation}) {
        const MemoryNeed alone = *NeedOf(*plan, beside);
        const MemoryNeed of_plans = NeedAndPlansOf(*plan, beside)->need;
        EXPECT_EQ(alone.rank, of_plans.rank);
        EXPECT_EQ(alone.bytes, of_plans.bytes) << device << ", ZeRO " << zero_stage;
        EXPECT_EQ(alone.beside_bytes, of_plans.beside_bytes);
        EXPECT_EQ(alone.graph_bytes, of_plans.graph_bytes);
        EXPECT_EQ(alone.all_bytes, of_plans.all_bytes);
        EXPECT_EQ(alone.bytes_of_stage, of_plans.bytes_of_stage);
      }
    }
  }
}

TEST(MemoryBudget, GraphsOfAGpuCountByAnEstimate) {
  proto::Job job = SmallGpt("pp=2");
  job.mutable_runtime()->set_device("cuda");
  const MemoryNeed without = NeedOfJob(job, Beside::kNothing);
  EXPECT_EQ(without.graph_bytes, 0);
  job.mutable_runtime()->set_graphs(proto::Runtime::Graphs::ON);
  const MemoryNeed with = NeedOfJob(job, Beside::kNothing);
  EXPECT_GT(with.graph_bytes, 0);
  EXPECT_EQ(with.bytes, without.bytes + with.graph_bytes);
  job.mutable_runtime()->set_device("cpu");
  EXPECT_EQ(NeedOfJob(job, Beside::kNothing).graph_bytes, 0);
}

TEST(MemoryBudget, TheDriverOfEachDeviceCounts) {
  MemoryNeed need = NeedOfJob(SmallGpt("pp=2"), Beside::kNothing);
  const MemoryNeed before = need;
  AddDriver(1000, /*num_ranks=*/2, &need);
  EXPECT_EQ(need.driver_bytes, 1000);
  EXPECT_EQ(need.bytes, before.bytes + 1000);
  EXPECT_EQ(need.all_bytes, before.all_bytes + 2000);
  for (const auto& [stage, bytes] : before.bytes_of_stage)
    EXPECT_EQ(need.bytes_of_stage.at(stage), bytes + 1000);
}

TEST(MemoryBudget, WhatIsSaidToHelpNeedsWhatIsSaid) {
  const proto::Job job = SmallGpt("dp=2");
  proto::Job changed = job;
  changed.mutable_training()->set_zero_stage(3);
  const MemoryNeed need = NeedOfJob(job, Beside::kNothing),
                   then = NeedOfJob(changed, Beside::kNothing);
  ASSERT_LT(then.bytes, need.bytes);
  const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(job);
  const std::string remedy =
      absl::StrCat("training.zero_stage=3 (needs ", BytesText(static_cast<double>(then.bytes)));
  MemoryBudget budget{then.bytes, static_cast<int64_t>(need.all_bytes), "this machine"};
  EXPECT_THAT(std::string(CheckNeed(*plan, Beside::kNothing, need, budget).message()),
              HasSubstr(remedy + ", fits)"));
  --budget.device_bytes;
  const std::string without(CheckNeed(*plan, Beside::kNothing, need, budget).message());
  EXPECT_THAT(without, HasSubstr(remedy));
  EXPECT_THAT(without, Not(HasSubstr(remedy + ", fits)")));
}

TEST(MemoryBudget, TheCopyForCheckpointsHasEachStateOnceOnAnyMesh) {
  for (const char* mesh : {"", "dp=2", "dp=2,tp=2"}) {
    const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(SmallGpt(mesh));
    double weight_bytes = 0;
    for (const auto& variable : plan->module.variables)
      weight_bytes += 4 * static_cast<double>(variable.type.num_elements());
    // The optimizer keeps two states for each weight.
    EXPECT_EQ(CheckpointCopyBytes(NeedAndPlansOf(*plan)->plans), 3 * weight_bytes) << mesh;
  }
}

TEST(MemoryBudget, BuddiesKeepTheStatesWithoutAReplica) {
  const auto need_of = [](const proto::Job& job) {
    const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(job);
    return BuddyNeedOf(*plan, NeedAndPlansOf(*plan)->plans);
  };
  EXPECT_EQ(need_of(SmallGpt("dp=2")).moved_bytes, 0);
  proto::Job zero = SmallGpt("dp=2");
  zero.mutable_training()->set_zero_stage(3);
  for (const proto::Job& job : {zero, SmallGpt("pp=2")}) {
    const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(job);
    const double states = CheckpointCopyBytes(NeedAndPlansOf(*plan)->plans);
    const BuddyNeed need = need_of(job);
    EXPECT_EQ(need.moved_bytes, states);
    // Two copies at the owners, and two at the buddies.
    EXPECT_EQ(need.all_bytes, 4 * states);
    EXPECT_GE(need.rank_bytes, 2 * states);
    EXPECT_LE(need.rank_bytes, 4 * states);
  }
}

TEST(MemoryBudget, AJobWhoseBuddyCopiesDoNotFitIsWarnedOf) {
  proto::Job job = SmallGpt("pp=2");
  job.mutable_runtime()->set_buddy_every(10);
  const std::unique_ptr<compiler::LogicalPlan> plan = Compiled(job);
  const NeedAndPlans of = *NeedAndPlansOf(*plan);
  const double sum = of.need.all_bytes + BuddyNeedOf(*plan, of.plans).all_bytes;
  MemoryBudget budget{0, static_cast<int64_t>(sum), "this machine"};
  EXPECT_EQ(BuddyWarning(*plan, of, budget), "");
  --budget.machine_bytes;
  EXPECT_THAT(BuddyWarning(*plan, of, budget), HasSubstr("runtime.buddy_every"));
}

}  // namespace
}  // namespace weir::train
