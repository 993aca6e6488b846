#include "actors/engine/step_account.h"

#include <cstdint>
#include <numeric>

#include "gtest/gtest.h"

namespace weir::actors {
namespace {

constexpr QueueId kFirst{0}, kSecond{1};

int64_t Part(const StepAccount& account, TimePart part) {
  return account.parts()[static_cast<size_t>(part)];
}

int64_t Sum(const StepAccount& account) {
  const TimeParts parts = account.parts();
  return std::accumulate(parts.begin(), parts.end(), int64_t{0});
}

TEST(StepAccountTest, ThePartsAreTheTimeFromTheBeginOfARunToItsLastAct) {
  StepAccount account(1, StepAccount::TakesAhead::kNo);
  account.BeginRun(1000);
  account.AddAct(kFirst, TimePart::kData, TimePart::kBetweenActs, 900, 1010, 1030);
  account.AddAct(kFirst, TimePart::kCompute, TimePart::kOtherRanks, 1100, 1105, 1300);
  EXPECT_EQ(Part(account, TimePart::kBetweenActs), 10) << "the act was ready before";
  EXPECT_EQ(Part(account, TimePart::kData), 20);
  EXPECT_EQ(Part(account, TimePart::kOtherRanks), 75) << "the wait ends with the start";
  EXPECT_EQ(Part(account, TimePart::kCompute), 195);
  EXPECT_EQ(Sum(account), 300);
  EXPECT_EQ(account.busy_ticks(), 215);
}

TEST(StepAccountTest, TimeBetweenTwoRunsIsNotCounted) {
  StepAccount account(1, StepAccount::TakesAhead::kNo);
  account.BeginRun(0);
  account.AddAct(kFirst, TimePart::kCompute, TimePart::kBetweenActs, 0, 0, 10);
  account.BeginRun(1'000'000);
  account.AddAct(kFirst, TimePart::kCommunication, TimePart::kCredit, 1'000'004, 1'000'004,
                 1'000'010);
  EXPECT_EQ(Sum(account), 20);
  EXPECT_EQ(Part(account, TimePart::kCredit), 4);
}

TEST(StepAccountTest, AnActOnADeviceThatTakesActsAheadMayHaveWhatItNeedsAndWait) {
  StepAccount account(2, StepAccount::TakesAhead::kYes);
  account.BeginRun(0);
  account.AddAct(kFirst, TimePart::kCompute, TimePart::kOwnInput, 40, 100, 200);
  account.AddAct(kSecond, TimePart::kCompute, TimePart::kBetweenActs, 0, 0, 200);
  EXPECT_EQ(Part(account, TimePart::kOwnInput), 20) << "the mean of two queues";
  EXPECT_EQ(Part(account, TimePart::kBetweenActs), 30);
  EXPECT_EQ(Part(account, TimePart::kCompute), 150);
  EXPECT_EQ(account.busy_ticks(), 300) << "the sum of both queues";
}

// Clocks of devices are not those of hosts.
TEST(StepAccountTest, TimesThatOverlapAreCountedOnce) {
  StepAccount account(1, StepAccount::TakesAhead::kYes);
  account.BeginRun(100);
  account.AddAct(kFirst, TimePart::kCompute, TimePart::kCredit, 0, 90, 150);
  account.AddAct(kFirst, TimePart::kCompute, TimePart::kCredit, 0, 140, 145);
  account.AddAct(kFirst, TimePart::kCompute, TimePart::kCredit, 0, 140, 160);
  EXPECT_EQ(Part(account, TimePart::kCompute), 60);
  EXPECT_EQ(Sum(account), 60);
}

}  // namespace
}  // namespace weir::actors
