// Convolutions and pools against plain loops, in f32, bf16 and f16, on every instruction set.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

// A convolution over two dimensions of equal windows.
struct Case {
  const char* name;
  int64_t images, groups, in, out, high, wide, window, stride, padding, dilation;

  int64_t size(int64_t n) const {
    return (n + 2 * padding - dilation * (window - 1) - 1) / stride + 1;
  }
  Shape x() const { return {images, groups * in, high, wide}; }
  Shape w() const { return {groups * out, in, window, window}; }
  Shape y() const { return {images, groups * out, size(high), size(wide)}; }
  Attributes attrs() const {
    return {{"groups", groups},
            {"stride", std::vector<int64_t>{stride}},
            {"padding", std::vector<int64_t>{padding}},
            {"dilation", std::vector<int64_t>{dilation}}};
  }
};

// Channels beyond a vector, images beyond a piece, rests in every direction, and empty operands.
const Case kCases[] = {
    {"small", 2, 1, 3, 5, 6, 7, 3, 1, 1, 1},       {"strided", 3, 1, 19, 35, 11, 8, 3, 2, 1, 1},
    {"points", 2, 1, 33, 18, 5, 4, 1, 1, 0, 1},    {"patches", 2, 1, 3, 24, 8, 12, 4, 4, 0, 1},
    {"dilated", 2, 1, 4, 6, 12, 9, 3, 1, 2, 3},    {"depthwise", 2, 35, 1, 1, 9, 10, 7, 1, 3, 1},
    {"groups", 2, 4, 3, 5, 7, 7, 3, 1, 1, 1},      {"no images", 0, 1, 3, 5, 6, 7, 3, 1, 1, 1},
    {"no channels", 2, 1, 0, 5, 6, 7, 3, 1, 1, 1}, {"no results", 2, 1, 3, 0, 6, 7, 3, 1, 1, 1}};

// Calls visit(index of x, index of w, index of y) for each product.
template <class Visit>
void ForEachProduct(const Case& c, Visit&& visit) {
  const Shape x = c.x(), w = c.w(), y = c.y();
  for (int64_t i = 0; i < NumElements(y); ++i) {
    const int64_t column = i % y[3], row = i / y[3] % y[2], n = i / (y[3] * y[2]) % y[1],
                  image = i / (y[3] * y[2] * y[1]);
    for (int64_t k = 0; k < c.in; ++k) {
      for (int64_t v = 0; v < c.window * c.window; ++v) {
        const int64_t at_row = row * c.stride - c.padding + v / c.window * c.dilation,
                      at_column = column * c.stride - c.padding + v % c.window * c.dilation;
        if (at_row < 0 || at_row >= x[2] || at_column < 0 || at_column >= x[3]) continue;
        const int64_t channel = n / c.out * c.in + k;
        visit(((image * x[1] + channel) * x[2] + at_row) * x[3] + at_column,
              (n * w[1] + k) * w[2] * w[3] + v, i);
      }
    }
  }
}

class ConvKernelTest : public testing::TestWithParam<DType> {
 protected:
  TestTensor Random(Shape shape, uint64_t seed, double scale = 1) const {
    TestTensor tensor = RandomTensor(GetParam(), std::move(shape), seed);
    for (double& value : tensor.values) value = Stored(GetParam(), value * scale);
    return tensor;
  }
  TensorSlice Whole(Shape shape) const { return TensorSlice::Whole(GetParam(), std::move(shape)); }
};
INSTANTIATE_TEST_SUITE_P(Types, ConvKernelTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                         [](const auto& test) { return std::string(Name(test.param)); });

TEST_P(ConvKernelTest, SumsTheProductsOfEachWindowAndAddsTheBias) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const double scale = 1 / std::sqrt(static_cast<double>(c.in * c.window * c.window + 1));
    const TestTensor x = Random(c.x(), 1), w = Random(c.w(), 2, scale),
                     bias = Random({c.groups * c.out}, 3);
    for (bool biased : {false, true}) {
      std::vector<double> y(NumElements(c.y()));
      const int64_t plane = c.size(c.high) * c.size(c.wide);
      for (size_t i = 0; biased && i < y.size(); ++i)
        y[i] = bias[static_cast<int64_t>(i) / plane % bias.size()];
      ForEachProduct(
          c, [&](int64_t of_x, int64_t of_w, int64_t of_y) { y[of_y] += x[of_x] * w[of_w]; });
      const auto found = RunKernel(
          "conv", c.attrs(), {x, w, biased ? std::optional(bias) : std::nullopt}, {Whole(c.y())});
      ASSERT_EQ(found.size(), 1u);
      ExpectClose(found[0], y);
    }
  }
}

TEST_P(ConvKernelTest, SpreadsEachElementOverItsWindowWhenTransposed) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const double scale = 1 / std::sqrt(static_cast<double>(c.out * c.window * c.window + 1));
    const TestTensor y = Random(c.y(), 1), w = Random(c.w(), 2, scale),
                     bias = Random({c.groups * c.in}, 3);
    std::vector<double> x(NumElements(c.x()));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = bias[static_cast<int64_t>(i) / (c.high * c.wide) % bias.size()];
    ForEachProduct(c,
                   [&](int64_t of_x, int64_t of_w, int64_t of_y) { x[of_x] += y[of_y] * w[of_w]; });
    const auto found = RunKernel("conv_transpose", c.attrs(), {y, w, bias}, {Whole(c.x())});
    ASSERT_EQ(found.size(), 1u);
    ExpectClose(found[0], x);
  }
}

TEST_P(ConvKernelTest, SumsTheGradientOfTheWeightOverTheBatch) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const double scale =
        1 / std::sqrt(static_cast<double>(c.images * c.size(c.high) * c.size(c.wide) + 1));
    const TestTensor x = Random(c.x(), 1), dy = Random(c.y(), 2, scale);
    std::vector<double> dw(NumElements(c.w()));
    ForEachProduct(
        c, [&](int64_t of_x, int64_t of_w, int64_t of_y) { dw[of_w] += x[of_x] * dy[of_y]; });
    const auto found =
        RunKernel("conv_grad_w", c.attrs(), {x, dy}, {TensorSlice::Whole(DType::kF32, c.w())});
    ASSERT_EQ(found.size(), 1u);
    ExpectClose(found[0], dw);
  }
}

TEST_P(ConvKernelTest, TheLargestElementOfAWindowThatIsNotANumberIsNotANumber) {
  const TestTensor x = TensorOf(GetParam(), {1, 1, 4}, {1, std::nan(""), 3, 2});
  const auto found =
      RunKernel("max_pool", {{"kernel", std::vector<int64_t>{2}}}, {x}, {Whole({1, 1, 2})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(std::isnan(found[0][0]));
  EXPECT_EQ(found[0][1], 3);
}

}  // namespace
}  // namespace weir::kernels
