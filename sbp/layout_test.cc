#include "sbp/layout.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sbp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Mesh MeshOf(const std::string& text) { return *Mesh::Parse(text); }

TensorType TypeOf(std::vector<TensorDim> dims, DType dtype = DType::kF32) {
  return TensorType{dtype, std::move(dims)};
}

// Returns the ranges of axis 0 that the ranks of `mesh` hold, in rank order: "0:2 2:4".
std::string Ranges(const std::string& layout_text, const std::string& mesh_text, int64_t size,
                   int64_t unit = 1) {
  Mesh mesh = MeshOf(mesh_text);
  TensorType type = TypeOf({{"x", size, unit}});
  Layout layout = *ParseLayout(layout_text, mesh);
  EXPECT_TRUE(ValidateLayout(layout, type, mesh).ok()) << ValidateLayout(layout, type, mesh);
  std::string text;
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank) {
    Rect rect = ShardRect(type, layout, mesh, mesh.CoordsOf(rank));
    text += (rank ? " " : "") + std::to_string(rect.begin[0]) + ":" + std::to_string(rect.end[0]);
  }
  return text;
}

std::string ParseFlaw(const std::string& text, const std::string& mesh = "dp=2,tp=2") {
  absl::StatusOr<Layout> layout = ParseLayout(text, MeshOf(mesh));
  if (layout.ok()) return "no flaw: " + ToText(*layout, MeshOf(mesh));
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(layout.status().message());
}

std::string LayoutFlaw(const std::string& text, const TensorType& type,
                       const std::string& mesh = "dp=2,tp=2") {
  absl::Status status = ValidateLayout(*ParseLayout(text, MeshOf(mesh)), type, MeshOf(mesh));
  return std::string(status.message());
}

TEST(Layout, TextRoundTrips) {
  for (const char* text : {"[dp: S(0), tp: B]", "[dp: B, tp: B]", "[dp: P(sum), tp: S(3)]",
                           "[dp: P(max), tp: S(1)]", "[dp: S(0, at=0:2:7), tp: S(0, at=0:0:7)]"}) {
    absl::StatusOr<Layout> layout = ParseLayout(text, MeshOf("dp=2,tp=2"));
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(ToText(*layout, MeshOf("dp=2,tp=2")), text);
  }
  EXPECT_EQ(ToText(*ParseLayout("[]", Mesh()), Mesh()), "[]");
}

TEST(Layout, AxesLeftOutAreBroadcastAndSpacesDoNotMatter) {
  Mesh mesh = MeshOf("dp=2,tp=2");
  EXPECT_EQ(*ParseLayout("[]", mesh), Broadcast(mesh));
  EXPECT_EQ(*ParseLayout(" [ tp:S( 1 ) ] ", mesh), (Layout{Sbp::B(), Sbp::S(1)}));
  EXPECT_EQ(*ParseLayout("[dp:S(0,at=0 : 1:4),tp:P( sum )]", mesh),
            (Layout{Sbp{SbpKind::kSplit, 0, {0, 1, 4}, Combiner::kSum}, Sbp::P()}));
}

TEST(Layout, ParseNamesTheFlawAndTheNearestLegalText) {
  EXPECT_THAT(ParseFlaw(""), HasSubstr("W0201"));
  EXPECT_THAT(ParseFlaw("dp: B"), AllOf(HasSubstr("W0201"), HasSubstr("Try: [dp: B, tp: B]")));
  EXPECT_THAT(ParseFlaw("[dp B]"), HasSubstr("W0201"));
  EXPECT_THAT(ParseFlaw("[dp: B,]"), HasSubstr("W0201"));
  EXPECT_THAT(ParseFlaw("[dq: B]"),
              AllOf(HasSubstr("W0202"), HasSubstr("dp, tp"), HasSubstr("Try: dp")));
  EXPECT_THAT(ParseFlaw("[pp: B]", "pp=2,dp=2"), AllOf(HasSubstr("W0202"), HasSubstr("pipeline")));
  EXPECT_THAT(ParseFlaw("[dp: S]"), AllOf(HasSubstr("W0203"), HasSubstr("S(i)")));
  EXPECT_THAT(ParseFlaw("[dp: P(sun]"), AllOf(HasSubstr("W0203"), HasSubstr("Try: P(sum)")));
  EXPECT_THAT(ParseFlaw("[dp: s(0)]"), HasSubstr("Try: S(0)"));
  EXPECT_THAT(ParseFlaw("[dp: ]"), HasSubstr("W0203"));
  EXPECT_THAT(ParseFlaw("[tp: B, dp: B]"), AllOf(HasSubstr("W0204"), HasSubstr("mesh order")));
  EXPECT_THAT(ParseFlaw("[dp: B, dp: B]"), HasSubstr("W0204"));
  EXPECT_THAT(ParseFlaw("[dp: P(mex)]"), AllOf(HasSubstr("W0205"), HasSubstr("Try: P(max)")));
  EXPECT_THAT(ParseFlaw("[dp: P()]"), HasSubstr("W0205"));
  EXPECT_THAT(ParseFlaw("[dp: S(-1)]"), HasSubstr("W0206"));
  EXPECT_THAT(ParseFlaw("[dp: S(x)]"), HasSubstr("W0206"));
  EXPECT_THAT(ParseFlaw("[dp: S(99999999999999999999)]"), HasSubstr("W0206"));
  EXPECT_THAT(ParseFlaw("[dp: S(0, 0:1:2)]"), AllOf(HasSubstr("W0206"), HasSubstr("at=")));
  EXPECT_THAT(ParseFlaw("[dp: S(0, at=0:2)]"), AllOf(HasSubstr("W0206"), HasSubstr("3 offsets")));
  EXPECT_THAT(ParseFlaw("[dp: S(0, at=1:2:3)]"), HasSubstr("W0206"));
  EXPECT_THAT(ParseFlaw("[dp: S(0, at=0:3:2)]"), HasSubstr("W0206"));
  EXPECT_THAT(ParseFlaw("[dp: S(0, at=0:-1:2)]"), HasSubstr("W0206"));
  EXPECT_THAT(ParseFlaw("[dp: B]]"), HasSubstr("W0203"));
}

