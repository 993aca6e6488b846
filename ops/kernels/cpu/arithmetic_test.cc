#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

class ArithmeticKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ArithmeticKernelTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(ArithmeticKernelTest, ScaleMultipliesByTheFactor) {
  TestTensor x = RandomTensor(GetParam(), {3, 11111}, 5);
  auto y = RunKernel("scale", {{"factor", 0.37}}, {x}, {x.slice});
  std::vector<double> expected;
  for (double value : x.values) expected.push_back(value * 0.37);
  ExpectClose(y[0], expected);
}

TEST_P(ArithmeticKernelTest, CastRoundsToTheNearestStoredValue) {
  TestTensor x = RandomTensor(GetParam(), {40001}, 5);
  for (DType to : {DType::kF32, DType::kBF16}) {
    auto y =
        RunKernel("cast", {{"to", std::string(Name(to))}}, {x}, {TensorSlice::Whole(to, {40001})});
    std::vector<double> expected;
    for (double value : x.values) expected.push_back(Stored(to, value));
    ExpectEqualValues(y[0], expected);
  }
}

TEST_P(ArithmeticKernelTest, AccumulateCopiesFirstAndAddsAfter) {
  TestTensor g = RandomTensor(GetParam(), {33333}, 5),
             before = RandomTensor(DType::kF32, {33333}, 6);
  for (int64_t span_act : {0, 1, 5}) {
    RunOptions options;
    options.micro_batch = 1 - span_act;  // does not matter
    options.span_act = span_act;
    options.initial_outputs = {before};
    auto sum = RunKernel("accumulate", {}, {g}, {before.slice}, options);
    std::vector<double> expected;
    for (int64_t i = 0; i < g.size(); ++i) {
      expected.push_back(span_act == 0 ? g[i] : Stored(DType::kF32, before[i] + g[i]));
    }
    ExpectEqualValues(sum[0], expected);
  }
}

TEST(ArithmeticTest, CastKeepsInfinityAndNaN) {
  TestTensor x = TensorOf(DType::kF32, {4}, {INFINITY, -INFINITY, std::nan(""), 3.4e38});
  auto y = RunKernel("cast", {}, {x}, {TensorSlice::Whole(DType::kBF16, {4})});
  EXPECT_EQ(y[0][0], INFINITY);
  EXPECT_EQ(y[0][1], -INFINITY);
  EXPECT_TRUE(std::isnan(y[0][2]));
  EXPECT_EQ(y[0][3], Stored(DType::kBF16, 3.4e38));
}

}  // namespace
}  // namespace weir::kernels
