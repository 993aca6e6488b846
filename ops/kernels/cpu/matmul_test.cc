#include <cmath>
#include <cstdlib>
#include <new>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/kernels/cpu/gemm.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

double Activated(const std::string& activation, double x) {
  if (activation == "relu") return x > 0 ? x : 0;
  if (activation == "silu") return x / (1 + std::exp(-x));
  if (activation == "gelu_exact") return 0.5 * x * (1 + std::erf(x / std::sqrt(2)));
  if (activation == "gelu") {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

enum class Weight { kPlain, kTransposed };

struct Sizes {
  Shape leading;
  int64_t k, n;
  Shape With(int64_t last) const {
    Shape shape = leading;
    shape.push_back(last);
    return shape;
  }
};

// Both ways of Gemm, with rests in every direction, and empty operands.
const Sizes kSizes[] = {{{3}, 5, 7},     {{2, 2}, 16, 64}, {{70}, 33, 65},   {{2, 50}, 64, 128},
                        {{130}, 100, 1}, {{257}, 31, 200}, {{1}, 300, 1100}, {{40}, 1, 48},
                        {{0}, 8, 8},     {{6}, 0, 4},      {{4, 0}, 3, 0},   {{1100}, 20, 30}};

class MatmulKernelTest : public testing::TestWithParam<std::tuple<DType, Weight>> {
 protected:
  DType dtype() const { return std::get<0>(GetParam()); }
  bool transposed() const { return std::get<1>(GetParam()) == Weight::kTransposed; }
  TestTensor RandomWeight(int64_t k, int64_t n) const {
    return RandomTensor(dtype(), transposed() ? Shape{n, k} : Shape{k, n}, 2);
  }
  double At(const TestTensor& w, int64_t k, int64_t n, int64_t row, int64_t column) const {
    return transposed() ? w[column * k + row] : w[row * n + column];
  }
};
INSTANTIATE_TEST_SUITE_P(Types, MatmulKernelTest,
                         testing::Combine(testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                          testing::Values(Weight::kPlain, Weight::kTransposed)),
                         [](const auto& test) {
                           return std::string(Name(std::get<0>(test.param))) +
                                  (std::get<1>(test.param) == Weight::kPlain ? "Plain"
                                                                             : "Transposed");
                         });

TEST_P(MatmulKernelTest, MultipliesAddsTheBiasAndActivates) {
  int which = 0;
  for (const Sizes& sizes : kSizes) {
    TestTensor x = RandomTensor(dtype(), sizes.With(sizes.k), 1),
               w = RandomWeight(sizes.k, sizes.n);
    for (double& value : w.values) value = Stored(dtype(), value / std::sqrt(sizes.k + 1.0));
    TestTensor bias = RandomTensor(dtype(), {sizes.n}, 3);
    TensorSlice y_slice = TensorSlice::Whole(dtype(), sizes.With(sizes.n));
    const std::string activation =
        std::array{"none", "relu", "gelu", "gelu_exact", "silu"}[which++ % 5];
    Attributes attrs{{"transpose_w", transposed()}, {"activation", activation}};
    bool biased = which % 3 != 0;
    auto results = RunKernel("matmul", attrs, {x, w, biased ? std::optional(bias) : std::nullopt},
                             {y_slice, y_slice});
    auto alone =
        RunKernel("matmul", attrs, {x, w, biased ? std::optional(bias) : std::nullopt}, {y_slice});
    int64_t rows = NumElements(sizes.leading);
    std::vector<double> y(rows * sizes.n), pre(rows * sizes.n);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < sizes.n; ++j) {
        double sum = biased ? bias[j] : 0;
        for (int64_t p = 0; p < sizes.k; ++p)
          sum += x[i * sizes.k + p] * At(w, sizes.k, sizes.n, p, j);
        pre[i * sizes.n + j] = sum;
        y[i * sizes.n + j] = Activated(activation, sum);
      }
    }
    ExpectClose(results[1], pre);
    ExpectClose(results[0], y, 2);
    ExpectEqualValues(alone[0], results[0].values);
  }
}

TEST_P(MatmulKernelTest, WeightGradientContractsOverAllLeadingAxes) {
  for (const Sizes& sizes : kSizes) {
    TestTensor x = RandomTensor(dtype(), sizes.With(sizes.k), 1),
               dy = RandomTensor(dtype(), sizes.With(sizes.n), 2);
    int64_t rows = NumElements(sizes.leading);
    std::vector<double> expected(sizes.k * sizes.n, 0.0);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t p = 0; p < sizes.k; ++p) {
        for (int64_t j = 0; j < sizes.n; ++j) {
          expected[transposed() ? j * sizes.k + p : p * sizes.n + j] +=
              x[i * sizes.k + p] * dy[i * sizes.n + j];
        }
      }
    }
    Shape shape = transposed() ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n};
    for (DType out : {DType::kF32, DType::kBF16, DType::kF16}) {
      auto dw = RunKernel("matmul_grad_w",
                          {{"transpose_w", transposed()}, {"out_dtype", std::string(Name(out))}},
                          {x, dy}, {TensorSlice::Whole(out, shape)});
      ExpectClose(dw[0], expected, std::sqrt(rows + 1.0));
    }
  }
}