TEST(Layout, ValidateNamesWhatDoesNotSuitTheTensor) {
  TensorType type = TypeOf({{"x", 8, 2}, {"y", 3, 1}});
  EXPECT_EQ(LayoutFlaw("[dp: S(0), tp: S(1)]", type), "");
  EXPECT_EQ(LayoutFlaw("[dp: S(0, at=0:2:8), tp: P(max)]", type), "");
  EXPECT_THAT(LayoutFlaw("[dp: S(2)]", type), AllOf(HasSubstr("W0211"), HasSubstr("Try: S(1)")));
  EXPECT_THAT(LayoutFlaw("[dp: S(0)]", TypeOf({})), AllOf(HasSubstr("W0211"), HasSubstr("scalar")));
  EXPECT_THAT(LayoutFlaw("[dp: S(0, at=0:2:7)]", type),
              AllOf(HasSubstr("W0212"), HasSubstr("from 0 to 8")));
  EXPECT_THAT(LayoutFlaw("[dp: S(0, at=0:3:8)]", type),
              AllOf(HasSubstr("W0212"), HasSubstr("multiples of 2")));
  EXPECT_THAT(LayoutFlaw("[dp: P(sum)]", TypeOf({{"x", 8, 1}}, DType::kI32)), HasSubstr("W0213"));
  EXPECT_THAT(LayoutFlaw("[dp: P(sum), tp: P(max)]", type), HasSubstr("W0214"));
  EXPECT_THAT(LayoutFlaw("[]", TypeOf({{"x", 7, 2}})), HasSubstr("W0215"));
  EXPECT_THAT(LayoutFlaw("[]", TypeOf({{"x", 8, 0}})), HasSubstr("W0215"));
  EXPECT_THAT(LayoutFlaw("[]", TypeOf({{"x", -1, 1}})), HasSubstr("W0215"));
  EXPECT_THAT(LayoutFlaw("[]", TypeOf({{"x", int64_t{1} << 61, 1}})), HasSubstr("W0215"));
  EXPECT_THAT(std::string(ValidateLayout({Sbp::B()}, type, MeshOf("dp=2,tp=2")).message()),
              HasSubstr("W0210"));
  Layout torn = {Sbp{SbpKind::kSplit, 0, {0, 8}, Combiner::kSum}, Sbp::B()};
  EXPECT_THAT(std::string(ValidateLayout(torn, type, MeshOf("dp=2,tp=2")).message()),
              HasSubstr("W0212"));
}

TEST(Layout, TypesHaveText) {
  EXPECT_EQ(ToText(TypeOf({{"batch", 8, 1}, {"hidden", 64, 16}})), "f32[batch=8, hidden=64/16]");
  EXPECT_EQ(ToText(TypeOf({}, DType::kBF16)), "bf16[]");
  EXPECT_EQ(TypeOf({{"a", 3, 1}, {"b", 5, 1}}, DType::kBF16).bytes(), 30);
}

TEST(Layout, ABalancedSplitGivesTheFirstPartsOneMore) {
  EXPECT_EQ(Ranges("[a: S(0)]", "a=4", 8), "0:2 2:4 4:6 6:8");
  EXPECT_EQ(Ranges("[a: S(0)]", "a=4", 10), "0:3 3:6 6:8 8:10");
  EXPECT_EQ(Ranges("[a: S(0)]", "a=4", 3), "0:1 1:2 2:3 3:3");
  EXPECT_EQ(Ranges("[a: S(0)]", "a=4", 0), "0:0 0:0 0:0 0:0");
}

