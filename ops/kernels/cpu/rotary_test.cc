#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

class RotaryKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, RotaryKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(RotaryKernelTest, TurnsPairsByTheGlobalPosition) {
  struct Case {
    Shape shape;
    int64_t offset;
  };
  for (const Case& c : {Case{{2, 5, 3, 8}, 0},
                        {{1, 7, 2, 64}, 100},
                        {{3, 200, 4, 34}, 17},
                        {{0, 3, 2, 4}, 0},
                        {{2, 3, 1, 2}, 9}}) {
    for (bool inverse : {false, true}) {
      TensorSlice slice{
          GetParam(), c.shape, {0, c.offset, 0, 0}, {c.shape[0], 500, c.shape[2], c.shape[3]}};
      TestTensor x = RandomTensor(slice, 1);
      std::vector<double> expected(x.size());
      const int64_t d = c.shape[3];
      for (int64_t row = 0; row * d < x.size(); ++row) {
        const double position = static_cast<double>(c.offset + row / c.shape[2] % c.shape[1]);
        for (int64_t i = 0; i < d / 2; ++i) {
          const double angle = position * std::pow(500.0, -2.0 * i / d) * (inverse ? -1 : 1);
          const double a = x[row * d + i], b = x[row * d + i + d / 2];
          expected[row * d + i] = a * std::cos(angle) - b * std::sin(angle);
          expected[row * d + i + d / 2] = a * std::sin(angle) + b * std::cos(angle);
        }
      }
      auto y = RunKernel("rotary", {{"base", 500.0}, {"inverse", inverse}}, {x}, {slice});
      ExpectClose(y[0], expected);
    }
  }
}

}  // namespace
}  // namespace weir::kernels
