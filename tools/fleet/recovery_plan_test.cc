#include "tools/fleet/recovery_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/rect.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kNone = -1;

bool Anywhere(int64_t /*step*/) { return true; }

// Returns the shard of `part` of 2 parts of a state of 8 elements of 4 bytes.
HeldState Half(const std::string& name, int64_t part) {
  return {name, {DType::kF32, {4}, {4 * part}, {8}}};
}

// Four workers with one rank each on dp=2,tp=2: ranks 0 and 2 hold the same halves, and so do ranks
// 1 and 3.
const IdVector<WorkerId, std::vector<RankId>> kRanksOf = {
    {RankId(0)}, {RankId(1)}, {RankId(2)}, {RankId(3)}};
const IdVector<RankId, std::vector<HeldState>> kShardsOf = {
    {Half("w", 0)}, {Half("w", 1)}, {Half("w", 0)}, {Half("w", 1)}};

RecoveryPlan Plan(const IdVector<WorkerId, WorkerStanding>& standings) {
  return PlanRecovery(standings, kRanksOf, kShardsOf, {}, Anywhere);
}

TEST(RecoveryPlanTest, ANewWorkerTakesItsShardsFromItsReplica) {
  const RecoveryPlan plan = Plan({{7, kNone}, {kNone, kNone}, {7, kNone}, {7, kNone}});
  EXPECT_EQ(plan.step, 7);
  EXPECT_THAT(plan.has_states, ElementsAre(true, false, true, true));
  ASSERT_EQ(plan.transfers.size(), 1u);
  EXPECT_EQ(plan.transfers[0].from, RankId(3));
  EXPECT_EQ(plan.transfers[0].to, RankId(1));
  EXPECT_EQ(plan.transfers[0].name, "w");
  EXPECT_EQ(plan.bytes, 16);
}

TEST(RecoveryPlanTest, RanksAtRestAreAsGoodAsACopyAndTheLastCommonStepCounts) {
  // Worker 2 has not begun the steps before which the others copied their states.
  EXPECT_EQ(Plan({{9, kNone}, {kNone, kNone}, {7, 9}, {9, kNone}}).step, 9);
  // All rest after step 12, though their copies are older.
  EXPECT_EQ(Plan({{9, 12}, {kNone, kNone}, {9, 12}, {9, 12}}).step, 12);
  // Worker 0 rests after step 12; worker 2 was in the middle of it. Nobody else holds the half of
  // workers 0 and 2, so worker 2 can take it from worker 0, but worker 3 has no step 12.
  EXPECT_EQ(Plan({{9, 12}, {kNone, kNone}, {9, kNone}, {9, kNone}}).step, 9);
}

TEST(RecoveryPlanTest, AWorkerWithOtherStatesTakesThoseOfItsReplicaIfThatIsLater) {
  const RecoveryPlan plan = Plan({{9, 12}, {kNone, kNone}, {9, kNone}, {9, 12}});
  EXPECT_EQ(plan.step, 12);
  EXPECT_THAT(plan.has_states, ElementsAre(true, false, false, true));
  EXPECT_EQ(plan.transfers.size(), 2u);
}

TEST(RecoveryPlanTest, WithoutAReplicaMemoryDoesNotSuffice) {
  const RecoveryPlan plan = Plan({{7, kNone}, {kNone, kNone}, {7, kNone}, {kNone, kNone}});
  EXPECT_EQ(plan.step, kNone);
  EXPECT_THAT(plan.transfers, IsEmpty());
}

// Two workers with one rank each on pp=2: nobody holds what the other holds. A state "t" is on
// both.
const IdVector<WorkerId, std::vector<RankId>> kStagesRanksOf = {{RankId(0)}, {RankId(1)}};
const IdVector<RankId, std::vector<HeldState>> kStagesShardsOf = {{Half("a", 0), Half("t", 0)},
                                                                  {Half("b", 0), Half("t", 0)}};

LoneShardsOf StagesLone() { return LoneShards(kStagesRanksOf, kStagesShardsOf, {"", ""}); }

WorkerStanding Kept(int64_t last, int64_t older, std::vector<WholeCopy> guarded) {
  WorkerStanding standing;
  standing.kept_step = last;
  standing.older_kept_step = older;
  standing.guarded = std::move(guarded);
  return standing;
}

