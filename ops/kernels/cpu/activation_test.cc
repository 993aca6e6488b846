#include "ops/kernels/cpu/activation.h"

#include <cmath>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/kernel_runner_testing.h"

namespace weir::kernels {
namespace {

double Gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.141592653589793) * (x + 0.044715 * x * x * x)));
}
double GeluExact(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2))); }
double Silu(double x) { return x / (1 + std::exp(-x)); }
double Relu(double x) { return x > 0 ? x : 0; }

// The derivative by central differences of the reference.
template <typename F>
double Slope(F f, double x) {
  return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
}

class ActivationKernelTest : public testing::TestWithParam<DType> {
 protected:
  void CheckForward(const std::string& op, double (*reference)(double)) {
    for (int64_t n : {0, 1, 7, 16, 1000, 20001}) {
      TestTensor x = RandomTensor(GetParam(), {n}, 3);
      for (double& value : x.values) value = Stored(GetParam(), value * 4);
      auto y = RunKernel(op, {}, {x}, {x.slice});
      std::vector<double> expected;
      for (double value : x.values) expected.push_back(reference(value));
      ExpectClose(y[0], expected);
    }
  }
  void CheckGradient(const std::string& op, double (*reference)(double)) {
    for (int64_t n : {0, 1, 7, 16, 1000, 20001}) {
      TestTensor x = RandomTensor(GetParam(), {n}, 3), dy = RandomTensor(GetParam(), {n}, 4);
      for (double& value : x.values) value = Stored(GetParam(), value * 3);
      auto dx = RunKernel(op, {}, {x, dy}, {x.slice});
      std::vector<double> expected;
      for (int64_t i = 0; i < n; ++i) expected.push_back(dy[i] * Slope(reference, x[i]));
      ExpectClose(dx[0], expected);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Types, ActivationKernelTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& test) { return Name(test.param); });

TEST_P(ActivationKernelTest, ReluIsThePositivePart) { CheckForward("relu", Relu); }
TEST_P(ActivationKernelTest, GeluIsItsTanhForm) { CheckForward("gelu", Gelu); }
TEST_P(ActivationKernelTest, GeluExactIsItsFormWithErf) { CheckForward("gelu_exact", GeluExact); }
TEST_P(ActivationKernelTest, SiluIsXTimesSigmoid) { CheckForward("silu", Silu); }
TEST_P(ActivationKernelTest, ReluGradPassesWhereTheResultIsPositive) {
  CheckGradient("relu_grad", Relu);
}
TEST_P(ActivationKernelTest, GeluGradIsTheDerivative) { CheckGradient("gelu_grad", Gelu); }
TEST_P(ActivationKernelTest, GeluExactGradIsTheDerivative) {
  CheckGradient("gelu_exact_grad", GeluExact);
}
TEST_P(ActivationKernelTest, SiluGradIsTheDerivative) { CheckGradient("silu_grad", Silu); }

TEST(ActivationTest, LargeArgumentsNeitherOverflowNorVanish) {
  TestTensor x = TensorOf(DType::kF32, {6}, {-1e4, -90, 0, 90, 1e4, 1e10});
  for (const char* op : {"gelu", "gelu_exact", "silu"}) {
    auto y = RunKernel(op, {}, {x}, {x.slice});
    ExpectClose(y[0], {0, 0, 0, 90, 1e4, 1e10});
  }
}

TEST(ActivationTest, LargeArgumentsHaveASlope) {
  TestTensor x = TensorOf(DType::kF32, {4}, {-1e30, -90, 90, 1e30});
  TestTensor dy = TensorOf(DType::kF32, {4}, {1, 1, 1, 1});
  for (const char* op : {"gelu_exact_grad"}) {
    auto dx = RunKernel(op, {}, {x, dy}, {x.slice});
    ExpectClose(dx[0], {0, 0, 1, 1});
  }
}

TEST(ActivationTest, NaNStaysVisible) {
  TestTensor x = TensorOf(DType::kF32, {2}, {std::nan(""), 1});
  for (const char* op : {"relu", "gelu", "gelu_exact", "silu"}) {
    auto y = RunKernel(op, {}, {x}, {x.slice});
    EXPECT_TRUE(std::isnan(y[0][0])) << op;
    EXPECT_FALSE(std::isnan(y[0][1])) << op;
  }
}

TEST(ActivationTest, NamesAreThoseOfTheCatalogue) {
  EXPECT_EQ(ActivationFromName("none"), Activation::kNone);
  EXPECT_EQ(ActivationFromName("gelu"), Activation::kGelu);
  EXPECT_EQ(ActivationFromName("swish"), std::nullopt);
}

TEST(ActivationTest, AKernelThatDoesNotFitIsRefused) {
  KernelSpec spec{.op = "relu",
                  .inputs = {TensorSlice::Whole(DType::kF32, {3})},
                  .outputs = {TensorSlice::Whole(DType::kF32, {4})}};
  EXPECT_EQ(KernelRegistry::Create("cpu", spec).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weir::kernels
