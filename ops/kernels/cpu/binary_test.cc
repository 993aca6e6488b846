#include <algorithm>
#include <cmath>
#include <functional>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

struct Function {
  std::string op;
  std::function<double(double, double)> f;
};

std::vector<Function> Functions() {
  return {{"add", [](double a, double b) { return a + b; }},
          {"sub", [](double a, double b) { return a - b; }},
          {"mul", [](double a, double b) { return a * b; }},
          {"div", [](double a, double b) { return a / b; }},
          {"maximum", [](double a, double b) { return std::max(a, b); }},
          {"minimum", [](double a, double b) { return std::min(a, b); }}};
}

// Returns the element of an operand that element `at` of the result reads.
double ElementOf(const TestTensor& operand, const Shape& result, int64_t at) {
  const Shape& shape = operand.slice.shape;
  int64_t index = 0, stride = 1;
  for (size_t d = 1; d <= result.size(); ++d) {
    const int64_t size = result[result.size() - d], coordinate = at % size;
    at /= size;
    if (d > shape.size()) continue;
    const int64_t own = shape[shape.size() - d];
    if (own != 1) index += coordinate * stride;
    stride *= own;
  }
  return operand[index];
}

class BinaryKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, BinaryKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(BinaryKernelTest, CombinesElementByElementAndRepeatsWhereAnOperandIsShort) {
  struct Shapes {
    Shape a, b, y;
  };
  const Shapes cases[] = {{{0}, {0}, {0}},
                          {{1}, {1}, {1}},
                          {{}, {}, {}},
                          {{5, 7}, {5, 7}, {5, 7}},
                          {{5, 7}, {7}, {5, 7}},
                          {{7}, {5, 7}, {5, 7}},
                          {{300, 257}, {}, {300, 257}},
                          {{300, 257}, {1}, {300, 257}},
                          {{300, 257}, {257}, {300, 257}},
                          {{300, 257}, {300, 1}, {300, 257}},
                          {{300, 1}, {1, 257}, {300, 257}},
                          {{1, 1, 1}, {3, 5, 7}, {3, 5, 7}},
                          {{3, 1, 7}, {1, 5, 1}, {3, 5, 7}},
                          {{4, 1, 6, 1}, {5, 1, 7}, {4, 5, 6, 7}},
                          {{8, 100, 64}, {100, 64}, {8, 100, 64}},
                          {{8, 100, 64}, {8, 1, 64}, {8, 100, 64}},
                          {{0, 4}, {4}, {0, 4}},
                          {{5, 0}, {5, 1}, {5, 0}},
                          {{70001}, {70001}, {70001}},
                          {{40000, 3}, {3}, {40000, 3}},
                          {{40000, 3}, {40000, 1}, {40000, 3}}};
  for (const Shapes& shapes : cases) {
    TestTensor a = RandomTensor(GetParam(), shapes.a, 1), b = RandomTensor(GetParam(), shapes.b, 2);
    for (double& value : b.values)
      value = Stored(GetParam(), value < 0 ? value - 0.5 : value + 0.5);  // a divisor, too
    const TensorSlice y_slice = TensorSlice::Whole(GetParam(), shapes.y);
    for (const Function& function : Functions()) {
      auto y = RunKernel(function.op, {}, {a, b}, {y_slice});
      ASSERT_EQ(y.size(), 1u) << function.op;
      std::vector<double> expected;
      for (int64_t i = 0; i < y[0].size(); ++i)
        expected.push_back(function.f(ElementOf(a, shapes.y, i), ElementOf(b, shapes.y, i)));
      ExpectClose(y[0], expected);
    }
  }
}

TEST(BinaryTest, NaNStaysNaNOnBothSides) {
  const double nan = std::nan("");
  const TestTensor a = TensorOf(DType::kF32, {4}, {nan, 1, nan, INFINITY});
  const TestTensor b = TensorOf(DType::kF32, {4}, {1, nan, nan, -INFINITY});
  for (const char* op : {"maximum", "minimum"}) {
    const auto y = RunKernel(op, {}, {a, b}, {a.slice});
    for (int i : {0, 1, 2}) EXPECT_TRUE(std::isnan(y[0][i])) << op << i;
    EXPECT_EQ(y[0][3], std::string(op) == "maximum" ? INFINITY : -INFINITY);
  }
}

TEST(BinaryTest, AnOperandThatDoesNotFitIsRefused) {
  const auto refused = [](Shape a, Shape b, Shape y) {
    KernelSpec spec{
        .op = "add",
        .inputs = {TensorSlice::Whole(DType::kF32, a), TensorSlice::Whole(DType::kF32, b)},
        .outputs = {TensorSlice::Whole(DType::kF32, y)}};
    return KernelRegistry::Create(DeviceOfTests(), spec).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({4, 6}, {4}, {4, 6}));
  EXPECT_TRUE(refused({4, 6}, {2, 4, 6}, {4, 6}));
  EXPECT_TRUE(refused({4, 2}, {4, 6}, {4, 6}));
  EXPECT_TRUE(refused({1}, {1}, {6}));
  EXPECT_FALSE(refused({4, 1}, {6}, {4, 6}));
}

}  // namespace
}  // namespace weir::kernels
