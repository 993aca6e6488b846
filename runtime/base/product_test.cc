#include "runtime/base/product.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/product_codec.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

ProductChoice Of(int64_t m, int64_t n, int64_t k, ProductWay way) {
  return {{DType::kF32, DType::kF32, m, n, k, false, false}, way};
}

TEST(ProductTest, EveryWayHasANameThatFindsIt) {
  for (const ProductWay way : kProductWays) {
    EXPECT_EQ(ProductWayFromName(Name(way)), way);
    EXPECT_THAT(ProductWayNames(), HasSubstr(Name(way)));
  }
  EXPECT_EQ(ProductWayFromName("panel"), std::nullopt);
}

TEST(ProductTest, TheNearestClassCountsWhereverItStands) {
  const ProductChoices choices({Of(512, 512, 512, ProductWay::kPlain),
                                Of(256, 512, 512, ProductWay::kPanels),
                                Of(256, 256, 256, ProductWay::kPlainInF32)});
  const auto way = [&choices](int64_t m, int64_t n, int64_t k) {
    return choices.WayOf(Of(m, n, k, ProductWay::kAutomatic).of);
  };
  EXPECT_EQ(way(256, 512, 512), ProductWay::kPanels) << "equal";
  EXPECT_EQ(way(300, 512, 512), ProductWay::kPanels);
  EXPECT_EQ(way(500, 512, 512), ProductWay::kPlain);
  EXPECT_EQ(way(1024, 512, 512), ProductWay::kPlain) << "twice as large is near";
  EXPECT_EQ(way(1025, 512, 512), ProductWay::kAutomatic) << "more than twice is not";
  EXPECT_EQ(way(127, 256, 256), ProductWay::kAutomatic);
  EXPECT_EQ(way(0, 256, 256), ProductWay::kAutomatic);
}

TEST(ProductTest, OfEquallyNearClassesTheFirstCounts) {
  const ProductChoices choices(
      {Of(128, 64, 64, ProductWay::kPlain), Of(64, 128, 64, ProductWay::kPanels)});
  EXPECT_EQ(choices.WayOf(Of(128, 128, 64, ProductWay::kAutomatic).of), ProductWay::kPlain);
}

TEST(ProductTest, OtherTypesAndOtherStorageAreNotNear) {
  const ProductChoices choices({Of(64, 64, 64, ProductWay::kPanels)});
  ProductClass other = choices.choices()[0].of;
  EXPECT_EQ(choices.WayOf(other), ProductWay::kPanels);
  other.b_transposed = true;
  EXPECT_EQ(choices.WayOf(other), ProductWay::kAutomatic);
  other = choices.choices()[0].of;
  other.a_transposed = true;
  EXPECT_EQ(choices.WayOf(other), ProductWay::kAutomatic);
  other = choices.choices()[0].of;
  other.operands = DType::kBF16;
  EXPECT_EQ(choices.WayOf(other), ProductWay::kAutomatic);
  other.operands = other.result = DType::kBF16;
  EXPECT_EQ(choices.WayOf(other), ProductWay::kAutomatic);
}

TEST(ProductTest, AMessageHoldsAllOfAChoice) {
  const ProductChoice choice{
      {DType::kBF16, DType::kF32, 3, 5, 7, true, true}, ProductWay::kPanelsInF32, 1.5};
  const absl::StatusOr<ProductChoice> back = ProductChoiceOf(ToProto(choice), "here");
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->of == choice.of);
  EXPECT_EQ(back->way, choice.way);
  EXPECT_EQ(back->gain, 1.5);
}

TEST(ProductTest, AChoiceThatCannotBeMeantNamesItsField) {
  const auto error_of = [](auto change) {
    google::protobuf::RepeatedPtrField<proto::ProductWayChoice> choices;
    *choices.Add() = ToProto(Of(1, 2, 3, ProductWay::kPlain));
    *choices.Add() = choices[0];
    change(&choices[1]);
    return std::string(ProductChoicesOf(choices, "runtime.product").status().message());
  };
  EXPECT_THAT(error_of([](auto* choice) { choice->set_way("fast"); }),
              HasSubstr("W0843 at runtime.product[1].way: expected automatic, panels"));
  EXPECT_THAT(error_of([](auto* choice) { choice->mutable_of()->set_k(0); }),
              HasSubstr("W0843 at runtime.product[1].of: expected m, n and k from 1"));
  EXPECT_THAT(error_of([](auto* choice) { choice->mutable_of()->set_m(int64_t{1} << 62); }),
              HasSubstr("W0843"));
  EXPECT_THAT(error_of([](auto* choice) { choice->mutable_of()->set_operands("i32"); }),
              HasSubstr("W0843 at runtime.product[1].of.operands"));
  EXPECT_THAT(error_of([](auto* choice) { choice->mutable_of()->set_result("f64"); }),
              HasSubstr("W0843 at runtime.product[1].of.result"));
}

}  // namespace
}  // namespace weir