TEST_P(MatmulKernelTest, ALargeWeightIsNotPacked) {
  GemmSpec spec{.m = 64, .n = 4096, .k = 1100, .operands = dtype(), .result = dtype()};
  spec.b = transposed() ? Storage::kTransposed : Storage::kPlain;
  auto gemm = Gemm::Create(spec);
  ASSERT_TRUE(gemm.ok());
  EXPECT_THAT((*gemm)->debug_text(), testing::StartsWith("plain")) << (*gemm)->workspace_bytes();
}

// Processors have different ways. Those that this one lacks are refused by name.
TEST_P(MatmulKernelTest, EveryWayGivesTheSameNumbers) {
  for (const Sizes& sizes : kSizes) {
    const TestTensor x = RandomTensor(dtype(), sizes.With(sizes.k), 1),
                     dy = RandomTensor(dtype(), sizes.With(sizes.n), 4);
    const TestTensor w = RandomWeight(sizes.k, sizes.n), bias = RandomTensor(dtype(), {sizes.n}, 3);
    const TensorSlice y = TensorSlice::Whole(dtype(), sizes.With(sizes.n));
    const Shape dw_shape = transposed() ? Shape{sizes.n, sizes.k} : Shape{sizes.k, sizes.n};
    const TensorSlice dw = TensorSlice::Whole(DType::kF32, dw_shape);
    Attributes attrs{{"transpose_w", transposed()}};
    const auto expected = RunKernel("matmul", attrs, {x, w, bias}, {y});
    const auto expected_dw = RunKernel("matmul_grad_w", attrs, {x, dy}, {dw});
    for (const ProductWay way : kProductWays) {
      attrs.Set(kProductWayAttr, Name(way));
      const auto made =
          KernelRegistry::Create(DeviceOfTests(), {.op = "matmul",
                                                   .attrs = attrs,
                                                   .inputs = {x.slice, w.slice, bias.slice},
                                                   .outputs = {y}});
      if (!made.ok()) {
        EXPECT_THAT(made.status().message(), testing::HasSubstr("W0842")) << Name(way);
        continue;
      }
      const double scale = std::sqrt(static_cast<double>(sizes.k) + 1);
      ExpectClose(RunKernel("matmul", attrs, {x, w, bias}, {y})[0], expected[0].values, scale);
      ExpectClose(RunKernel("matmul_grad_w", attrs, {x, dy}, {dw})[0], expected_dw[0].values,
                  std::sqrt(static_cast<double>(NumElements(sizes.leading)) + 1));
    }
  }
}

TEST(MatmulTest, AnF16BiasStandsBesideBf16Operands) {
  for (const int64_t m : {3, 70}) {  // plain, panels
    const int64_t n = 65, k = 33;
    const TestTensor x = RandomTensor(DType::kBF16, {m, k}, 1),
                     w = RandomTensor(DType::kBF16, {k, n}, 2),
                     bias = RandomTensor(DType::kF16, {n}, 3);
    std::vector<double> y(m * n);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        y[i * n + j] = bias[j];
        for (int64_t p = 0; p < k; ++p) y[i * n + j] += x[i * k + p] * w[p * n + j];
      }
    }
    const TensorSlice slice = TensorSlice::Whole(DType::kBF16, {m, n});
    ExpectClose(RunKernel("matmul", {}, {x, w, bias}, {slice})[0], y, std::sqrt(k + 1.0));
  }
}

TEST(MatmulTest, AWayThatDoesNotExistIsRefused) {
  KernelSpec spec{
      .op = "matmul",
      .attrs = {{kProductWayAttr, std::string("fast")}},
      .inputs = {TensorSlice::Whole(DType::kF32, {4, 5}), TensorSlice::Whole(DType::kF32, {5, 3})},
      .outputs = {TensorSlice::Whole(DType::kF32, {4, 3})}};
  EXPECT_THAT(KernelRegistry::Create(DeviceOfTests(), spec).status().message(),
              testing::HasSubstr("attribute way to be automatic, panels"));
}

TEST(MatmulTest, AWeightOfTheWrongShapeIsRefused) {
  KernelSpec spec{
      .op = "matmul",
      .inputs = {TensorSlice::Whole(DType::kF32, {4, 6}), TensorSlice::Whole(DType::kF32, {5, 3})},
      .outputs = {TensorSlice::Whole(DType::kF32, {4, 3})}};
  EXPECT_EQ(KernelRegistry::Create(DeviceOfTests(), spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::kernels
