#include "runtime/base/finite.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

TEST(FiniteTest, NoNumberIsTakenForAnother) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f, -kLargest, kLargest, kSmallest, -kSmallest};
  EXPECT_TRUE(AllFinite(DType::kF32, values.data(), static_cast<int64_t>(values.size())));
  EXPECT_EQ(CountNonfinite(DType::kF32, values.data(), static_cast<int64_t>(values.size())).first,
            -1);
}

TEST(FiniteTest, OneValueThatIsNotFiniteIsFoundWhereverItIs) {
  for (int64_t size : {1, 7, 1023, 1024, 1025, 5000}) {
    for (int64_t at : {int64_t{0}, size / 2, size - 1}) {
      for (float bad : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
        std::vector<float> values(static_cast<size_t>(size), 1.5f);
        values[static_cast<size_t>(at)] = bad;
        EXPECT_FALSE(AllFinite(DType::kF32, values.data(), size));
        const NonfiniteCount found = CountNonfinite(DType::kF32, values.data(), size);
        EXPECT_EQ(found.first, at);
        EXPECT_EQ(found.nans, std::isnan(bad) ? 1 : 0);
        EXPECT_EQ(found.infinities, std::isnan(bad) ? 0 : 1);
        EXPECT_TRUE(AllFinite(DType::kF32, values.data(), at))
            << "what lies behind the end does not count";
      }
    }
  }
}

TEST(FiniteTest, KnowsTheNarrowFormatToo) {
  std::vector<uint16_t> values(2000, 0x3fc0);
  EXPECT_TRUE(AllFinite(DType::kBF16, values.data(), 2000));
  values[1999] = 0x7f80;
  values[7] = 0xffc1;
  EXPECT_FALSE(AllFinite(DType::kBF16, values.data(), 2000));
  const NonfiniteCount found = CountNonfinite(DType::kBF16, values.data(), 2000);
  EXPECT_EQ(found.first, 7);
  EXPECT_EQ(found.nans, 1);
  EXPECT_EQ(found.infinities, 1);
}

TEST(FiniteTest, KnowsF16) {
  std::vector<uint16_t> values(2000, 0x7bff);  // 65504
  EXPECT_TRUE(AllFinite(DType::kF16, values.data(), 2000));
  values[1999] = 0x7c00;
  values[7] = 0xfc01;
  EXPECT_FALSE(AllFinite(DType::kF16, values.data(), 2000));
  const NonfiniteCount found = CountNonfinite(DType::kF16, values.data(), 2000);
  EXPECT_EQ(found.first, 7);
  EXPECT_EQ(found.nans, 1);
  EXPECT_EQ(found.infinities, 1);
}

TEST(FiniteTest, MasksAreAlwaysNumbers) {
  const std::vector<uint8_t> values(10, 0xff);
  EXPECT_TRUE(AllFinite(DType::kBool, values.data(), 10));
  EXPECT_EQ(CountNonfinite(DType::kBool, values.data(), 10).first, -1);
}

TEST(FiniteTest, IntegersAreAlwaysNumbers) {
  const std::vector<uint32_t> values(10, 0x7fc00000u);
  EXPECT_TRUE(AllFinite(DType::kI32, values.data(), 10));
  EXPECT_EQ(CountNonfinite(DType::kI32, values.data(), 10).first, -1);
}

}  // namespace
}  // namespace weir
