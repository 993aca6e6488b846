#include "tools/fleet/mesh_change.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WorkerId kFirst(0), kSecond(1), kThird(2);

TEST(MeshChangeTest, NewProcessesTakeThePlacesOfLostOnes) {
  EXPECT_EQ(ChooseMesh({}), MeshAfterLoss::kStays);
}

TEST(MeshChangeTest, TheMeshShrinksIfNoProcessMayStartOrNoHostHasRoom) {
  EXPECT_EQ(ChooseMesh({.may_start_anew = false}), MeshAfterLoss::kShrinks);
  EXPECT_EQ(ChooseMesh({.have_places = false}), MeshAfterLoss::kShrinks);
}

TEST(MeshChangeTest, ALossInAChangeBeginsTheChangeAnew) {
  EXPECT_EQ(ChooseMesh({.is_changing = true}), MeshAfterLoss::kShrinks);
}

TEST(MeshChangeTest, LostWorkersAndThoseThatLeftHaveNoRoom) {
  const IdVector<WorkerId, size_t> room_of = {2, 3, 4};
  EXPECT_EQ(NumRanksLeft({kFirst, kSecond, kThird}, {}, room_of), 9);
  EXPECT_EQ(NumRanksLeft({kFirst, kSecond, kThird}, {kSecond}, room_of), 6);
  EXPECT_EQ(NumRanksLeft({kFirst, kThird}, {kThird}, room_of), 2);
}

TEST(MeshChangeTest, SurvivorsGetRanksInOrderUpToTheirRoom) {
  const IdVector<WorkerId, size_t> room_of = {2, 2, 2};
  const auto ranks_of = SpreadOver({kFirst, kThird}, room_of, 3);
  ASSERT_TRUE(ranks_of.has_value());
  EXPECT_THAT((*ranks_of)[kFirst], ElementsAre(RankId(0), RankId(1)));
  EXPECT_THAT((*ranks_of)[kSecond], IsEmpty());
  EXPECT_THAT((*ranks_of)[kThird], ElementsAre(RankId(2)));
  EXPECT_THAT((*SpreadOver({kFirst, kThird}, room_of, 2))[kThird], IsEmpty());
  EXPECT_FALSE(SpreadOver({kFirst, kThird}, room_of, 5).has_value());
}

TEST(MeshChangeTest, ProcessesOfASmallerJobHaveAsManyDevicesAsBefore) {
  EXPECT_EQ(NumProcessesFor(4, 8, 8), 4);
  // The job has become smaller before: the last start had 4 processes for 4 devices.
  EXPECT_EQ(NumProcessesFor(2, 4, 4), 2);
  EXPECT_EQ(NumProcessesFor(4, 4, 8), 2);
  EXPECT_EQ(NumProcessesFor(1, 1, 4), 1);
}

}  // namespace
}  // namespace weir::fleet
