#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"
#include "runtime/base/random.h"

namespace weir::kernels {
namespace {

class DropoutKernelTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, DropoutKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return Name(test.param); });

// The global row-major number of each element of a shard.
std::vector<int64_t> GlobalNumbers(const TensorSlice& slice) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < slice.num_elements(); ++i) {
    int64_t rest = i, number = 0, stride = 1;
    for (size_t axis = slice.shape.size(); axis-- > 0;) {
      number += (rest % slice.shape[axis] + slice.offset[axis]) * stride;
      rest /= slice.shape[axis];
      stride *= slice.global_shape[axis];
    }
    numbers.push_back(number);
  }
  return numbers;
}

TEST_P(DropoutKernelTest, AnElementsFateDependsOnItsGlobalPlaceOnly) {
  const TensorSlice slices[] = {
      TensorSlice::Whole(GetParam(), {20011}),  {GetParam(), {3, 50, 7}, {2, 0, 1}, {9, 50, 11}},
      {GetParam(), {40, 33}, {5, 0}, {90, 33}}, {GetParam(), {4, 5, 6}, {0, 2, 0}, {4, 9, 6}},
      {GetParam(), {0, 5}, {0, 0}, {4, 5}},     {GetParam(), {600, 1}, {0, 3}, {600, 5}}};
  for (const TensorSlice& slice : slices) {
    for (double rate : {0.0, 0.1, 0.5, 1.0}) {
      TestTensor x = RandomTensor(slice, 1);
      RunOptions options;
      options.step = 12;
      options.micro_batch = 3;
      options.random_key = 0x123456789abcdefull;
      auto y = RunKernel("dropout", {{"rate", rate}}, {x}, {slice}, options);
      const uint64_t key = MixKey(options.random_key, 12);
      std::vector<double> expected;
      for (int64_t number : GlobalNumbers(slice)) {
        const uint64_t counter = 3 * NumElements(slice.global_shape) + number;
        const double value = x[static_cast<int64_t>(expected.size())];
        expected.push_back(UniformAt(key, counter) >= rate ? value / (1 - rate) : 0);
      }
      ExpectClose(y[0], expected);
    }
  }
}

TEST(DropoutTest, CountersBeyondThirtyTwoBitsCarry) {
  // The shard straddles element 2^34, where the low word of the counter overflows.
  const int64_t large = int64_t{1} << 34;
  TensorSlice slice{DType::kF32, {200}, {large - 100}, {large + 100}};
  TestTensor x = TensorOf(DType::kF32, {200}, std::vector<double>(200, 1));
  x.slice = slice;
  auto y = RunKernel("dropout", {{"rate", 0.5}}, {x}, {slice});
  std::vector<double> expected;
  for (int64_t i = 0; i < 200; ++i)
    expected.push_back(UniformAt(MixKey(0, 0), large - 100 + i) >= 0.5f ? 2 : 0);
  ExpectEqualValues(y[0], expected);
}

}  // namespace
}  // namespace weir::kernels
