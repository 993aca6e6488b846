#include "tools/launch/placement.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::launch {
namespace {

using ::testing::ElementsAre;

TEST(PlacementTest, TheFirstProcessesHoldOneRankMore) {
  auto placements = PlaceRanks(8, 3);
  ASSERT_TRUE(placements.ok());
  ASSERT_EQ(placements->size(), 3u);
  EXPECT_THAT((*placements)[WorkerId(0)].ranks, ElementsAre(RankId(0), RankId(1), RankId(2)));
  EXPECT_THAT((*placements)[WorkerId(1)].ranks, ElementsAre(RankId(3), RankId(4), RankId(5)));
  EXPECT_THAT((*placements)[WorkerId(2)].ranks, ElementsAre(RankId(6), RankId(7)));
  EXPECT_EQ((*placements)[WorkerId(0)].label, "ranks 0-2");
  EXPECT_EQ((*placements)[WorkerId(2)].label, "ranks 6-7");
}

TEST(PlacementTest, EveryRankIsHeldOnceAndBlocksDifferByAtMostOne) {
  for (int num_ranks = 1; num_ranks <= 17; ++num_ranks) {
    for (int num_processes = 1; num_processes <= num_ranks; ++num_processes) {
      auto placements = PlaceRanks(num_ranks, num_processes);
      ASSERT_TRUE(placements.ok());
      ASSERT_EQ(placements->size(), static_cast<size_t>(num_processes));
      int next = 0;
      for (const WorkerPlacement& placement : *placements) {
        for (const RankId rank : placement.ranks) EXPECT_EQ(rank, RankId(next++));
        EXPECT_GE(placement.ranks.size(), static_cast<size_t>(num_ranks / num_processes));
        EXPECT_LE(placement.ranks.size(), placements->front().ranks.size());
      }
      EXPECT_EQ(next, num_ranks);
      EXPECT_LE(placements->front().ranks.size(), placements->back().ranks.size() + 1);
    }
  }
}

TEST(PlacementTest, AProcessPerRankHasOneRankInItsLabel) {
  EXPECT_EQ((*PlaceRanks(4, 4))[WorkerId(3)].label, "rank 3");
}

TEST(PlacementTest, AsManyProcessesAsFitTheMeshAreAccepted) {
  for (int num_processes : {-1, 0, 5}) {
    const absl::Status status = PlaceRanks(4, num_processes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(
        status.message(),
        absl::StrCat("W0090 at processes: expected 1 to 4, as many as the mesh has devices; found ",
                     num_processes, ". Try: another number of processes, or a larger mesh."));
  }
}

TEST(PlacementTest, TheErrorOfOneDeviceNamesOneNumber) {
  EXPECT_TRUE(absl::StrContains(PlaceRanks(1, 2).status().message(),
                                "expected 1, as many as the mesh has devices"));
}

TEST(PlacementTest, ALabelJoinsRunsOfRanks) {
  EXPECT_EQ(RankLabel({RankId(5)}), "rank 5");
  EXPECT_EQ(RankLabel({RankId(2), RankId(3)}), "ranks 2-3");
  EXPECT_EQ(RankLabel({RankId(0), RankId(3), RankId(4), RankId(5), RankId(7)}), "ranks 0,3-5,7");
}

TEST(ParseRanksTest, NumbersAndRangesInAnyOrder) {
  EXPECT_THAT(*ParseRanks("0,3-5", 8), ElementsAre(RankId(0), RankId(3), RankId(4), RankId(5)));
  EXPECT_THAT(*ParseRanks("7", 8), ElementsAre(RankId(7)));
  EXPECT_THAT(*ParseRanks("5, 4-6 ,1 - 1,5", 8),
              ElementsAre(RankId(1), RankId(4), RankId(5), RankId(6)));
  EXPECT_THAT(*ParseRanks("0-1023", 1024), ::testing::SizeIs(1024));
}

TEST(ParseRanksTest, WhatIsNoRankIsRejectedByName) {
  for (const char* text :
       {"", "a", "-1", "1-", "-", "1,,2", "1-2-3", "+1", "1.5", "99999999999", "0x1", "1 2"}) {
    const absl::Status status = ParseRanks(text, 8).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::StartsWith("W0091 at ranks: expected a rank or a range of ranks; found "))
        << text;
  }
  EXPECT_EQ(ParseRanks("1,x", 8).status().message(),
            "W0091 at ranks: expected a rank or a range of ranks; found 'x'. Try: numbers and "
            "ranges with commas between them, such as 0,3-5.");
}

TEST(ParseRanksTest, RanksBeyondTheMeshAndDescendingRangesAreRejected) {
  EXPECT_EQ(ParseRanks("0-2000000000", 8).status().message(),
            "W0091 at ranks: expected ranks from 0 to 7; found '0-2000000000'.");
  EXPECT_EQ(ParseRanks("5-3", 8).status().message(),
            "W0091 at ranks: expected a range that ascends; found '5-3'. Try: 3-5.");
}

}  // namespace
}  // namespace weir::launch
