#include "tools/fleet/wait_account.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const actors::Wait kHere = {{RankId(0), "backward"}, 3, 6, actors::ActorState::kWaitsForInput, "x",
                            {{RankId(0), "move x"}}};
const actors::Wait kElsewhere = {
    {RankId(0), "move x"}, 3, 6, actors::ActorState::kWaitsForInput, "move x rank 1 to 0",
    {{RankId(1), ""}}};
const actors::Wait kNamed = {
    {RankId(0), "move x"},  3, 6, actors::ActorState::kWaitsForInput, "x 1 to 0",
    {{RankId(1), "send x"}}};
const actors::Wait kBack = {
    {RankId(1), "send x"},    3, 6, actors::ActorState::kWaitsForCredit, "x 1 to 0",
    {{RankId(0), "backward"}}};
const actors::Wait kRunning = {{RankId(1), "send x"}, 3, 6, actors::ActorState::kRunning, "", {}};
const actors::Wait kTurn = {{RankId(1), "it's"},
                            0,
                            9,
                            actors::ActorState::kWaitsForStream,
                            "",
                            {{RankId(1), "send x"}, {RankId(2), ""}}};

std::vector<std::string> LinesOf(const std::vector<actors::Wait>& waits) {
  std::vector<std::string> lines;
  for (const actors::Wait& wait : waits) lines.push_back(actors::ToLine(wait));
  return lines;
}

// Returns the waits as they arrive at the starter.
std::vector<actors::Wait> Sent(const std::vector<actors::Wait>& waits,
                               size_t bytes_max = kAccountBytesMax) {
  proto::WaitAccount arrived;
  EXPECT_TRUE(arrived.ParseFromString(AccountOf(waits, bytes_max).SerializeAsString()));
  std::optional<std::vector<actors::Wait>> read = WaitsOf(arrived);
  EXPECT_TRUE(read.has_value());
  return read.value_or(std::vector<actors::Wait>());
}

TEST(WaitAccountTest, WaitsOfEveryKindArriveAsTheyWere) {
  EXPECT_THAT(
      LinesOf(Sent({kHere, kElsewhere, kBack, kRunning, kTurn})),
      ElementsAre("rank 0 actor 'backward': 3 of 6 acts, waits for input 'x', held by actor "
                  "'move x' on rank 0",
                  "rank 0 actor 'move x': 3 of 6 acts, waits for input 'move x rank 1 to "
                  "0', held by rank 1",
                  "rank 1 actor 'send x': 3 of 6 acts, waits for credit 'x 1 to 0', held "
                  "by actor 'backward' on rank 0",
                  "rank 1 actor 'send x': 3 of 6 acts, running",
                  "rank 1 actor 'it's': 0 of 9 acts, waits for stream, its turn there, "
                  "held by actor 'send x' on rank 1 and rank 2"));
  EXPECT_THAT(Sent({}), IsEmpty());
}

TEST(WaitAccountTest, TheAccountsOfAllRanksShowTheRing) {
  std::vector<actors::Wait> waits = Sent({kHere, kNamed});
  for (const actors::Wait& wait : Sent({kBack})) waits.push_back(wait);
  EXPECT_THAT(actors::ExplainWaits(waits),
              ElementsAre("a ring of 3 actors that wait for each other:",
                          "  rank 0 actor 'backward': 3 of 6 acts, waits for input 'x', held by "
                          "actor 'move x' on rank 0",
                          "  rank 0 actor 'move x': 3 of 6 acts, waits for input 'x 1 to 0', held "
                          "by actor 'send x' on rank 1",
                          "  rank 1 actor 'send x': 3 of 6 acts, waits for credit 'x 1 to 0', held "
                          "by actor 'backward' on rank 0"));
}

TEST(WaitAccountTest, WithoutARingTheActorThatAllWaitForIsNamed) {
  EXPECT_THAT(
      actors::ExplainWaits(Sent({kHere, kNamed, kRunning})),
      ElementsAre(
          "in the end 2 of 3 actors wait for actor 'send x' on rank 1: 3 of 6 acts, running"));
  EXPECT_THAT(actors::ExplainWaits(Sent({kHere, kNamed})),
              ElementsAre("in the end 2 of 2 actors wait for actor 'send x' on rank 1, which could "
                          "not say what it does"));
  EXPECT_THAT(actors::ExplainWaits({}), IsEmpty());
}

TEST(WaitAccountTest, AnAccountHasABoundAndCountsWhatHasNoRoom) {
  std::vector<actors::Wait> waits;
  for (int i = 0; i < 1000; ++i) {
    waits.push_back({{RankId(i), absl::StrCat("actor ", i)},
                     i,
                     1000,
                     actors::ActorState::kWaitsForInput,
                     absl::StrCat("register ", i),
                     {{RankId(i + 1), absl::StrCat("actor ", i + 1)}}});
  }
  for (size_t bytes_max : {0, 10, 100, 1000, 10'000, 30'000}) {
    const proto::WaitAccount account = AccountOf(waits, bytes_max);
    EXPECT_LE(account.ByteSizeLong(), std::max<size_t>(bytes_max, 8));
    EXPECT_EQ(account.wait_size() + account.num_left_out(), 1000);
    const std::vector<actors::Wait> read = Sent(waits, bytes_max);
    ASSERT_EQ(read.size(), static_cast<size_t>(account.wait_size()));
    for (size_t i = 0; i < read.size(); ++i)
      EXPECT_EQ(actors::ToLine(read[i]), actors::ToLine(waits[i]));
  }
  EXPECT_GT(AccountOf(waits, 30'000).wait_size(), 300);
  EXPECT_EQ(AccountOf(waits).num_left_out(), 0);
}

TEST(WaitAccountTest, AnAccountThatContradictsItselfIsNone) {
  for (int32_t index : {-1, 2}) {
    proto::WaitAccount account;
    account.add_name("a");
    account.add_wait()->mutable_who()->set_actor(index);
    EXPECT_FALSE(WaitsOf(account).has_value()) << index;
    account.mutable_wait(0)->mutable_who()->set_actor(1);
    EXPECT_TRUE(WaitsOf(account).has_value());
    account.mutable_wait(0)->set_register_name(index);
    EXPECT_FALSE(WaitsOf(account).has_value()) << index;
  }
}

TEST(WaitAccountTest, OnlyWaitsForOtherWorkersAreTold) {
  EXPECT_THAT(WaitsForOthers({kHere, kElsewhere, kRunning}, {RankId(0)}),
              ElementsAre(actors::ToLine(kElsewhere)));
  EXPECT_THAT(WaitsForOthers({kHere, kElsewhere}, {RankId(0), RankId(1)}), IsEmpty());
  EXPECT_THAT(WaitsForOthers({}, {RankId(0)}), IsEmpty());
}

TEST(WaitAccountTest, OfManyAFewAreToldAndTheRestCounted) {
  const std::vector<std::string> lines =
      WaitsForOthers(std::vector<actors::Wait>(10, kElsewhere), {RankId(0)});
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines.back(), "and 4 more");
}

}  // namespace
}  // namespace weir::fleet