TEST(RecoveryPlanTest, LoneShardsAreThoseThatNoOtherWorkerHolds) {
  const auto lone = LoneShards(kStagesRanksOf, kStagesShardsOf, {"", ""});
  ASSERT_EQ(lone[WorkerId(0)].size(), 1u);
  EXPECT_EQ(lone[WorkerId(0)][0].name, "a");
  EXPECT_EQ(lone[WorkerId(1)][0].name, "b");
  EXPECT_EQ(lone[WorkerId(1)][0].bytes, 16);
  for (const auto& none : LoneShards(kRanksOf, kShardsOf, {"", "", "", ""}))
    EXPECT_THAT(none, IsEmpty());
  // Replicas in one process die together.
  const IdVector<WorkerId, std::vector<RankId>> pairs = {{RankId(0), RankId(2)},
                                                         {RankId(1), RankId(3)}};
  const auto once = LoneShards(pairs, kShardsOf, {"", ""});
  ASSERT_EQ(once[WorkerId(1)].size(), 1u);
  EXPECT_EQ(once[WorkerId(1)][0].rank, RankId(1));
}

TEST(RecoveryPlanTest, ShardsWithoutAReplicaComeFromTheBuddy) {
  // The copies of step 12 were under way: the buddy has those of step 8.
  const RecoveryPlan plan = PlanRecovery({Kept(12, 8, {{WorkerId(1), 8}}), Kept(kNone, kNone, {})},
                                         kStagesRanksOf, kStagesShardsOf, StagesLone(), Anywhere);
  EXPECT_EQ(plan.step, 8);
  EXPECT_THAT(plan.has_states, ElementsAre(true, false));
  ASSERT_EQ(plan.transfers.size(), 2u);
  EXPECT_EQ(plan.transfers[0].name, "b");
  EXPECT_EQ(plan.transfers[0].source, Transfer::Source::kBuddy);
  EXPECT_EQ(plan.transfers[0].from, RankId(1));
  EXPECT_EQ(plan.transfers[0].to, RankId(1));
  EXPECT_EQ(plan.transfers[0].giver, WorkerId(0));
  EXPECT_EQ(plan.transfers[1].name, "t");
  EXPECT_EQ(plan.transfers[1].source, Transfer::Source::kReplica);
  EXPECT_EQ(plan.transfers[1].from, RankId(0));
  EXPECT_EQ(plan.bytes, 32);
}

TEST(RecoveryPlanTest, ALostHostTakesBothReplicasWithItAndABuddyOfOneHasTheShard) {
  // Workers 0 and 1 are on one host, and workers 2 and 3 on another.
  const IdVector<RankId, std::vector<HeldState>> shards_of = {
      {Half("a", 0)}, {Half("a", 0)}, {Half("b", 0), Half("c", 0)}, {Half("b", 0), Half("c", 0)}};
  const LoneShardsOf lone = LoneShards(kRanksOf, shards_of, {"h", "h", "i", "i"});
  for (const WorkerId worker : {WorkerId(2), WorkerId(3)})
    EXPECT_EQ(lone[worker].size(), 1u) << "each replica has a copy made of a part";
  const RecoveryPlan plan =
      PlanRecovery({Kept(8, 4, {{WorkerId(2), 8}}), Kept(8, 4, {{WorkerId(3), 8}}), {}, {}},
                   kRanksOf, shards_of, lone, Anywhere);
  EXPECT_EQ(plan.step, 8);
  ASSERT_EQ(plan.transfers.size(), 4u);
  for (const Transfer& transfer : plan.transfers) {
    EXPECT_EQ(transfer.source, Transfer::Source::kBuddy);
    EXPECT_EQ(transfer.from, transfer.name == "b" ? RankId(2) : RankId(3));
    EXPECT_EQ(transfer.giver, transfer.name == "b" ? WorkerId(0) : WorkerId(1));
  }
  // Replicas on two hosts need no copy.
  for (const auto& none : LoneShards(kRanksOf, shards_of, {"h", "i", "h", "i"}))
    EXPECT_THAT(none, IsEmpty());
}

TEST(RecoveryPlanTest, TheLastCopyThatIsWholeEverywhereCounts) {
  EXPECT_EQ(PlanRecovery({Kept(12, 8, {{WorkerId(1), 8}, {WorkerId(1), 12}}), {}}, kStagesRanksOf,
                         kStagesShardsOf, StagesLone(), Anywhere)
                .step,
            12);
  // The survivor no longer has the step of the copy.
  const RecoveryPlan plan = PlanRecovery({Kept(16, 12, {{WorkerId(1), 8}}), {}}, kStagesRanksOf,
                                         kStagesShardsOf, StagesLone(), Anywhere);
  EXPECT_EQ(plan.step, kNone);
  EXPECT_THAT(plan.without_states, IsEmpty());
}

