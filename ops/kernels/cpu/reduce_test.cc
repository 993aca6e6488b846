#include <algorithm>
#include <limits>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner.h"

namespace weir {
namespace {

std::vector<double> Reference(const std::string& op, const TestTensor& x, const std::vector<int64_t>& axes) {
  const Shape& shape = x.slice.shape;
  std::vector<char> reduced(shape.size(), axes.empty());
  for (int64_t axis : axes) reduced[axis] = 1;
  int64_t size = 1;
  double count = 1;
  for (size_t d = 0; d < shape.size(); ++d) (reduced[d] ? count : (size *= shape[d], count)) *= reduced[d] ? static_cast<double>(shape[d]) : 1.0;
  std::vector<double> y(size, op == "reduce_max" ? -std::numeric_limits<double>::infinity() : 0.0);
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t rest = i, at = 0, stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      int64_t index = rest % shape[d];
      rest /= shape[d];
      if (reduced[d]) continue;
      at += index * stride;
      stride *= shape[d];
    }
    y[at] = op == "reduce_max" ? std::max(y[at], x[i]) : y[at] + x[i];
  }
  if (op == "reduce_mean") {
    for (double& value : y) value /= count;
  }
  return y;
}

TEST(Reduce, MatchesTheReferenceOnEveryPatternOfAxes) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max"}) {
      for (const Shape& shape : {Shape{7}, Shape{33, 70}, Shape{3, 5, 9}, Shape{2, 300, 40}, Shape{70000}}) {
        for (int mask = 0; mask < (1 << shape.size()); ++mask) {
          std::vector<int64_t> axes;
          Shape kept;
          for (size_t d = 0; d < shape.size(); ++d) {
            if (mask >> d & 1) {
              axes.push_back(static_cast<int64_t>(d));
            } else if (mask != 0) {
              kept.push_back(shape[d]);
            }
          }
          TestTensor x = RandomTensor(dtype, shape, 3);
          auto y = RunKernel(op, {{"axes", axes}}, {x}, {TensorSlice::Whole(DType::kF32, kept)});
          ASSERT_EQ(y.size(), 1u);
          ExpectClose(y[0], Reference(op, x, axes), 300);
        }
      }
    }
  }
}

TEST(Reduce, TheMeanOfAShardDividesByTheWhole) {
  TensorSlice slice{DType::kF32, {2, 3}, {0, 0}, {4, 3}};
  TestTensor x{slice, {1, 2, 3, 4, 5, 6}};
  auto y = RunKernel("reduce_mean", {{"axes", std::vector<int64_t>{0}}}, {x}, {TensorSlice::Whole(DType::kF32, {3})});
  ASSERT_EQ(y.size(), 1u);
  ExpectClose(y[0], {5.0 / 4, 7.0 / 4, 9.0 / 4});
}

TEST(Reduce, TheGradientOfTheMaximumGoesToEveryEqualOne) {
  TestTensor x = TensorOf(DType::kF32, {2, 3}, {1, 5, 5, 2, 0, 1});
  TestTensor y = TensorOf(DType::kF32, {2}, {5, 2});
  TestTensor dy = TensorOf(DType::kF32, {2}, {10, 20});
  auto dx = RunKernel("reduce_max_grad", {{"axes", std::vector<int64_t>{1}}}, {x, y, dy}, {x.slice});
  ASSERT_EQ(dx.size(), 1u);
  ExpectEqualValues(dx[0], {0, 10, 10, 20, 0, 0});
}

}  // namespace
}  // namespace weir
