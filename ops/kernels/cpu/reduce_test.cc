#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"
#include "ops/kernels/shape/axis_groups.h"

namespace weir::kernels {
namespace {

struct Case {
  Shape shape;
  std::vector<int64_t> axes;
};
const Case kCases[] = {{{5, 7}, {0}},
                       {{5, 7}, {1}},
                       {{5, 7}, {}},
                       {{3, 4, 5, 6}, {1, 3}},
                       {{3, 4, 5, 6}, {0, 2}},
                       {{3000, 65}, {0}},
                       {{600, 256}, {0}},
                       {{65, 3000}, {1}},
                       {{100001}, {0}},
                       {{2, 70000}, {1}},
                       {{300, 20, 17}, {0, 1}},
                       {{300, 20, 17}, {1}},
                       {{4, 1, 5}, {1}},
                       {{0, 4}, {0}},
                       {{4, 0}, {0}},
                       {{}, {}},
                       {{2, 300, 3, 200}, {1, 3}}};

bool Reduced(const Case& c, size_t axis) {
  return c.axes.empty() ||
         std::find(c.axes.begin(), c.axes.end(), static_cast<int64_t>(axis)) != c.axes.end();
}

// Returns, for each element of the whole tensor, the number of the result to which it belongs.
std::vector<int64_t> ResultOf(const Case& c) {
  std::vector<int64_t> results;
  for (int64_t i = 0; i < NumElements(c.shape); ++i) {
    int64_t rest = i, result = 0, stride = 1;
    for (size_t axis = c.shape.size(); axis-- > 0;) {
      if (!Reduced(c, axis)) {
        result += rest % c.shape[axis] * stride;
        stride *= c.shape[axis];
      }
      rest /= c.shape[axis];
    }
    results.push_back(result);
  }
  return results;
}

class ReduceKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ReduceKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(ReduceKernelTest, ReducesOverTheAxes) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(ToText(c.shape));
    TestTensor x = RandomTensor(GetParam(), c.shape, 1);
    // The whole tensor has three times as many elements along the first reduced axis.
    const bool split = !c.shape.empty() && Reduced(c, 0);
    if (split) x.slice.global_shape[0] *= 3;
    Shape kept = KeptShape(c.shape, c.axes);
    std::vector<double> sum(NumElements(kept), 0), max(NumElements(kept), -INFINITY), mean;
    std::vector<int64_t> result = ResultOf(c);
    for (int64_t i = 0; i < x.size(); ++i) {
      sum[result[i]] += x[i];
      max[result[i]] = std::max(max[result[i]], x[i]);
    }
    const double count = static_cast<double>(ReducedElements(x.slice.global_shape, c.axes));
    for (double value : sum) mean.push_back(value / std::max(count, 1.0));
    Attributes attrs{{"axes", c.axes}};
    const double terms =
        std::sqrt(static_cast<double>(x.size()) / std::max<size_t>(1, sum.size()) + 1);
    for (DType out : {GetParam(), DType::kF32}) {
      TensorSlice y = TensorSlice::Whole(out, kept);
      ExpectClose(RunKernel("reduce_sum", attrs, {x}, {y})[0], sum, out == DType::kF32 ? terms : 1);
      if (count > 0) ExpectClose(RunKernel("reduce_mean", attrs, {x}, {y})[0], mean);
      ExpectEqualValues(RunKernel("reduce_max", attrs, {x}, {y})[0], max);
    }
  }
}

TEST_P(ReduceKernelTest, ExpandRepeatsAlongTheAxes) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(ToText(c.shape));
    TestTensor dy = RandomTensor(GetParam(), KeptShape(c.shape, c.axes), 2);
    std::vector<double> expected;
    for (int64_t result : ResultOf(c)) expected.push_back(dy[result]);
    auto dx =
        RunKernel("expand", {{"axes", c.axes}}, {dy}, {TensorSlice::Whole(GetParam(), c.shape)});
    ExpectEqualValues(dx[0], expected);
  }
}

TEST_P(ReduceKernelTest, GradientOfTheMaximumGoesToAllEqualMaxima) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(ToText(c.shape));
    TestTensor x = RandomTensor(GetParam(), c.shape, 1);
    for (double& value : x.values)
      value = Stored(GetParam(), std::round(value * 2));  // many are equal
    TestTensor y = RandomTensor(GetParam(), KeptShape(c.shape, c.axes), 2),
               dy = RandomTensor(GetParam(), y.slice.shape, 3);
    std::fill(y.values.begin(), y.values.end(), -INFINITY);
    std::vector<int64_t> result = ResultOf(c);
    for (int64_t i = 0; i < x.size(); ++i) y.values[result[i]] = std::max(y[result[i]], x[i]);
    std::vector<double> expected;
    for (int64_t i = 0; i < x.size(); ++i)
      expected.push_back(x[i] == y[result[i]] ? dy[result[i]] : 0);
    auto dx = RunKernel("reduce_max_grad", {{"axes", c.axes}}, {x, y, dy}, {x.slice});
    ExpectEqualValues(dx[0], expected);
  }
}

TEST(ReduceTest, IllegalAxesAreRefused) {
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{2}, {-1}, {0, 0}}) {
    KernelSpec spec{.op = "reduce_sum",
                    .attrs = {{"axes", axes}},
                    .inputs = {TensorSlice::Whole(DType::kF32, {3, 4})},
                    .outputs = {TensorSlice::Whole(DType::kF32, {4})}};
    EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weir::kernels
