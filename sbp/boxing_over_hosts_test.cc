#include "sbp/boxing_over_hosts.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sbp/boxing_testing.h"

namespace weir::sbp {
namespace {

using ::testing::ElementsAre;

TensorType Matrix(int64_t rows, int64_t columns, DType dtype = DType::kF32) {
  return TensorType{dtype, {{"rows", rows, 1}, {"columns", columns, 1}}};
}

std::vector<std::string> StepsOf(const TensorType& type, const std::string& from,
                                 const std::string& to, const Places& places,
                                 int64_t to_place = 0) {
  const Mesh& mesh = places.mesh(0);
  const absl::StatusOr<Boxing> boxing = PlanBoxingOverHosts(
      type, {*ParseLayout(from, mesh), 0}, {*ParseLayout(to, mesh), to_place}, places);
  EXPECT_TRUE(boxing.ok()) << boxing.status();
  std::vector<std::string> steps;
  for (const BoxingStep& step : boxing->steps) steps.push_back(ToText(step, boxing->places));
  return steps;
}

int64_t BytesBetweenHosts(const TensorType& type, const std::string& from, const std::string& to,
                          const Places& places) {
  const Mesh& mesh = places.mesh(0);
  const absl::StatusOr<Boxing> boxing =
      PlanBoxingOverHosts(type, {*ParseLayout(from, mesh), 0}, {*ParseLayout(to, mesh), 0}, places);
  EXPECT_TRUE(boxing.ok()) << boxing.status();
  return boxing.ok() ? CountBytesBetweenHosts(*boxing, places) : -1;
}

TEST(HostCutTest, CutsTheAxisThatLeavesTheHost) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=6,tp=2"), 4);
  const HostCut* cut = places.host_cut();
  ASSERT_NE(cut, nullptr);
  EXPECT_EQ(cut->places.mesh(0).ToText(), "dp.hosts=3,dp.devices=2,tp=2");
  EXPECT_THAT(cut->within_host, ElementsAre(false, true, true));
  EXPECT_THAT(cut->axes, ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_EQ(cut->places.ranks(0), places.ranks(0));
}

TEST(HostCutTest, NeedsHostsThatCutTheMeshEvenly) {
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=4")).host_cut(), nullptr);
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=4"), 4).host_cut(), nullptr);  // one host
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=4"), 1).host_cut(), nullptr);  // nothing to share
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=6"), 4).host_cut(), nullptr);
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=3,tp=3"), 6).host_cut(), nullptr);
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=4,tp=3"), 2).host_cut(), nullptr);
  EXPECT_NE(PipelinePlaces(*Mesh::Parse("dp=2,tp=3"), 3).host_cut(), nullptr);
  EXPECT_NE(PipelinePlaces(*Mesh::Parse("pp=2,dp=4"), 4).host_cut(), nullptr);
  EXPECT_NE(PipelinePlaces(*Mesh::Parse("pp=4,dp=2"), 4).host_cut(), nullptr);
}

// Stages 0 and 1 share the host of the first devices, and no host of the last ones.
TEST(HostCutTest, NeedsStagesThatShareHostsForAllTheirDevices) {
  EXPECT_EQ(PipelinePlaces(*Mesh::Parse("dp=2,pp=3,tp=2"), 4).host_cut(), nullptr);
}

TEST(HostCutTest, FollowsTheOrderOfRanks) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=4,tp=2"), 2, {1, 0});
  const HostCut* cut = places.host_cut();
  ASSERT_NE(cut, nullptr);
  EXPECT_EQ(cut->places.mesh(0).ToText(), "dp.hosts=2,dp.devices=2,tp=2");
  EXPECT_THAT(cut->within_host, ElementsAre(false, true, false));
}

TEST(HostCutTest, KnowsHostsThatOnlyStagesShare) {
  const Places places = PipelinePlaces(*Mesh::Parse("pp=2,dp=2"), 2, {1, 0});
  ASSERT_NE(places.host_cut(), nullptr);
  EXPECT_THAT(places.host_cut()->within_host, ElementsAre(false));
  const BoxingStep move{BoxingMethod::kMove, {{Sbp::S(0)}, 0}, {{Sbp::S(0)}, 1}, false, {}};
  EXPECT_EQ(StaysInHosts(move, places, places.host_cut()), true);
  EXPECT_EQ(weir::sbp::BytesBetweenHosts(Matrix(4, 4), {move}, places, *places.host_cut()), 0);
}

// Hosts of 4: the stages have ranks 0 and 1, 2 to 7, and 8 and 9.
TEST(HostCutTest, CutsEachUnequalMeshIntoBlocks) {
  const Places places =
      PlacesWithMeshes({*Mesh::Parse("dp=2"), *Mesh::Parse("dp=6"), *Mesh::Parse("dp=2")}, 4);
  EXPECT_EQ(places.host_cut(), nullptr);
  const HostCut *first = places.host_cut(0), *second = places.host_cut(1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(places.host_cut(2), first) << "one mesh";
  EXPECT_EQ(first->places.mesh(0).ToText(), "dp=2");
  EXPECT_THAT(first->within_host, ElementsAre(true));
  EXPECT_TRUE(first->follows_hosts);
  EXPECT_EQ(second->places.mesh(1).ToText(), "dp.hosts=3,dp.devices=2");
  EXPECT_EQ(second->places.mesh(0).ToText(), "dp=2") << "another mesh";
  EXPECT_THAT(second->within_host, ElementsAre(false, true));
  EXPECT_THAT(second->axes, ElementsAre(ElementsAre(0, 1)));
  EXPECT_FALSE(second->follows_hosts) << "ranks 4 and 6 share a host";
  EXPECT_EQ(second->places.HostOf(RankId(5)), 1);
}

TEST(HostCutTest, ABlockOfAnUnequalMeshHasDevicesOfOneHost) {
  const auto cut_of = [](const char* first, const char* second, int64_t devices_per_host) {
    const Places places =
        PlacesWithMeshes({*Mesh::Parse(first), *Mesh::Parse(second)}, devices_per_host);
    const HostCut* cut = places.host_cut(1);
    return cut == nullptr ? "none" : cut->places.mesh(1).ToText();
  };
  EXPECT_EQ(cut_of("dp=4", "dp=2,tp=4", 4), "dp=2,tp=4");
  EXPECT_EQ(cut_of("tp=2", "dp=2,tp=4", 2), "dp=2,tp.hosts=2,tp.devices=2");
  EXPECT_EQ(cut_of("tp=2", "dp=4,tp=2", 4), "dp=4,tp=2") << "blocks of 2";
  EXPECT_EQ(cut_of("", "dp=2,tp=2", 2), "none") << "ranks 1 and 2 are no neighbours";
  EXPECT_EQ(cut_of("", "dp=2,tp=2", 8), "none") << "one host";
  EXPECT_EQ(cut_of("dp=2", "dp=4", 1), "none") << "nothing to share";
}

TEST(BoxingOverHostsTest, AnAllReduceGoesWithinBetweenAndWithinHosts) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=4"), 2);
  EXPECT_THAT(StepsOf(Matrix(3, 512), "[dp: P(sum)]", "[dp: B]", places),
              ElementsAre("reduce-scatter: stage 0 [dp.hosts: P(sum), dp.devices: P(sum)] -> stage "
                          "0 [dp.hosts: P(sum), dp.devices: S(0)]",
                          "all-reduce: stage 0 [dp.hosts: P(sum), dp.devices: S(0)] -> stage 0 "
                          "[dp.hosts: B, dp.devices: S(0)]",
                          "all-gather: stage 0 [dp.hosts: B, dp.devices: S(0)] -> stage 0 "
                          "[dp.hosts: B, dp.devices: B]"));
}

TEST(BoxingOverHostsTest, AStepTellsWhetherItStaysInHosts) {
  const Places places = PipelinePlaces(*Mesh::Parse("pp=2,dp=4"), 2);
  const Boxing boxing =
      *PlanBoxingOverHosts(Matrix(3, 512), {{Sbp::P()}, 0}, {{Sbp::B()}, 0}, places);
  std::vector<std::optional<bool>> stay;
  for (const BoxingStep& step : boxing.steps)
    stay.push_back(StaysInHosts(step, boxing.places, places.host_cut()));
  EXPECT_THAT(stay, ElementsAre(true, false, true));
  EXPECT_EQ(StaysInHosts({BoxingMethod::kMove, {{Sbp::B()}, 0}, {{Sbp::B()}, 1}, false, {}}, places,
                         places.host_cut()),
            std::nullopt)
      << "over the mesh of the job";
  EXPECT_EQ(StaysInHosts(boxing.steps[0], boxing.places, nullptr), std::nullopt);
}

TEST(BoxingOverHostsTest, AnAllReduceOverTwoAxesDoesToo) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=3,tp=2"), 2);
  EXPECT_EQ(StepsOf(Matrix(3, 512), "[dp: P(sum), tp: P(sum)]", "[dp: B, tp: B]", places).size(),
            4u);
}

