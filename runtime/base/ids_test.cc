#include "runtime/base/ids.h"

#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/id_vector.h"

namespace weir {
namespace {

static_assert(!std::is_convertible_v<int, ActorId>);
static_assert(!std::is_convertible_v<ActorId, int>);
static_assert(!std::is_convertible_v<ActorId, bool>);
static_assert(!std::is_constructible_v<ActorId, RegisterId>);
static_assert(!std::is_assignable_v<ActorId&, int>);
static_assert(sizeof(ActorId) == sizeof(int32_t) && sizeof(EdgeId) == sizeof(uint64_t));
static_assert(std::is_trivially_copyable_v<ActorId>);

TEST(Ids, AnIdThatWasNotGivenNamesNothing) {
  EXPECT_FALSE(ActorId().has_value());
  EXPECT_EQ(ActorId().value(), -1);
  EXPECT_FALSE(EdgeId().has_value());
  EXPECT_EQ(EdgeId().value(), 0u);
  EXPECT_TRUE(ActorId(0).has_value());
  EXPECT_TRUE(EdgeId(7).has_value());
}

TEST(Ids, TheyCompareAsTheirIntegers) {
  EXPECT_EQ(ActorId(3), ActorId(3));
  EXPECT_NE(ActorId(3), ActorId(4));
  EXPECT_LT(ActorId(), ActorId(0));
  EXPECT_GT(EdgeId(~uint64_t{0}), EdgeId(1));
}

TEST(Ids, TheyAreKeysOfMapsAndHashSets) {
  const std::map<RankId, std::string> names = {{RankId(1), "one"}, {RankId(0), "zero"}};
  EXPECT_EQ(names.begin()->second, "zero");
  const absl::flat_hash_set<RankId> ranks = {RankId(1), RankId(1), RankId(2)};
  EXPECT_EQ(ranks.size(), 2u);
  EXPECT_TRUE(ranks.contains(RankId(2)));
}

TEST(Ids, TheirTextIsTheInteger) {
  EXPECT_EQ(absl::StrCat("rank ", RankId(12), ", edge ", EdgeId(~uint64_t{0})),
            "rank 12, edge 18446744073709551615");
  EXPECT_EQ(absl::StrCat(RankId(1), RankId(2), RankId(3), RankId(4), RankId(5)), "12345");
  std::string text = "queue ";
  absl::StrAppend(&text, QueueId(3));
  EXPECT_EQ(text, "queue 3");
  std::ostringstream out;
  out << RegisterId() << " " << RegisterId(7);
  EXPECT_EQ(out.str(), "-1 7");
}

TEST(IdVector, ItsElementsAreNamedByIds) {
  IdVector<StateId, std::string> names;
  EXPECT_EQ(names.next_id(), StateId(0));
  names.push_back("a");
  names.emplace_back("b");
  names[StateId(1)] += "c";
  EXPECT_EQ(names[StateId(0)], "a");
  EXPECT_EQ(names[StateId(1)], "bc");
  EXPECT_EQ(names.next_id(), StateId(2));
  EXPECT_EQ(names, (IdVector<StateId, std::string>{"a", "bc"}));
}

TEST(IdVector, ItKnowsWhichIdsItHas) {
  const IdVector<QueueId, int> numbers(2, 0);
  EXPECT_TRUE(numbers.Has(QueueId(0)));
  EXPECT_TRUE(numbers.Has(QueueId(1)));
  EXPECT_FALSE(numbers.Has(QueueId(2)));
  EXPECT_FALSE(numbers.Has(QueueId()));
  EXPECT_FALSE(numbers.Has(QueueId(-5)));
}

TEST(IdVector, ItsIdsComeInOrder) {
  const IdVector<QueueId, int> numbers(3, 0);
  std::vector<QueueId> ids;
  for (const QueueId id : numbers.ids()) ids.push_back(id);
  EXPECT_EQ(ids, (std::vector<QueueId>{QueueId(0), QueueId(1), QueueId(2)}));
  for (const QueueId id : IdRange<QueueId>(0)) ADD_FAILURE() << id;
}

TEST(IdVector, ItHoldsBooleans) {
  IdVector<ActorId, bool> is_done(2, false);
  is_done[ActorId(1)] = true;
  EXPECT_FALSE(is_done[ActorId(0)]);
  EXPECT_TRUE(is_done[ActorId(1)]);
}

}  // namespace
}  // namespace weir
