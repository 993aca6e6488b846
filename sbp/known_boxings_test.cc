#include "sbp/known_boxings.h"

#include <string>

#include "gtest/gtest.h"

namespace weir::sbp {
namespace {

TensorType Matrix(int64_t rows, int64_t columns, DType dtype = DType::kF32) {
  return TensorType{dtype, {{"rows", rows, 1}, {"columns", columns, 1}}};
}

class KnownBoxingsTest : public ::testing::Test {
 protected:
  const Boxing* Of(const TensorType& type, const std::string& from, const std::string& to,
                   int64_t to_place = 0) {
    absl::StatusOr<const Boxing*> boxing =
        boxings_.Of(type, At(from, 0), At(to, to_place), places_);
    EXPECT_TRUE(boxing.ok()) << boxing.status();
    return boxing.ok() ? *boxing : nullptr;
  }
  Placement At(const std::string& layout, int64_t place) const {
    return {*ParseLayout(layout, places_.mesh(0)), place};
  }

  const Places places_ = PipelinePlaces(*Mesh::Parse("pp=2,dp=4"), 2);
  KnownBoxings boxings_;
};

TEST_F(KnownBoxingsTest, AnEqualBoxingIsPlannedOnce) {
  const Boxing* first = Of(Matrix(8, 512), "[dp: P(sum)]", "[dp: B]");
  for (int64_t rows = 16; rows < 1000; rows += 8) Of(Matrix(rows, 512), "[dp: P(sum)]", "[dp: B]");
  EXPECT_EQ(Of(Matrix(8, 512), "[dp: P(sum)]", "[dp: B]"), first);
}

TEST_F(KnownBoxingsTest, BoxingsThatDifferAreApart) {
  const Boxing* boxing = Of(Matrix(8, 512), "[dp: P(sum)]", "[dp: B]");
  EXPECT_NE(Of(Matrix(512, 8), "[dp: P(sum)]", "[dp: B]"), boxing);
  EXPECT_NE(Of(Matrix(8, 512, DType::kBF16), "[dp: P(sum)]", "[dp: B]"), boxing);
  EXPECT_NE(Of(Matrix(8, 512), "[dp: S(0)]", "[dp: B]"), boxing);
  EXPECT_NE(Of(Matrix(8, 512), "[dp: P(sum)]", "[dp: S(0)]"), boxing);
  EXPECT_NE(Of(Matrix(8, 512), "[dp: P(sum)]", "[dp: B]", 1), boxing);
}

TEST_F(KnownBoxingsTest, ABoxingIsThatOfThePlanner) {
  const TensorType type = Matrix(8, 512);
  const absl::StatusOr<Boxing> planned =
      PlanBoxingOverHosts(type, At("[dp: P(sum)]", 0), At("[dp: B]", 0), places_);
  ASSERT_TRUE(planned.ok()) << planned.status();
  for (int time = 0; time < 2; ++time) {
    const Boxing* boxing = Of(type, "[dp: P(sum)]", "[dp: B]");
    ASSERT_EQ(boxing->steps.size(), planned->steps.size());
    for (size_t k = 0; k < planned->steps.size(); ++k)
      EXPECT_EQ(ToText(boxing->steps[k], boxing->places),
                ToText(planned->steps[k], planned->places));
    EXPECT_EQ(boxing->type, planned->type);
  }
}

TEST_F(KnownBoxingsTest, AnErrorIsReturnedEachTime) {
  const TensorType type = Matrix(8, 512);
  const Placement from = At("[dp: P(max)]", 0), to = At("[dp: P(sum)]", 0);
  const absl::Status planned = PlanBoxingOverHosts(type, from, to, places_).status();
  ASSERT_FALSE(planned.ok());
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(boxings_.Of(type, from, to, places_).status(), planned);
}

}  // namespace
}  // namespace weir::sbp
