#include "tools/fleet/buddy_choice.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;
using Hosts = IdVector<WorkerId, std::string>;

// Returns the numbers of the buddies; -1: none.
std::vector<int> Buddies(const Hosts& host_of) {
  std::vector<int> numbers;
  for (const std::optional<WorkerId>& buddy : ChooseBuddies(host_of))
    numbers.push_back(buddy.value_or(WorkerId()).value());
  return numbers;
}

TEST(BuddyChoiceTest, OneProcessHasNoBuddy) { EXPECT_THAT(Buddies({"a"}), ElementsAre(-1)); }

TEST(BuddyChoiceTest, TwoProcessesAreBuddiesOfEachOther) {
  EXPECT_THAT(Buddies({"a", "a"}), ElementsAre(1, 0));
  EXPECT_THAT(Buddies({"a", "b"}), ElementsAre(1, 0));
}

TEST(BuddyChoiceTest, ProcessesOfOneHostAreARing) {
  EXPECT_THAT(Buddies({"", "", "", ""}), ElementsAre(1, 2, 3, 0));
}

TEST(BuddyChoiceTest, TheBuddyIsOnAnotherHost) {
  EXPECT_THAT(Buddies({"a", "a", "b", "b"}), ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(Buddies({"a", "b", "a", "b"}), ElementsAre(1, 0, 3, 2));
  // The worker of b has two charges, because each of a is to have its buddy on another host.
  EXPECT_THAT(Buddies({"a", "a", "b"}), ElementsAre(2, 2, 0));
  // The host with most workers comes first, wherever it stands in the list.
  EXPECT_THAT(Buddies({"a", "b", "c", "c"}), ElementsAre(2, 3, 0, 1));
}

TEST(BuddyChoiceTest, TheLoadIsEvenWhereverTheWorkersAre) {
  std::mt19937 chance(16);
  for (int round = 0; round < 2000; ++round) {
    Hosts host_of(2 + chance() % 11);
    const unsigned num_hosts = 1 + chance() % 5;
    for (std::string& host : host_of)
      host = std::string(1, static_cast<char>('a' + chance() % num_hosts));
    std::map<std::string, int64_t> on_host;
    for (const std::string& host : host_of) ++on_host[host];
    const auto buddies = ChooseBuddies(host_of);
    IdVector<WorkerId, int64_t> load(host_of.size(), 0);
    for (const WorkerId worker : host_of.ids()) {
      ASSERT_TRUE(buddies[worker].has_value());
      EXPECT_NE(*buddies[worker], worker);
      if (on_host.size() > 1) {
        EXPECT_NE(host_of[*buddies[worker]], host_of[worker]);
      }
      ++load[*buddies[worker]];
    }
    int64_t most = 0;
    for (const auto& [host, count] : on_host) most = std::max(most, count);
    const int64_t others = static_cast<int64_t>(host_of.size()) - most;
    const int64_t needed = others == 0 ? 1 : std::max<int64_t>(1, (most + others - 1) / others);
    EXPECT_LE(*std::max_element(load.begin(), load.end()), needed);
  }
}

TEST(BuddyChoiceTest, WorkersThatLeftTheJobAreNobodysBuddies) {
  const std::vector<WorkerId> workers = {WorkerId(0), WorkerId(2), WorkerId(3)};
  const auto buddy_of = ChooseBuddiesOf(workers, Hosts{"a", "a", "b", "b"});
  EXPECT_EQ(buddy_of[WorkerId(0)], WorkerId(2));
  EXPECT_FALSE(buddy_of[WorkerId(1)].has_value());
  EXPECT_EQ(buddy_of[WorkerId(2)], WorkerId(0));
  EXPECT_EQ(buddy_of[WorkerId(3)], WorkerId(0));
}

TEST(BuddyChoiceTest, CopiesNeedAnotherProcessAndAStateThatEndsWithOne) {
  IdVector<WorkerId, std::vector<GuardedShard>> lone(2);
  EXPECT_EQ(ChooseNeed({WorkerId(0)}, lone), BuddyNeed::kOneProcess);
  EXPECT_EQ(ChooseNeed({WorkerId(0), WorkerId(1)}, lone), BuddyNeed::kAllReplicas);
  lone[WorkerId(1)].push_back({RankId(1), "w", 4});
  EXPECT_EQ(ChooseNeed({WorkerId(0), WorkerId(1)}, lone), BuddyNeed::kCopies);
}

}  // namespace
}  // namespace weir::fleet
