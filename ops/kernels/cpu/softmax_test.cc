#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

class SoftmaxKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, SoftmaxKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(SoftmaxKernelTest, RowsSumToOneAndTheGradientAgrees) {
  const Shape shapes[] = {{3, 5}, {2, 7, 64}, {0, 4}, {4, 0}, {5, 1}, {700, 33}, {2, 20001}, {9}};
  for (const Shape& shape : shapes) {
    TestTensor x = RandomTensor(GetParam(), shape, 1), dy = RandomTensor(GetParam(), shape, 2);
    for (double& value : x.values) value = Stored(GetParam(), value * 6 - 50);
    const int64_t n = shape.back(), rows = n == 0 ? 0 : x.size() / n;
    std::vector<double> expected, gradient;
    auto y = RunKernel("softmax", {}, {x}, {x.slice});
    for (int64_t i = 0; i < rows; ++i) {
      double max = -INFINITY, sum = 0, dot = 0;
      for (int64_t j = 0; j < n; ++j) max = std::max(max, x[i * n + j]);
      for (int64_t j = 0; j < n; ++j) sum += std::exp(x[i * n + j] - max);
      for (int64_t j = 0; j < n; ++j) {
        expected.push_back(std::exp(x[i * n + j] - max) / sum);
        dot += y[0][i * n + j] * dy[i * n + j];
      }
      for (int64_t j = 0; j < n; ++j) gradient.push_back(y[0][i * n + j] * (dy[i * n + j] - dot));
    }
    ExpectClose(y[0], expected);
    auto dx = RunKernel("softmax_grad", {}, {y[0], dy}, {x.slice});
    ExpectClose(dx[0], gradient);
  }
}

TEST(SoftmaxTest, MaskedElementsGetNothing) {
  TestTensor x = TensorOf(DType::kF32, {1, 4}, {1, -INFINITY, 1, -INFINITY});
  ExpectClose(RunKernel("softmax", {}, {x}, {x.slice})[0], {0.5, 0, 0.5, 0});
}

}  // namespace
}  // namespace weir::kernels