TEST(RecoveryPlanTest, AWorkerThatIsLostWithItsBuddyIsWithoutStates) {
  const IdVector<WorkerId, std::vector<RankId>> ranks_of = {{RankId(0)}, {RankId(1)}, {RankId(2)}};
  const IdVector<RankId, std::vector<HeldState>> shards_of = {
      {Half("a", 0)}, {Half("b", 0)}, {Half("c", 0)}};
  // Worker 1 is the buddy of worker 0, and worker 2 that of worker 1.
  const RecoveryPlan plan =
      PlanRecovery({{}, {}, Kept(8, 4, {{WorkerId(1), 8}})}, ranks_of, shards_of,
                   LoneShards(ranks_of, shards_of, {"", "", ""}), Anywhere);
  EXPECT_EQ(plan.step, kNone);
  EXPECT_THAT(plan.without_states, ElementsAre(WorkerId(0)));
}

TEST(RecoveryPlanTest, NoRunBeginsBetweenTheGradientsOfAnUpdate) {
  const auto after_even = [](int64_t step) { return step % 2 == 0; };
  EXPECT_EQ(
      PlanRecovery({{8, 9}, {kNone, kNone}, {8, 9}, {8, 9}}, kRanksOf, kShardsOf, {}, after_even)
          .step,
      8);
}

// Returns the shards of a state of 24 x 10 elements that `ranks` ranks hold, cut along an axis.
std::vector<HeldState> Cut(int64_t ranks, size_t axis) {
  const Shape whole = {24, 10};
  std::vector<HeldState> shards;
  for (int64_t i = 0; i < ranks; ++i) {
    TensorSlice slice{DType::kI32, whole, {0, 0}, whole};
    slice.offset[axis] = whole[axis] * i / ranks;
    slice.shape[axis] = whole[axis] * (i + 1) / ranks - slice.offset[axis];
    shards.push_back({"w", slice});
  }
  return shards;
}

// Returns the shard's elements, each with its place in the whole.
std::vector<int32_t> ValuesOf(const TensorSlice& slice) {
  std::vector<int32_t> values;
  for (int64_t row = 0; row < slice.shape[0]; ++row) {
    for (int64_t column = 0; column < slice.shape[1]; ++column) {
      values.push_back(static_cast<int32_t>((slice.offset[0] + row) * slice.global_shape[1] +
                                            slice.offset[1] + column));
    }
  }
  return values;
}

// Four workers with one rank each. Each rank has a quarter of "w", and its buddy is the next
// worker.
struct Quarters {
  explicit Quarters(size_t axis) {
    for (int32_t rank = 0; rank < 4; ++rank) {
      layout.ranks_of.push_back({RankId(rank)});
      layout.shards_of.push_back({Cut(4, axis)[static_cast<size_t>(rank)]});
      standings.push_back(
          Kept(8, 4, {{WorkerId((rank + 3) % 4), 8}, {WorkerId((rank + 3) % 4), 4}}));
    }
    layout.lone = LoneShards(layout.ranks_of, layout.shards_of, {"", "", "", ""});
  }
  StateLayout layout;
  IdVector<WorkerId, WorkerStanding> standings;
};

