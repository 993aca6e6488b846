#include "runtime/base/rank_ranges.h"

#include <initializer_list>

#include "gtest/gtest.h"
#include "runtime/base/plan_limits.h"

namespace weir {
namespace {

RankRanges Of(std::initializer_list<int> ranks) {
  RankRanges set;
  for (int rank : ranks) set.Add(RankId(rank));
  return set;
}

TEST(RankRangesTest, NeighboursAndEvenlySpacedRanksAreOneRange) {
  EXPECT_EQ(Of({3}).Text(), "3");
  EXPECT_EQ(Of({0, 1, 2, 3}).Text(), "0 to 3");
  EXPECT_EQ(Of({1, 5, 9, 13}).Text(), "1, 5, ..., 13");
  EXPECT_EQ(Of({0, 1, 2, 8, 9, 10}).Text(), "0 to 2, 8 to 10");
  EXPECT_EQ(Of({0, 1, 2, 3}).ranges().size(), 1u);
}

TEST(RankRangesTest, ASetHasTheRanksThatWereAddedAndNoOthers) {
  const RankRanges set = Of({1, 5, 9, 20, 21, 22});
  EXPECT_EQ(set.size(), 6);
  int64_t found = 0;
  for (int rank = 0; rank < 40; ++rank) found += set.Has(RankId(rank));
  EXPECT_EQ(found, 6);
  for (int rank : {1, 5, 9, 20, 21, 22}) EXPECT_TRUE(set.Has(RankId(rank))) << rank;
}

TEST(RankRangesTest, ManyRangesAreCountedAndNotNamed) {
  EXPECT_EQ(Of({0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42, 50, 51, 52}).Text(),
            "0 to 2, 10 to 12, 20 to 22, 30 to 32 and 2 more ranges");
}

TEST(RankRangesTest, ImpossibleRangesOfAFileAreRefused) {
  constexpr int64_t kMax = plan_limits::kRanksMax;
  RankRanges set;
  for (const RankRanges::Range& range : {RankRanges::Range{-1, 1, 2},
                                         {kMax, 1, 1},
                                         {0, 0, 2},
                                         {0, -1, 2},
                                         {0, 1, 0},
                                         {0, 1, kMax + 1},
                                         {0, kMax - 1, 3},
                                         {0, INT64_MAX, INT64_MAX}}) {
    EXPECT_FALSE(set.Add(range)) << range.first << ", " << range.stride << ", " << range.count;
  }
  EXPECT_EQ(set.size(), 0);
  EXPECT_TRUE(set.Add(RankRanges::Range{0, 1, kMax}));
  EXPECT_FALSE(set.Add(RankRanges::Range{0, 1, 1})) << "a set has no more ranks than a job";
}

}  // namespace
}  // namespace weir
