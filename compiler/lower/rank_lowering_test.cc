#include "compiler/lower/rank_lowering.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "compiler/compile.h"
#include "compiler/testing/small_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::compiler {
namespace {

struct Case {
  std::string mesh;
  int zero_stage = 0;
  weir::proto::Pipeline::ScheduleKind schedule = weir::proto::Pipeline::ONE_F_ONE_B;
};

const std::vector<Case>& Cases() {
  static const auto* cases =
      new std::vector<Case>{{"dp=2", 0},
                            {"dp=3", 1},
                            {"tp=2", 0},
                            {"dp=2,tp=2", 3},
                            {"pp=2", 0},
                            {"pp=2,dp=2", 2, weir::proto::Pipeline::GPIPE},
                            {"pp=2,dp=2,tp=2", 3, weir::proto::Pipeline::ZERO_BUBBLE},
                            {"pp=2,dp=3", 1, weir::proto::Pipeline::INTERLEAVED}};
  return *cases;
}

std::unique_ptr<LogicalPlan> PlanOf(const Case& entry) {
  proto::Job job = SmallJob(entry.mesh, 4, 2);
  job.mutable_training()->set_zero_stage(entry.zero_stage);
  job.mutable_pipeline()->set_schedule(entry.schedule);
  job.mutable_runtime()->set_chunk_bytes_max(64);
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << entry.mesh << ": " << plan.status();
  return plan.ok() ? *std::move(plan) : nullptr;
}

RankGraph GraphOf(const LogicalPlan& plan, RankId rank) {
  absl::StatusOr<RankGraph> graph = LowerToRankGraph(plan, rank);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.value_or(RankGraph());
}

std::string PlanText(const LogicalPlan& plan, int64_t rank) {
  absl::StatusOr<proto::RankPlan> lowered = LowerForRank(plan, RankId(rank));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered.ok() ? lowered->SerializeAsString() : "";
}

TEST(RankLowering, ARankGetsTheSamePlanWhoeverAsksAndWhateverWasLoweredBefore) {
  for (const Case& entry : Cases()) {
    const std::unique_ptr<LogicalPlan> plan = PlanOf(entry), other = PlanOf(entry);
    ASSERT_TRUE(plan != nullptr && other != nullptr);
    std::map<int64_t, std::string> texts;
    for (int64_t rank = 0; rank < plan->mesh.num_ranks(); ++rank)
      texts[rank] = PlanText(*plan, rank);
    for (int64_t rank = plan->mesh.num_ranks() - 1; rank >= 0; --rank) {
      EXPECT_EQ(PlanText(*other, rank), texts[rank]) << entry.mesh << " rank " << rank;
      EXPECT_EQ(PlanText(*plan, rank), texts[rank]) << entry.mesh << " rank " << rank;
    }
  }
}

TEST(RankLowering, EveryTransferHasANoteOfWhatItChangesAndBothEndsHaveTheSame) {
  for (const Case& entry : Cases()) {
    const std::unique_ptr<LogicalPlan> plan = PlanOf(entry);
    ASSERT_NE(plan, nullptr);
    std::map<EdgeId, TransferNote> sent, received;
    for (RankId rank : plan->places.all_ranks()) {
      const RankGraph graph = GraphOf(*plan, rank);
      for (const RankActor& actor : graph.actors) {
        EXPECT_EQ(actor.note >= 0, actor.role != TransferRole::kNone) << actor.name;
        if (actor.note < 0) continue;
        const TransferNote& note = graph.notes.at(actor.note);
        EXPECT_THAT(actor.name, ::testing::StartsWith(note.method));
        EXPECT_FALSE(note.why.empty()) << entry.mesh << " " << actor.name;
        for (const TransferNote::Change& change : note.changes)
          EXPECT_TRUE(change.from != change.to || note.from_stage != note.to_stage) << actor.name;
        for (TensorId tensor : actor.role == TransferRole::kSends ? actor.outputs : actor.inputs) {
          if (graph.tensors[tensor].side == proto::RegisterSpec::LOCAL) continue;
          (actor.role == TransferRole::kSends ? sent : received)[graph.tensors[tensor].edge] = note;
        }
      }
    }
    EXPECT_FALSE(sent.empty()) << entry.mesh;
    EXPECT_EQ(sent, received) << entry.mesh;
  }
}

// {from, to, edge, bytes, tokens of a step, steps}
using Message = std::tuple<RankId, RankId, EdgeId, int64_t, int64_t, int64_t>;

TEST(RankLowering, BothEndsOfEveryMessageAgreeThoughNeitherLooksAtTheOther) {
  for (const Case& entry : Cases()) {
    const std::unique_ptr<LogicalPlan> plan = PlanOf(entry);
    ASSERT_NE(plan, nullptr);
    std::multiset<Message> sent, received;
    std::set<EdgeId> edges;
    for (RankId rank : plan->places.all_ranks()) {
      for (const RankTensor& tensor : GraphOf(*plan, rank).tensors) {
        if (tensor.side == proto::RegisterSpec::LOCAL) continue;
        const bool out = tensor.side == proto::RegisterSpec::OUTBOUND;
        if (out) {
          EXPECT_TRUE(edges.insert(tensor.edge).second) << "two messages have one edge";
        }
        EXPECT_NE(tensor.peer, rank);
        (out ? sent : received)
            .insert({out ? rank : tensor.peer, out ? tensor.peer : rank, tensor.edge, tensor.bytes,
                     tensor.tokens_per_step, tensor.every});
      }
    }
    EXPECT_EQ(sent, received) << entry.mesh;
    EXPECT_FALSE(sent.empty()) << entry.mesh;
  }
}

// The links of a graph are given at both ends.
// Returns the bytes of the largest message that rank 0 receives.
int64_t LargestMessage(int64_t devices_per_host, int64_t chunk_bytes_max) {
  proto::Job job = SmallJob("dp=2", 1, 1);
  for (proto::Dim& dim : *job.mutable_graph()->mutable_dim()) {
    if (dim.name() == "deep") dim.set_size(100'000);  // a weight has 1.6 MB
  }
  job.mutable_mesh()->set_devices_per_host(devices_per_host);
  job.mutable_runtime()->set_chunk_bytes_max(chunk_bytes_max);
  absl::StatusOr<std::unique_ptr<LogicalPlan>> plan = CompileJob(job, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  absl::StatusOr<proto::RankPlan> lowered = LowerForRank(**plan, RankId(0));
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  int64_t most = 0;
  for (const proto::RegisterSpec& spec : lowered->registers()) {
    if (spec.side() == proto::RegisterSpec::INBOUND) most = std::max<int64_t>(most, spec.bytes());
  }
  return most;
}

TEST(RankLowering, MessagesBetweenHostsAreSmallerUnlessTheJobSaysHowLarge) {
  EXPECT_EQ(LargestMessage(/*devices_per_host=*/0, 0), 1 << 20);
  EXPECT_EQ(LargestMessage(2, 0), 1 << 20);
  EXPECT_EQ(LargestMessage(1, 0), 254 << 10);
  EXPECT_EQ(LargestMessage(1, 512 << 10), 512 << 10);
}

TEST(RankLowering, ActorsAndTensorsKnowEachOther) {
  for (const Case& entry : Cases()) {
    const std::unique_ptr<LogicalPlan> plan = PlanOf(entry);
    ASSERT_NE(plan, nullptr);
    for (RankId rank : plan->places.all_ranks()) {
      const RankGraph graph = GraphOf(*plan, rank);
      std::set<std::pair<ActorId, TensorId>> made, reads;
      for (ActorId a : graph.actors.ids()) {
        for (TensorId output : graph.actors[a].outputs) made.insert({a, output});
        for (TensorId input : graph.actors[a].inputs) reads.insert({a, input});
      }
      for (TensorId t : graph.tensors.ids()) {
        const RankTensor& tensor = graph.tensors[t];
        const bool is_made = tensor.producer.has_value();
        if (is_made) {
          EXPECT_EQ(made.erase({tensor.producer, t}), 1u) << tensor.name;
        }
        EXPECT_TRUE(std::is_sorted(tensor.consumers.begin(), tensor.consumers.end()));
        for (ActorId consumer : tensor.consumers)
          EXPECT_EQ(reads.erase({consumer, t}), 1u) << tensor.name;
        EXPECT_EQ(tensor.side == proto::RegisterSpec::INBOUND && is_made, false);
        EXPECT_EQ(tensor.side == proto::RegisterSpec::OUTBOUND && !tensor.consumers.empty(), false);
      }
      EXPECT_TRUE(made.empty()) << entry.mesh << " rank " << rank;
      EXPECT_TRUE(reads.empty()) << entry.mesh << " rank " << rank;
    }
  }
}

TEST(RankLowering, OneRankReportsAndOnlyStagesThatReadDataAreFed) {
  const std::unique_ptr<LogicalPlan> plan = PlanOf({"pp=2,dp=2"});
  ASSERT_NE(plan, nullptr);
  std::map<std::string, std::set<int64_t>> fed;  // stages
  std::map<std::string, std::set<RankId>> reported;
  for (RankId rank : plan->places.all_ranks()) {
    for (const RankActor& actor : GraphOf(*plan, rank).actors) {
      if (actor.kind == proto::ActorSpec::SOURCE)
        fed[actor.feed].insert(plan->places.PlaceOf(rank));
      if (actor.kind == proto::ActorSpec::SINK) reported[actor.feed].insert(rank);
    }
  }
  EXPECT_EQ(fed["x"], std::set<int64_t>{0});
  EXPECT_EQ(fed["labels"], std::set<int64_t>{1});
  EXPECT_EQ(reported["loss"], std::set<RankId>{RankId(2)}) << "the first of the last stage";
  EXPECT_EQ(reported["grad_norm"], std::set<RankId>{RankId(0)});
}

TEST(RankLowering, ShapesAreTheSameAfterASecondTime) {
  const std::unique_ptr<LogicalPlan> plan = PlanOf({"pp=2,dp=2", 3});
  ASSERT_NE(plan, nullptr);
  const std::string before = ToText(plan->stages);
  ASSERT_TRUE(ShapeStages(plan.get()).ok());
  EXPECT_EQ(ToText(plan->stages), before);
}

}  // namespace
}  // namespace weir::compiler