// The closed forms of boxing_over_hosts.h: h hosts of g ranks, T bytes.
TEST(BoxingOverHostsTest, BytesBetweenHostsAreTheClosedForms) {
  for (const auto& [h, g] : {std::pair{2, 2}, {2, 4}, {3, 2}, {4, 8}}) {
    const int64_t n = h * g;
    const Mesh mesh({{"dp", n}});
    const Places places = PipelinePlaces(mesh, g), one_level = PipelinePlaces(mesh);
    const TensorType type = Matrix(n * 4, 96);
    const int64_t bytes = type.bytes();
    SCOPED_TRACE(mesh.ToText());
    EXPECT_EQ(BytesBetweenHosts(type, "[dp: P(sum)]", "[dp: B]", places), 2 * (h - 1) * bytes);
    EXPECT_EQ(BytesBetweenHosts(type, "[dp: S(0)]", "[dp: B]", places), (h - 1) * bytes);
    EXPECT_EQ(BytesBetweenHosts(type, "[dp: P(sum)]", "[dp: S(0)]", places), (h - 1) * bytes);
    EXPECT_EQ(BytesBetweenHosts(type, "[dp: P(sum)]", "[dp: S(1)]", places), (h - 1) * bytes);
  }
}

TEST(BoxingOverHostsTest, EachHostOfTheNextStageGetsACopyOnce) {
  const Places places = PipelinePlaces(*Mesh::Parse("pp=2,tp=4"), 4);
  EXPECT_THAT(StepsOf(Matrix(8, 512), "[tp: B]", "[tp: B]", places, 1),
              ElementsAre("move: stage 0 [tp: B] -> stage 1 [tp: S(0)]",
                          "all-gather: stage 1 [tp: S(0)] -> stage 1 [tp: B]"));
}

