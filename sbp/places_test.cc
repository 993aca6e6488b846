#include "sbp/places.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sbp {
namespace {

using ::testing::ElementsAre;

TEST(Places, ByDefaultThereIsOnePlaceOfOneDevice) {
  const Places places;
  EXPECT_EQ(places.size(), 1);
  EXPECT_EQ(places.num_ranks(), 1);
  EXPECT_EQ(places.mesh(0), Mesh());
  EXPECT_EQ(places.CoordsOf(RankId(0)), Coords());
}

std::vector<RankId> RanksOf(const std::vector<int32_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

TEST(Places, StagesPartTheRanksWhereverThePipelineAxisStands) {
  for (const char* text : {"pp=3,dp=2,tp=2", "dp=2,pp=3,tp=2", "dp=2,tp=2,pp=3", "pp=4", "dp=4"}) {
    const Mesh mesh = *Mesh::Parse(text);
    const Places places = PipelinePlaces(mesh);
    EXPECT_EQ(places.num_ranks(), mesh.num_ranks());
    std::set<RankId> seen;
    for (int64_t stage = 0; stage < places.size(); ++stage) {
      EXPECT_EQ(places.mesh(stage).AxisIndex(kPipelineAxis), -1);
      ASSERT_EQ(places.ranks(stage).size(), static_cast<size_t>(places.mesh(stage).num_ranks()));
      EXPECT_EQ(places.mesh(stage).num_ranks() * places.size(), mesh.num_ranks());
      for (int64_t device = 0; device < places.mesh(stage).num_ranks(); ++device) {
        const RankId rank = places.RankAt(stage, device);
        EXPECT_EQ(rank, places.ranks(stage)[device]);
        EXPECT_TRUE(seen.insert(rank).second) << text;
        EXPECT_LT(rank.value(), mesh.num_ranks());
        EXPECT_EQ(places.PlaceOf(rank), stage);
        EXPECT_EQ(places.DeviceOf(rank), device);
        // The rank's coordinates are the coordinates in the place, with the stage put in.
        Coords coords = mesh.CoordsOf(rank.value());
        const int pipeline = mesh.AxisIndex(kPipelineAxis);
        if (pipeline >= 0) {
          EXPECT_EQ(coords[pipeline], stage);
          coords.erase(coords.begin() + pipeline);
        }
        EXPECT_EQ(coords, places.CoordsOf(rank));
      }
    }
  }
}

TEST(Places, AnOrderOfRanksChangesWhichRankADeviceHas) {
  const Mesh mesh = *Mesh::Parse("dp=2,pp=2,tp=3");
  const Places places = PipelinePlaces(mesh, 2, *mesh.OrderOf({"tp", "dp", "pp"}, "here"));
  EXPECT_EQ(places.mesh(0).ToText(), "dp=2,tp=3");
  // By device: dp 0 with tp 0, 1 and 2, then dp 1.
  EXPECT_EQ(places.ranks(0), RanksOf({0, 4, 8, 2, 6, 10}));
  EXPECT_EQ(places.ranks(1), RanksOf({1, 5, 9, 3, 7, 11}));
  EXPECT_THAT(places.CoordsOf(RankId(6)), ElementsAre(1, 1));
  EXPECT_EQ(places.HostOf(RankId(6)), places.HostOf(RankId(7)));
}

TEST(Places, RanksOfUnequalMeshesAreNumberedPlaceAfterPlace) {
  const Places places = PlacesWithMeshes({*Mesh::Parse("dp=1,tp=1"), *Mesh::Parse("dp=2,tp=2")}, 2);
  EXPECT_EQ(places.num_ranks(), 5);
  EXPECT_FALSE(places.has_equal_meshes());
  EXPECT_EQ(places.ranks(0), RanksOf({0}));
  EXPECT_EQ(places.ranks(1), RanksOf({1, 2, 3, 4}));
  EXPECT_THAT(places.CoordsOf(RankId(2)), ElementsAre(0, 1));
  EXPECT_EQ(places.HostOf(RankId(4)), 2);
  EXPECT_EQ(places.host_cut(), nullptr) << "unequal meshes have no cut in common";
  EXPECT_EQ(places.host_cut(0), nullptr) << "one device";
  EXPECT_EQ(places.host_cut(1), nullptr) << "ranks 1 and 2 are neighbours on two hosts";
}

TEST(Places, PlacesMayDifferInSizeAndMesh) {
  const Places places({{*Mesh::Parse("dp=2,tp=2"), RanksOf({5, 4, 1, 0})},
                       {*Mesh::Parse("tp=2"), RanksOf({2, 3})}});
  EXPECT_EQ(places.size(), 2);
  EXPECT_EQ(places.num_ranks(), 6);
  EXPECT_EQ(places.PlaceOf(RankId(4)), 0);
  EXPECT_EQ(places.DeviceOf(RankId(4)), 1);
  EXPECT_THAT(places.CoordsOf(RankId(1)), ElementsAre(1, 0));
  EXPECT_EQ(places.PlaceOf(RankId(3)), 1);
  EXPECT_THAT(places.CoordsOf(RankId(3)), ElementsAre(1));
  EXPECT_EQ(places.mesh(1).ToText(), "tp=2");
}

}  // namespace
}  // namespace weir::sbp
