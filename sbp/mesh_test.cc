#include "sbp/mesh.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir::sbp {
namespace {

using ::testing::HasSubstr;

std::string FlawOf(const std::string& text) {
  absl::StatusOr<Mesh> mesh = Mesh::Parse(text);
  if (mesh.ok()) return "no flaw: " + mesh->ToText();
  EXPECT_EQ(mesh.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(mesh.status().message());
}

TEST(Mesh, TextRoundTrips) {
  for (const char* text : {"", "dp=1", "dp=2,tp=2", "pp=4,dp=2,tp_inner=3", "_x9=7"}) {
    absl::StatusOr<Mesh> mesh = Mesh::Parse(text);
    ASSERT_TRUE(mesh.ok()) << mesh.status();
    EXPECT_EQ(mesh->ToText(), text);
    EXPECT_EQ(*Mesh::Parse(mesh->ToText()), *mesh);
  }
  EXPECT_EQ(Mesh::Parse(" dp = 2 , tp=3 ")->ToText(), "dp=2,tp=3");
}

TEST(Mesh, TheEmptyMeshIsOneDevice) {
  EXPECT_EQ(Mesh::Parse("")->num_ranks(), 1);
  EXPECT_EQ(Mesh().RankOf({}), 0);
  EXPECT_TRUE(Mesh().CoordsOf(0).empty());
}

TEST(Mesh, ParseNamesEachFlaw) {
  EXPECT_THAT(FlawOf("dp"), HasSubstr("W0101"));
  EXPECT_THAT(FlawOf("dp=2,"), HasSubstr("W0101"));
  EXPECT_THAT(FlawOf("dp=2=3"), HasSubstr("W0101"));
  EXPECT_THAT(FlawOf("=2"), HasSubstr("W0102"));
  EXPECT_THAT(FlawOf("2d=2"), HasSubstr("W0102"));
  EXPECT_THAT(FlawOf("d p=2"), HasSubstr("W0102"));
  EXPECT_THAT(FlawOf("dp=0"), HasSubstr("W0103"));
  EXPECT_THAT(FlawOf("dp=-2"), HasSubstr("W0103"));
  EXPECT_THAT(FlawOf("dp=+2"), HasSubstr("W0103"));
  EXPECT_THAT(FlawOf("dp="), HasSubstr("W0103"));
  EXPECT_THAT(FlawOf("dp=2x"), HasSubstr("W0103"));
  EXPECT_THAT(FlawOf("dp=99999999999999999999"), HasSubstr("W0103"));
  EXPECT_THAT(FlawOf("dp=2,dp=2"), HasSubstr("W0104"));
  EXPECT_THAT(FlawOf("dp=3000000000"), HasSubstr("W0105"));
  EXPECT_THAT(FlawOf("dp=65536,tp=65536"), HasSubstr("W0105"));
  EXPECT_THAT(FlawOf("a=4000000000000000000,b=4000000000000000000"), HasSubstr("W0105"));
}

TEST(Mesh, ValidateRefusesWhatParseWould) {
  EXPECT_FALSE(Mesh({{"dp", 0}}).Validate().ok());
  EXPECT_FALSE(Mesh({{"dp", 2}, {"dp", 2}}).Validate().ok());
  EXPECT_FALSE(Mesh({{"", 2}}).Validate().ok());
  EXPECT_TRUE(Mesh({{"dp", 2}, {"tp", 1}}).Validate().ok());
}

TEST(Mesh, AnOrderNamesEachAxisOnce) {
  const Mesh mesh = *Mesh::Parse("dp=2,pp=2,tp=3");
  EXPECT_EQ(*mesh.OrderOf({"tp", "dp", "pp"}, "--place"), (std::vector<int>{2, 0, 1}));
  const auto flaw = [](const Mesh& of, const std::vector<std::string>& names) {
    const absl::StatusOr<std::vector<int>> order = of.OrderOf(names, "--place");
    return order.ok() ? "no flaw" : std::string(order.status().message());
  };
  EXPECT_THAT(flaw(mesh, {"dp", "sp", "tp"}), HasSubstr("\"sp\", which the mesh lacks"));
  EXPECT_THAT(flaw(mesh, {"dp", "dp", "tp"}), HasSubstr("\"dp\" twice"));
  EXPECT_THAT(flaw(mesh, {"dp", "tp"}), HasSubstr("\"dp,tp\", which lacks \"pp\""));
  EXPECT_THAT(flaw(mesh, {"dp", "tp"}), HasSubstr("each axis of the mesh dp=2,pp=2,tp=3 once"));
  EXPECT_THAT(flaw(mesh, {""}), HasSubstr("W0106 at --place"));
  EXPECT_THAT(flaw(Mesh(), {"dp"}), HasSubstr("one device"));
}

TEST(Mesh, RanksAreNumberedRowMajor) {
  Mesh mesh = *Mesh::Parse("dp=2,tp=3");
  EXPECT_EQ(mesh.CoordsOf(4), (Coords{1, 1}));
  for (int64_t rank = 0; rank < mesh.num_ranks(); ++rank)
    EXPECT_EQ(mesh.RankOf(mesh.CoordsOf(rank)), rank);
  EXPECT_EQ(mesh.AxisIndex("tp"), 1);
  EXPECT_EQ(mesh.AxisIndex("pp"), -1);
}

}  // namespace
}  // namespace weir::sbp