TEST(BoxingOverHostsTest, EachHostOfAnUnequalStageGetsACopyOnce) {
  const Places places = PlacesWithMeshes({*Mesh::Parse("tp=4"), *Mesh::Parse("dp=2,tp=4")}, 4);
  const Boxing boxing =
      *PlanBoxingOverHosts(Matrix(8, 512), {{Sbp::S(1)}, 0}, {{Sbp::S(0), Sbp::B()}, 1}, places);
  std::vector<std::string> steps;
  for (const BoxingStep& step : boxing.steps) steps.push_back(ToText(step, boxing.places));
  EXPECT_THAT(steps, ElementsAre("move: stage 0 [tp: S(1)] -> stage 1 [dp: S(0), tp: S(0)]",
                                 "all-gather: stage 1 [dp: S(0), tp: S(0)] -> stage 1 [dp: S(0), "
                                 "tp: B]"));
  EXPECT_EQ(StaysInHosts(boxing.steps[1], boxing.places, places.host_cut(1)), true);
  EXPECT_EQ(StaysInHosts(boxing.steps[0], boxing.places, places.host_cut(1)), std::nullopt);
}

// A move of T bytes to copies sends T bytes to each host that has no copy yet.
TEST(BoxingOverHostsTest, BytesBetweenHostsOfUnequalStagesAreTheClosedForms) {
  struct Case {
    const char *from_mesh, *from, *to_mesh, *to;
    int64_t devices_per_host;
    int64_t hosts;  // that have no copy
  };
  const TensorType type = Matrix(16, 96);
  for (const Case& of :
       {Case{"", "[]", "dp=4", "[dp: B]", 8, 0},
        Case{"tp=4", "[tp: S(0)]", "dp=8", "[dp: B]", 4, 2},
        Case{"tp=4", "[tp: B]", "dp=8", "[dp: B]", 4, 2},
        Case{"tp=4", "[tp: P(sum)]", "dp=8", "[dp: B]", 4, 2},
        Case{"tp=4", "[tp: S(1)]", "dp=8", "[dp: S(0)]", 4, 1},
        Case{"tp=2", "[tp: B]", "dp=6", "[dp: B]", 4, 2},  // one host of four has two blocks
        Case{"tp=2", "[tp: B]", "dp=6", "[dp: B]", 2, 3},
        Case{"tp=2", "[tp: B]", "dp=5", "[dp: B]", 4, 3},  // no blocks: three devices lack a copy
        Case{"tp=2", "[tp: B]", "dp=2,tp=4", "[dp: B, tp: S(1)]", 2, 2},
        Case{"dp=6", "[dp: B]", "tp=2", "[tp: B]", 4, 0},
        Case{"dp=8", "[dp: B]", "tp=4", "[tp: B]", 4, 1}}) {
    SCOPED_TRACE(absl::StrCat(of.from_mesh, " ", of.from, " to ", of.to_mesh, " ", of.to,
                              ", hosts of ", of.devices_per_host));
    const Mesh before = *Mesh::Parse(of.from_mesh), after = *Mesh::Parse(of.to_mesh);
    const Places places = PlacesWithMeshes({before, after}, of.devices_per_host);
    const Placement from{*ParseLayout(of.from, before), 0}, to{*ParseLayout(of.to, after), 1};
    const Boxing boxing = *PlanBoxingOverHosts(type, from, to, places);
    EXPECT_EQ(CountBytesBetweenHosts(boxing, places), of.hosts * type.bytes());
    EXPECT_EQ(weir::sbp::BytesBetweenHosts(type, boxing.steps, boxing.places),
              of.hosts * type.bytes());
  }
}