TEST(RecoveryPlanTest, AnotherMeshGetsEveryElementFromWhoHasIt) {
  for (const size_t axis : {0u, 1u}) {
    for (const size_t to_axis : {0u, 1u}) {
      for (const int32_t lost : {0, 1, 2, 3}) {
        Quarters old(axis);
        old.standings[WorkerId(lost)] = {};
        const RecoveryPlan plan = PlanForOtherShards(old.standings, old.layout, Anywhere);
        ASSERT_EQ(plan.step, 8);
        // Two of the survivors hold a half each.
        IdVector<WorkerId, std::vector<RankId>> to_ranks_of(4);
        to_ranks_of[WorkerId((lost + 1) % 4)] = {RankId(0)};
        to_ranks_of[WorkerId((lost + 2) % 4)] = {RankId(1)};
        IdVector<RankId, std::vector<HeldState>> to_shards_of;
        for (const HeldState& shard : Cut(2, to_axis)) to_shards_of.push_back({shard});
        const auto transfers =
            PlanTransfers(old.standings, old.layout, 8, to_ranks_of, to_shards_of);
        ASSERT_TRUE(transfers.has_value());
        IdVector<RankId, std::vector<int32_t>> filled;
        for (const auto& shards : to_shards_of)
          filled.push_back(
              std::vector<int32_t>(static_cast<size_t>(shards[0].slice.num_elements()), -1));
        int64_t bytes = 0;
        for (const Transfer& transfer : *transfers) {
          EXPECT_NE(transfer.giver, WorkerId(lost));
          EXPECT_EQ(transfer.from == RankId(lost), transfer.source == Transfer::Source::kBuddy);
          ASSERT_TRUE(transfer.moved.has_value());
          const std::vector<int32_t> given = ValuesOf(transfer.moved->given);
          CopyPart(transfer.moved->part, transfer.moved->given,
                   reinterpret_cast<const char*>(given.data()), transfer.moved->taken,
                   reinterpret_cast<char*>(filled[transfer.to].data()));
          bytes += transfer.bytes;
        }
        for (const RankId rank : filled.ids())
          EXPECT_EQ(filled[rank], ValuesOf(to_shards_of[rank][0].slice));
        EXPECT_EQ(bytes, 24 * 10 * 4) << "each element moves once";
      }
    }
  }
}

TEST(RecoveryPlanTest, WhatAWorkerHasItselfComesFromNobodyElse) {
  IdVector<WorkerId, WorkerStanding> standings = {{}, Kept(6, kNone, {}), Kept(6, kNone, {}), {}};
  const StateLayout layout{kRanksOf, kShardsOf, {}};
  const RecoveryPlan plan = PlanForOtherShards(standings, layout, Anywhere);
  EXPECT_EQ(plan.step, 6);
  // Worker 2 becomes rank 0, and worker 1 rank 1.
  const auto transfers = PlanTransfers(standings, layout, 6, {{}, {RankId(1)}, {RankId(0)}, {}},
                                       {{Half("w", 0)}, {Half("w", 1)}});
  ASSERT_TRUE(transfers.has_value());
  ASSERT_EQ(transfers->size(), 2u);
  for (const Transfer& transfer : *transfers)
    EXPECT_EQ(transfer.giver, transfer.to == RankId(0) ? WorkerId(2) : WorkerId(1));
}

TEST(RecoveryPlanTest, AnElementThatNobodyHasLeavesTheStepToTheFiles) {
  Quarters old(0);
  old.standings[WorkerId(1)] = {};
  old.standings[WorkerId(2)] = {};  // the buddy of worker 1
  const RecoveryPlan plan = PlanForOtherShards(old.standings, old.layout, Anywhere);
  EXPECT_EQ(plan.step, kNone);
  EXPECT_THAT(plan.without_states, ElementsAre(WorkerId(1)));
  EXPECT_FALSE(PlanTransfers(old.standings, old.layout, 8, {{RankId(0)}, {}, {}, {}}, {Cut(1, 0)})
                   .has_value());
  // A step of which one part is a copy under way.
  Quarters torn(0);
  torn.standings[WorkerId(1)] = {};
  torn.standings[WorkerId(2)].guarded = {{WorkerId(1), 4}};
  EXPECT_EQ(PlanForOtherShards(torn.standings, torn.layout, Anywhere).step, 4);
}

TEST(RecoveryPlanTest, BatchesCutWhatIsLargeAndKeepTheOrder) {
  const std::vector<Transfer> transfers = {{RankId(0), RankId(1), "a", 5},
                                           {RankId(0), RankId(1), "empty", 0},
                                           {RankId(2), RankId(1), "b", 4}};
  const auto batches = BatchesOf(transfers, 3);
  std::vector<std::string> found;
  for (const auto& batch : batches) {
    int64_t bytes = 0;
    for (const StateMove& move : batch) {
      found.push_back(move.name + "@" + std::to_string(move.begin) + "+" +
                      std::to_string(move.bytes));
      bytes += move.bytes;
    }
    EXPECT_LE(bytes, 3);
  }
  EXPECT_EQ(batches.size(), 3u);
  EXPECT_THAT(found, ElementsAre("a@0+3", "a@3+2", "empty@0+0", "b@0+1", "b@1+3"));
}

}  // namespace
}  // namespace weir::fleet