TEST(Layout, ABalancedSplitCountsInUnits) {
  EXPECT_EQ(Ranges("[a: S(0)]", "a=2", 12, 4), "0:8 8:12");
  EXPECT_EQ(Ranges("[a: S(0)]", "a=3", 8, 4), "0:4 4:8 8:8");
}

TEST(Layout, ExplicitOffsetsAreTakenAsTheyAre) {
  EXPECT_EQ(Ranges("[a: S(0, at=0:5:5:6)]", "a=3", 6), "0:5 5:5 5:6");
}

TEST(Layout, NestedSplitsDivideTheParentsRangeInMeshOrder) {
  EXPECT_EQ(Ranges("[a: S(0), b: S(0)]", "a=2,b=2", 7), "0:2 2:4 4:6 6:7");
  EXPECT_EQ(Ranges("[a: S(0), b: S(0)]", "a=2,b=2", 20, 4), "0:8 8:12 12:16 16:20");
  // The result differs from one split over four.
  EXPECT_EQ(Ranges("[a: S(0), b: S(0)]", "a=2,b=3", 8), "0:2 2:3 3:4 4:6 6:7 7:8");
  EXPECT_EQ(Ranges("[a: S(0)]", "a=6", 8), "0:2 2:4 4:5 5:6 6:7 7:8");
}

TEST(Layout, ANestedSplitStartsCountingUnitsAtItsParentsBegin) {
  EXPECT_EQ(Ranges("[a: S(0, at=0:2:12), b: S(0)]", "a=2,b=2", 12, 2), "0:2 2:2 2:8 8:12");
}

TEST(Layout, NestedExplicitOffsetsKeepWhatFallsIntoTheParent) {
  EXPECT_EQ(Ranges("[a: S(0), b: S(0, at=0:5:8)]", "a=2,b=2", 8), "0:4 4:4 4:5 5:8");
  EXPECT_EQ(Ranges("[a: S(0, at=0:6:8), b: S(0, at=0:2:8)]", "a=2,b=2", 8), "0:2 2:6 6:6 6:8");
}

TEST(Layout, EveryElementHasExactlyOneHolderPerCopy) {
  Mesh mesh = MeshOf("a=2,b=3");
  TensorType type = TypeOf({{"x", 9, 3}, {"y", 5, 1}});
  for (const char* text : {"[a: S(0), b: S(1)]", "[a: S(1), b: S(1)]", "[a: B, b: S(0)]",
                           "[a: P(sum), b: S(1)]", "[a: S(1, at=0:4:5), b: S(1, at=0:1:1:5)]"}) {
    Layout layout = *ParseLayout(text, mesh);
    int copies = 1;
    for (int axis = 0; axis < 2; ++axis) copies *= layout[axis].is_split() ? 1 : mesh.size(axis);
    std::vector<int> holders(45, 0);
    for (int64_t rank = 0; rank < 6; ++rank) {
      Rect rect = ShardRect(type, layout, mesh, mesh.CoordsOf(rank));
      for (int64_t x = rect.begin[0]; x < rect.end[0]; ++x) {
        for (int64_t y = rect.begin[1]; y < rect.end[1]; ++y) ++holders[x * 5 + y];
      }
    }
    EXPECT_THAT(holders, ::testing::Each(copies)) << text;
  }
}

TEST(Layout, ALocalSliceKnowsItsPlaceInTheTensor) {
  Mesh mesh = MeshOf("a=2,b=2");
  TensorSlice slice = LocalSlice(TypeOf({{"x", 4, 1}, {"y", 6, 1}}, DType::kBF16),
                                 {Sbp::S(1), Sbp::P()}, mesh, Coords{1, 0});
  EXPECT_EQ(ToText(slice), "bf16[4, 3] at [0, 3] of [4, 6]");
}

TEST(Rect, VolumesAndIntersections) {
  EXPECT_EQ((Rect{{}, {}}).volume(), 1);
  EXPECT_EQ((Rect{{1, 2}, {3, 5}}).volume(), 6);
  EXPECT_EQ((Rect{{1, 2}, {3, 2}}).volume(), 0);
  EXPECT_EQ(Intersect({{0, 0}, {4, 4}}, {{2, 1}, {6, 3}}), (Rect{{2, 1}, {4, 3}}));
  EXPECT_EQ(Intersect({{0}, {2}}, {{5}, {6}}).volume(), 0);
}

}  // namespace
}  // namespace weir::sbp