// Steps of all kinds: moves and merges, flat ones, and those that make partials.
TEST(BoxingOverHostsTest, BytesBetweenHostsOfAnyStagesAreThoseOfTheMessages) {
  const std::vector<Sbp> kEntries = {Sbp::S(0), Sbp::S(1), Sbp::B(), Sbp::P()};
  const TensorType type = Matrix(13, 30);
  const auto layouts_of = [&](const Mesh& mesh) {
    std::vector<Layout> layouts = {{}};
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      std::vector<Layout> longer;
      for (const Layout& layout : layouts) {
        for (const Sbp& entry : kEntries) {
          longer.push_back(layout);
          longer.back().push_back(entry);
        }
      }
      layouts = std::move(longer);
    }
    return layouts;
  };
  int crossing = 0;
  for (const auto& [meshes, devices_per_host] :
       {std::pair{std::vector{"dp=2,tp=3", "dp=2,tp=3"}, 4},
        std::pair{std::vector{"dp=2,tp=3", "dp=2,tp=3", "tp=2"}, 4},
        std::pair{std::vector{"dp=3", "dp=2,tp=2"}, 2},
        std::pair{std::vector{"dp=2,tp=2", "tp=5"}, 3}}) {
    std::vector<Mesh> of_places;
    for (const char* mesh : meshes) of_places.push_back(*Mesh::Parse(mesh));
    const Places places = PlacesWithMeshes(of_places, devices_per_host);
    for (const int64_t to_place : {0, 1}) {
      for (const Layout& from : layouts_of(of_places[0])) {
        for (const Layout& to : layouts_of(of_places[static_cast<size_t>(to_place)])) {
          const absl::StatusOr<Boxing> boxing =
              PlanBoxingOverHosts(type, {from, 0}, {to, to_place}, places, 1);
          ASSERT_TRUE(boxing.ok()) << boxing.status();
          const int64_t counted = CountBytesBetweenHosts(*boxing, places);
          EXPECT_EQ(weir::sbp::BytesBetweenHosts(boxing->type, boxing->steps, boxing->places),
                    counted)
              << ToText(from, of_places[0]) << " to place " << to_place << ", "
              << ToText(to, places.mesh(to_place)) << ", hosts of " << devices_per_host;
          if (counted > 0) ++crossing;
          const std::vector<BoxingStep> one_level =
              *PlanBoxing(type, {from, 0}, {to, to_place}, places);
          EXPECT_LE(counted, CountBytesBetweenHosts({type, places, one_level}, places));
        }
      }
    }
  }
  EXPECT_GT(crossing, 100);
}

