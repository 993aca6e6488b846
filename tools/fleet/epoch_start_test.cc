#include "tools/fleet/epoch_start.h"

#include <optional>
#include <string>

#include "gtest/gtest.h"
#include "tools/fleet/losses.h"
#include "tools/fleet/state_parts.h"

namespace weir::fleet {
namespace {

using Event = launch::FailureEvent;

Event EventOf(Event::Kind kind, int32_t worker) {
  Event event;
  event.kind = kind;
  event.worker = WorkerId(worker);
  return event;
}

RecoveryPlan PlanOf(int64_t step) {
  RecoveryPlan plan;
  plan.step = step;
  return plan;
}

TEST(EpochStartTest, MemoryCountsUnlessFilesAreOfALaterStep) {
  EXPECT_TRUE(ChooseStart(PlanOf(5), 4).has_states);
  EXPECT_EQ(ChooseStart(PlanOf(5), 4).step, 5);
  EXPECT_TRUE(ChooseStart(PlanOf(4), 4).has_states);
  EXPECT_FALSE(ChooseStart(PlanOf(3), 4).has_states);
  EXPECT_EQ(ChooseStart(PlanOf(3), 4).step, 4);
  EXPECT_FALSE(ChooseStart(PlanOf(-1), 0).has_states);
}

TEST(EpochStartTest, AWorkerGoesOnWithTheStatesOfThatStepAndNoOthers) {
  const WorkerStanding standing{3, 5};
  EXPECT_EQ(*ChooseLeaving(standing, true, 3), Leaving::kKeepsCopy);
  EXPECT_EQ(*ChooseLeaving(standing, true, 5), Leaving::kCopiesRanks);
  EXPECT_EQ(*ChooseLeaving(standing, false, 3), Leaving::kForgetsCopy);
  EXPECT_EQ(ChooseLeaving(standing, true, 4).status().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(ChooseLeaving({}, true, 0).ok());
}

TEST(LossesTest, WhoIsLostOrHasNotComeStartsAnew) {
  const std::vector<Event> events = {EventOf(Event::Kind::kBroken, 0),
                                     EventOf(Event::Kind::kLost, 2), EventOf(Event::Kind::kExit, 2),
                                     EventOf(Event::Kind::kFrozen, 1)};
  const std::vector<WorkerId> lost = LostWorkers(events);
  EXPECT_EQ(lost, (std::vector<WorkerId>{WorkerId(1), WorkerId(2)}));
  IdVector<WorkerId, bool> is_there = {false, true, false, true};
  EXPECT_EQ(WorkersToReplace(lost, is_there),
            (std::vector<WorkerId>{WorkerId(0), WorkerId(1), WorkerId(2)}));
}

TEST(LossesTest, ALossDuringTheRecoveryStays) {
  std::vector<Event> events = {EventOf(Event::Kind::kExit, 1), EventOf(Event::Kind::kExit, 3),
                               EventOf(Event::Kind::kBroken, 2)};
  DropSettled({WorkerId(1)}, &events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].worker, WorkerId(3));
}

TEST(StatePartsTest, AStateIsGivenOutWhenItIsWhole) {
  StateParts parts;
  EXPECT_EQ(*parts.Add(RankId(0), "w", 0, "ab", 4), std::nullopt);
  EXPECT_EQ(*parts.Add(RankId(1), "w", 0, "xy", 2), std::optional<std::string>("xy"));
  EXPECT_EQ(*parts.Add(RankId(0), "w", 2, "cd", 4), std::optional<std::string>("abcd"));
}

TEST(StatePartsTest, AShardIsGivenOutWhenItsLastPartHasCome) {
  StateParts parts;
  const TensorSlice shard{DType::kI32, {2, 2}, {0, 2}, {2, 4}};
  const TensorSlice left{DType::kI32, {2, 1}, {0, 2}, {2, 4}};
  const TensorSlice right{DType::kI32, {2, 1}, {0, 3}, {2, 4}};
  const auto first = parts.AddPart(RankId(0), "w", right, shard, "bbbbdddd");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->has_value());
  const auto whole = parts.AddPart(RankId(0), "w", left, shard, "aaaacccc");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->value_or(""), "aaaabbbbccccdddd");
  const TensorSlice outside{DType::kI32, {2, 1}, {0, 1}, {2, 4}};
  EXPECT_FALSE(parts.AddPart(RankId(0), "w", outside, shard, "aaaacccc").ok());
  EXPECT_FALSE(parts.AddPart(RankId(0), "w", left, shard, "aaaa").ok()) << "too few bytes";
}

TEST(StatePartsTest, PartsComeInOrderAndFit) {
  StateParts parts;
  EXPECT_FALSE(parts.Add(RankId(0), "w", 2, "cd", 4).ok());
  EXPECT_FALSE(parts.Add(RankId(0), "w", 0, "abcde", 4).ok());
  EXPECT_TRUE(parts.Add(RankId(0), "w", 0, "ab", 4).ok());
  parts.Clear();
  EXPECT_TRUE(parts.Add(RankId(0), "w", 0, "ab", 4).ok());
}

TEST(LossesTest, ALossOfAnEarlierEpochCountsUnlessTheProcessHasStartedAnewSince) {
  ProcessEpochs processes(3, 1);
  EXPECT_TRUE(processes.IsOfProcess(WorkerId(1), 1));
  processes.Start({WorkerId(1)}, 2);
  EXPECT_FALSE(processes.IsOfProcess(WorkerId(1), 1)) << "its old process was lost";
  EXPECT_TRUE(processes.IsOfProcess(WorkerId(1), 2));
  EXPECT_TRUE(processes.IsOfProcess(WorkerId(2), 1))
      << "the coordinator has lost it before it heard of the new epoch";
  processes.Start({WorkerId(0)}, 3);
  EXPECT_TRUE(processes.IsOfProcess(WorkerId(1), 2)) << "no later epoch has started it anew";
}

}  // namespace
}  // namespace weir::fleet
