#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

class ArithmeticKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ArithmeticKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
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
  for (DType to : {DType::kF32, DType::kBF16, DType::kF16}) {
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

// The vectors of kernels convert as dtype.h does, whatever the instructions.
TEST(ArithmeticTest, CastsF16AsTheScalarsDo) {
  std::vector<double> all, near;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double x = ToFloat(Float16{static_cast<uint16_t>(bits)});
    if (std::isnan(x)) continue;
    all.push_back(x);
    if (std::isinf(x)) continue;
    for (const double factor : {1.0, 1 + 0x1p-12, 1 + 0x1p-11, 1 + 0x1p-11 + 0x1p-20, 1 - 0x1p-12})
      near.push_back(static_cast<float>(x * factor));
  }
  for (const double x : {65504.0, 65519.0, 65520.0, 65536.0, 1e9, 0x1p-25, 0x1.8p-25, 0x1p-26, 0.0})
    near.insert(near.end(), {x, -x});
  const auto of = [](DType from, DType to, const std::vector<double>& values) {
    const Shape shape = {static_cast<int64_t>(values.size())};
    return RunKernel("cast", {{"to", std::string(Name(to))}}, {TensorOf(from, shape, values)},
                     {TensorSlice::Whole(to, shape)})[0];
  };
  ExpectEqualValues(of(DType::kF16, DType::kF32, all), all);
  std::vector<double> expected;
  for (const double x : near) expected.push_back(Stored(DType::kF16, x));
  ExpectEqualValues(of(DType::kF32, DType::kF16, near), expected);
}

}  // namespace
}  // namespace weir::kernels
