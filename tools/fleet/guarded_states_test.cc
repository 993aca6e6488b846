#include "tools/fleet/guarded_states.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const WorkerId kWorker(3);
const Charge kCharge = {kWorker, {{RankId(6), "w", 4}, {RankId(7), "v", 2}}};

std::vector<int64_t> WholeSteps(const GuardedStates& states) {
  std::vector<int64_t> steps;
  for (const WholeCopy& copy : states.Whole()) steps.push_back(copy.step);
  return steps;
}

std::string Text(const GuardedStates& states, RankId rank, const std::string& name, int64_t begin,
                 int64_t bytes) {
  const auto read = states.Read(rank, name, begin, bytes);
  return read.ok() ? std::string(*read) : std::string(read.status().message());
}

TEST(GuardedStatesTest, ACopyCountsWhenItIsWhole) {
  GuardedStates states;
  ASSERT_TRUE(states.Expect({kCharge}).ok());
  EXPECT_EQ(states.bytes(), 12);
  ASSERT_TRUE(states.Add(kWorker, 5, "abc").ok());
  EXPECT_THAT(states.Whole(), IsEmpty());
  EXPECT_FALSE(states.Read(RankId(6), "w", 0, 1).ok());
  ASSERT_TRUE(states.Add(kWorker, 5, "dxy").ok());
  EXPECT_THAT(WholeSteps(states), ElementsAre(5));
  EXPECT_EQ(Text(states, RankId(6), "w", 1, 3), "bcd");
  EXPECT_EQ(Text(states, RankId(7), "v", 0, 2), "xy");
  EXPECT_FALSE(states.Read(RankId(7), "v", 1, 2).ok());
  EXPECT_FALSE(states.Read(RankId(7), "w", 0, 1).ok());
}

TEST(GuardedStatesTest, TheLastWholeCopyStaysUntilTheNextIsWhole) {
  GuardedStates states;
  ASSERT_TRUE(states.Expect({kCharge}).ok());
  ASSERT_TRUE(states.Add(kWorker, 5, "abcdxy").ok());
  ASSERT_TRUE(states.Add(kWorker, 9, "ABCDX").ok());
  EXPECT_EQ(Text(states, RankId(6), "w", 0, 4), "abcd");
  ASSERT_TRUE(states.Add(kWorker, 9, "Y").ok());
  EXPECT_THAT(WholeSteps(states), ElementsAre(5, 9));
  EXPECT_EQ(Text(states, RankId(6), "w", 0, 4), "ABCD");
  // A copy that is given up in the middle leaves the last one, too.
  ASSERT_TRUE(states.Add(kWorker, 12, "12").ok());
  ASSERT_TRUE(states.Add(kWorker, 15, "123456").ok());
  EXPECT_THAT(WholeSteps(states), ElementsAre(15, 9));
}

TEST(GuardedStatesTest, AnEpochKeepsTheCopiesOfItsStep) {
  GuardedStates states;
  ASSERT_TRUE(states.Expect({kCharge}).ok());
  ASSERT_TRUE(states.Add(kWorker, 5, "abcdxy").ok());
  ASSERT_TRUE(states.Add(kWorker, 9, "ABC").ok());
  states.ForgetAllBut(5);
  EXPECT_THAT(WholeSteps(states), ElementsAre(5));
  ASSERT_TRUE(states.Expect({kCharge, {WorkerId(4), {{RankId(8), "w", 1}}}}).ok());
  EXPECT_EQ(Text(states, RankId(6), "w", 0, 4), "abcd");
  // The copy of the new epoch begins at its first byte.
  ASSERT_TRUE(states.Add(kWorker, 9, "ABCDXY").ok());
  EXPECT_EQ(Text(states, RankId(7), "v", 0, 2), "XY");
  ASSERT_TRUE(states.Expect({}).ok());
  EXPECT_THAT(states.Whole(), IsEmpty());
  EXPECT_EQ(states.bytes(), 0);
}

TEST(GuardedStatesTest, MoreBytesThanACopyHasAreRefused) {
  GuardedStates states;
  ASSERT_TRUE(states.Expect({kCharge}).ok());
  EXPECT_EQ(states.Add(kWorker, 5, "abcdxyz").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(states.Add(WorkerId(1), 5, "a").code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace weir::fleet