TEST(BoxingOverHostsTest, AScalarGoesToUnequalStagesOnOneLevel) {
  const Places places = PlacesWithMeshes({*Mesh::Parse("tp=4"), *Mesh::Parse("dp=8")}, 4);
  const TensorType scalar{DType::kF32, {}};
  const Placement from{{Sbp::P()}, 0}, to{{Sbp::B()}, 1};
  const Boxing boxing = *PlanBoxingOverHosts(scalar, from, to, places, 1);
  EXPECT_EQ(boxing.steps, *PlanBoxing(scalar, from, to, places));
  EXPECT_EQ(boxing.places.mesh(1), places.mesh(1));
}

TEST(BoxingOverHostsTest, AReceiverTakesWhatADeviceOfItsHostHas) {
  // Ranks 0 to 5 hold copies, and ranks 6 and 7 want one. Ranks 4 to 7 share a host.
  const Places places = PlacesWithMeshes({*Mesh::Parse("dp=6"), *Mesh::Parse("tp=2")}, 4);
  const Placement from{{Sbp::B()}, 0}, to{{Sbp::B()}, 1};
  const std::vector<BoxingStep> steps = *PlanBoxing(Matrix(4, 4), from, to, places);
  for (const auto& [receiver, sender] : {std::pair{6, 4}, {7, 5}}) {
    const RankExchange exchange = BuildExchange({Matrix(4, 4)}, steps, places, RankId(receiver));
    EXPECT_THAT(exchange.receives, ElementsAre(std::pair(RankId(sender), 16)));
  }
}

TEST(BoxingOverHostsTest, SumsThatWouldHaveOtherBitsStayOnOneLevel) {
  const auto num_steps = [](const char* mesh, int64_t devices_per_host, DType dtype,
                            const std::string& combiner) {
    return StepsOf(Matrix(12, 512, dtype), "[dp: P(" + combiner + ")]", "[dp: B]",
                   PipelinePlaces(*Mesh::Parse(mesh), devices_per_host))
        .size();
  };
  EXPECT_EQ(num_steps("dp=4", 2, DType::kF32, "sum"), 3u);
  EXPECT_EQ(num_steps("dp=4", 2, DType::kBF16, "sum"), 2u);
  EXPECT_EQ(num_steps("dp=4", 2, DType::kBF16, "max"), 3u);
  EXPECT_EQ(num_steps("dp=6", 3, DType::kF32, "sum"), 2u);
  EXPECT_EQ(num_steps("dp=6", 3, DType::kF32, "max"), 3u);
}

// The ranks of one host are 0 and 2 in the sum, whose tree adds 0 and 1 first.
TEST(BoxingOverHostsTest, SumsWhoseRanksOfAHostAreNoNeighboursStayOnOneLevel) {
  const auto num_steps = [](const std::vector<int>& rank_order, const std::string& combiner) {
    return StepsOf(Matrix(12, 512), "[dp: P(" + combiner + "), tp: P(" + combiner + ")]", "[]",
                   PipelinePlaces(*Mesh::Parse("dp=4,tp=2"), 2, rank_order))
        .size();
  };
  EXPECT_EQ(num_steps({0, 1}, "sum"), 4u);
  EXPECT_EQ(num_steps({1, 0}, "sum"), 2u);
  EXPECT_EQ(num_steps({1, 0}, "max"), 4u);
}

TEST(BoxingOverHostsTest, ASmallTensorStaysOnOneLevel) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=4"), 2);
  EXPECT_EQ(StepsOf(Matrix(1, 8), "[dp: P(sum)]", "[dp: B]", places).size(), 2u);
}

TEST(BoxingOverHostsTest, SplitsThatHostsDoNotCutEvenlyStayOnOneLevel) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=4"), 2);
  EXPECT_EQ(StepsOf(Matrix(1002, 9), "[dp: S(0)]", "[dp: B]", places).size(), 1u);
  EXPECT_EQ(StepsOf(Matrix(1004, 9), "[dp: S(0)]", "[dp: B]", places).size(), 2u);
}

TEST(BoxingOverHostsTest, ErrorsAreThoseOfPlanBoxing) {
  const Places places = PipelinePlaces(*Mesh::Parse("dp=4"), 2);
  EXPECT_EQ(
      PlanBoxingOverHosts(Matrix(4, 4), {{Sbp::S(7)}, 0}, {{Sbp::B()}, 0}, places).status().code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::sbp
