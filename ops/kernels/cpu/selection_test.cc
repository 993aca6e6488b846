#include <limits>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns the places of the k first elements of x.
std::vector<double> Places(const std::vector<double>& x, int64_t k, bool largest) {
  const TestTensor operand = TensorOf(DType::kF32, {static_cast<int64_t>(x.size())}, x);
  const Attributes attrs = {{"axis", int64_t{0}}, {"k", k}, {"largest", largest}};
  return RunKernel("top_k", attrs, {operand},
                   {TensorSlice::Whole(DType::kF32, {k}), TensorSlice::Whole(DType::kI32, {k})})[1]
      .values;
}

TEST(TopKTest, OfEqualElementsTheLowerPlaceComesFirst) {
  EXPECT_EQ(Places({1, 3, -0.0, 3, 0.0, 1}, 6, true), (std::vector<double>{1, 3, 0, 5, 2, 4}));
  EXPECT_EQ(Places({1, 3, -0.0, 3, 0.0, 1}, 4, false), (std::vector<double>{2, 4, 0, 5}));
}

TEST(TopKTest, NanCountsAsTheLargest) {
  EXPECT_EQ(Places({kInfinity, kNan, -kInfinity, kNan, 5}, 5, true),
            (std::vector<double>{1, 3, 0, 4, 2}));
  EXPECT_EQ(Places({kInfinity, kNan, -kInfinity, kNan, 5}, 5, false),
            (std::vector<double>{2, 4, 0, 1, 3}));
}

TEST(TopKTest, LongColumnsAreSearchedAsAWhole) {
  TestTensor x = RandomTensor(DType::kBF16, {2, 1500, 3}, 5);
  const TestTensor best = RunKernel("argmax", {{"axis", int64_t{1}}}, {x},
                                    {TensorSlice::Whole(DType::kI32, {2, 3})})[0];
  const auto several = RunKernel(
      "top_k", {{"axis", int64_t{1}}, {"k", int64_t{2}}}, {x},
      {TensorSlice::Whole(DType::kBF16, {2, 2, 3}), TensorSlice::Whole(DType::kI32, {2, 2, 3})});
  for (int64_t o = 0; o < 2; ++o) {
    for (int64_t j = 0; j < 3; ++j) {
      const auto value = [&](double i) { return x[(o * 1500 + static_cast<int64_t>(i)) * 3 + j]; };
      const double first = best[o * 3 + j];
      for (int64_t i = 0; i < 1500; ++i) EXPECT_LE(value(static_cast<double>(i)), value(first));
      EXPECT_EQ(several[1][o * 6 + j], first);
      EXPECT_EQ(several[0][o * 6 + 3 + j], value(several[1][o * 6 + 3 + j]));
    }
  }
}

TEST(CumsumTest, AddsInOrderUnderAllFlags) {
  const TestTensor x = TensorOf(DType::kF32, {5}, {1, 2, 4, 8, 16});
  const auto sums = [&](bool exclusive, bool reverse) {
    return RunKernel("cumsum",
                     {{"axis", int64_t{0}}, {"exclusive", exclusive}, {"reverse", reverse}}, {x},
                     {x.slice})[0]
        .values;
  };
  EXPECT_EQ(sums(false, false), (std::vector<double>{1, 3, 7, 15, 31}));
  EXPECT_EQ(sums(true, false), (std::vector<double>{0, 1, 3, 7, 15}));
  EXPECT_EQ(sums(false, true), (std::vector<double>{31, 30, 28, 24, 16}));
  EXPECT_EQ(sums(true, true), (std::vector<double>{30, 28, 24, 16, 0}));
}

// Rows of more than a block, and columns side by side.
TEST(CumsumTest, LongAxesHaveTheSumsOfAllBefore) {
  for (const int64_t inner : {1, 40}) {
    const TestTensor x = RandomTensor(DType::kF32, {2, 700, inner}, 3);
    std::vector<double> expected(static_cast<size_t>(x.size()));
    for (int64_t o = 0; o < 2; ++o) {
      for (int64_t j = 0; j < inner; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < 700; ++i) {
          const int64_t at = (o * 700 + i) * inner + j;
          expected[static_cast<size_t>(at)] = sum += x[at];
        }
      }
    }
    ExpectClose(RunKernel("cumsum", {{"axis", int64_t{1}}}, {x}, {x.slice})[0], expected, 4);
  }
}

// Sums in bf16 are made in f32 and rounded once.
TEST(SegmentSumTest, RoundsTheSumOnce) {
  std::vector<double> ones(600, 1.0);
  const TestTensor x = TensorOf(DType::kBF16, {2, 300, 1}, ones);
  const TestTensor ids = TensorOf(DType::kI32, {300}, std::vector<double>(300, 1.0));
  const TestTensor y = RunKernel("segment_sum", {{"axis", int64_t{1}}}, {x, ids},
                                 {TensorSlice::Whole(DType::kBF16, {2, 3, 1})})[0];
  EXPECT_EQ(y.values, (std::vector<double>{0, 300, 0, 0, 300, 0}));
}

}  // namespace
}  // namespace weir::kernels
