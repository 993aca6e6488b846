#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

class ArithmeticKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ArithmeticKernelTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(ArithmeticKernelTest, CombinesElementByElementAndRepeatsTheSecondOperand) {
  struct Shapes {
    Shape a, b;
  };
  const Shapes cases[] = {
      {{0}, {0}},       {{1}, {1}},         {{5, 7}, {5, 7}},    {{5, 7}, {7}},
      {{300, 257}, {}}, {{300, 257}, {1}},  {{300, 257}, {257}}, {{8, 100, 64}, {100, 64}},
      {{0, 4}, {4}},    {{70001}, {70001}}, {{40000, 3}, {3}}};
  for (const Shapes& shapes : cases) {
    TestTensor a = RandomTensor(GetParam(), shapes.a, 1), b = RandomTensor(GetParam(), shapes.b, 2);
    for (const std::string op : {"add", "sub", "mul"}) {
      auto y = RunKernel(op, {}, {a, b}, {a.slice});
      std::vector<double> expected;
      for (int64_t i = 0; i < a.size(); ++i) {
        double left = a[i], right = b[i % b.size()];
        expected.push_back(op == "add" ? left + right : op == "sub" ? left - right : left * right);
      }
      ExpectClose(y[0], expected);
    }
  }
}

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

TEST(ArithmeticTest, AnOperandThatDoesNotRepeatIsRefused) {
  KernelSpec spec{
      .op = "add",
      .inputs = {TensorSlice::Whole(DType::kF32, {4, 6}), TensorSlice::Whole(DType::kF32, {4})},
      .outputs = {TensorSlice::Whole(DType::kF32, {4, 6})}};
  EXPECT_EQ(KernelRegistry::Create("cpu", spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::kernels
