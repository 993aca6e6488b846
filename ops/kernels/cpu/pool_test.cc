#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

using Values = std::vector<double>;

// Windows of 3 elements that are 2 apart.
Attributes Apart(int64_t padding, bool count_padding) {
  return {{"kernel", std::vector<int64_t>{3}},
          {"stride", std::vector<int64_t>{1}},
          {"padding", std::vector<int64_t>{padding}},
          {"dilation", std::vector<int64_t>{2}},
          {"count_padding", count_padding}};
}

TEST(AveragePoolTest, TheMeanCountsTheElementsOfTheWindowAndNotThoseBetween) {
  const TestTensor x = TensorOf(DType::kF32, {1, 1, 6}, {1, 20, 3, 40, 5, 60});
  const TensorSlice y = TensorSlice::Whole(DType::kF32, {1, 1, 2});
  for (const bool count_padding : {true, false}) {
    const TestTensor mean = RunKernel("average_pool", Apart(0, count_padding), {x}, {y})[0];
    ExpectClose(mean, {3, 40});
  }
}

TEST(AveragePoolTest, PaddingCountsOrIsLeftOut) {
  const TestTensor x = TensorOf(DType::kF32, {1, 1, 5}, {1, 6, 3, 12, 5});
  const TensorSlice y = TensorSlice::Whole(DType::kF32, {1, 1, 3});
  ExpectClose(RunKernel("average_pool", Apart(1, true), {x}, {y})[0], {6, 3, 6});
  ExpectClose(RunKernel("average_pool", Apart(1, false), {x}, {y})[0], {9, 3, 9});
}

TEST(AveragePoolTest, TheGradientGivesEachElementItsShare) {
  const TestTensor dy = TensorOf(DType::kF32, {1, 1, 3}, {6, 3, 12});
  const TensorSlice dx = TensorSlice::Whole(DType::kF32, {1, 1, 5});
  ExpectClose(RunKernel("average_pool_grad", Apart(1, false), {dy}, {dx})[0], {1, 9, 1, 9, 1});
}

}  // namespace
}  // namespace weir::kernels
